import { readFileSync } from "node:fs"; import { execSync } from "node:child_process";
import { connect, defineJob, defineService } from "millrace";
import { z } from "zod";
const N = Number(process.argv[2] ?? 5000), keeper = process.argv[3] !== "nokeeper";
const pid = Number(execSync("pgrep -f 'nats-server.*14222' | head -1").toString());
const server = () => { const f = readFileSync(`/proc/${pid}/stat`, "utf8").split(" "); return (Number(f[13]) + Number(f[14])) * 10; };
const stamp = Date.now();
const url = `nats://127.0.0.1:14222?prefix=d${stamp}&projection=file:/tmp/me/nats/d${stamp}.db`;
const c = defineService("bench", { plain: defineJob({ payload: z.object({ n: z.number(), text: z.string() }), concurrency: 1000 }) });
const service = await connect(c, { url });
const text = "x".repeat(100);
const create = async (n) => { for (let i = 0; i < n; i += 1000) { const r = await service.jobs.plain.createMany(Array.from({ length: Math.min(1000, n - i) }, (_, k) => ({ payload: { n: i + k, text } }))).orThrow(); for (const x of r) x.unwrap(); } };
const measure = async (name, n, work) => { const c0 = process.cpuUsage(), s0 = server(), t = performance.now(); await work(); const ms = performance.now() - t; await new Promise(r => setTimeout(r, 50)); const c1 = process.cpuUsage(c0); console.log(name.padEnd(10), "node us/job", Math.round((c1.user + c1.system) / n), "server us/job", Math.round((server() - s0) * 1000 / n), "rate", Math.round(n / ms * 1000)); };
let done = 0, finish, want = Infinity;
service.jobs.plain.handle(async () => { if (++done === want) finish(); });
await create(500);
await measure("createMany", N, () => create(N));
const wait = (n) => { want = n; return new Promise(r => { finish = r; if (done >= want) r(); }); };
let s = await connect(c, { url }); s.jobs.plain.handle(async () => { if (++done === want) finish(); });
await measure("drain", N + 500, async () => { const w = wait(N + 500); await s.start(); await w; await s.stop(); });
done = 0;
await create(N);
if (process.env.PROF) { const { Session } = await import("node:inspector"); const ses = new Session(); ses.connect(); const post = (m, p) => new Promise((r, j) => ses.post(m, p, (e, v) => e ? j(e) : r(v))); await post("Profiler.enable"); await post("Profiler.start"); globalThis.stop = async () => { const { profile } = await post("Profiler.stop"); (await import("node:fs")).writeFileSync("/tmp/me/nats/p.cpuprofile", JSON.stringify(profile)); }; }
s = await connect(c, { url }); s.jobs.plain.handle(async () => { if (++done === want) finish(); });
await measure("drain2", N, async () => { const w = wait(N); await s.start(); await w; await s.stop(); });
if (globalThis.stop) await stop();
let left = 2000; await measure("create-50", 2000, () => Promise.all(Array.from({ length: 50 }, async () => { while (left-- > 0) await service.jobs.plain.create({ n: 1, text }).orThrow(); })));
for (const t of (await import("node:fs")).readdirSync("/proc/self/task")) { const f = readFileSync(`/proc/self/task/${t}/stat`, "utf8"); const a = f.slice(f.lastIndexOf(")") + 2).split(" "); const ms = (Number(a[11]) + Number(a[12])) * 10; if (ms > 100) console.log(t, f.slice(f.indexOf("("), f.indexOf(")") + 1), ms); }
await service.stop();
