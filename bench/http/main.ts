// The benchmark of the HTTP API, on SQLite: creates over 64 connections beside creates of 64 callers in one process
// and beside what a server could do that is nothing but Node's HTTP, and a hundred event streams while jobs are drained, with what the server's memory does meanwhile. The server and its
// callers are processes of their own. `npm run bench:http` runs it; `-- --quick` with smaller amounts.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { connect } from "millrace";
import { concurrently } from "../concurrently.js";
import { mailer } from "./mailer.js";

const isQuick = process.argv.includes("--quick");
const jobs = isQuick ? 5_000 : 30_000;
/** As many as it takes until code that runs often is compiled. */
const warmUpJobs = 10_000;
const rounds = 3;
const callers = 64;
const streams = 100;

/** A script of this folder in a process of its own, and the lines that it prints. */
class Script {
  readonly child: ChildProcess;
  readonly #lines: AsyncIterator<string>;

  constructor(name: string, ...words: readonly string[]) {
    const file = fileURLToPath(new URL(name, import.meta.url));
    const stdio = ["pipe", "pipe", "inherit"] as const;
    const child = spawn(process.execPath, ["--import", "tsx", file, ...words], {
      stdio: [...stdio],
    });
    this.child = child;
    this.#lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  }

  async line(): Promise<string> {
    const { value, done } = await this.#lines.next();
    if (done) throw new Error("A process of the benchmark ended early.");
    return value;
  }

  /** Says something to the script, and gives what it answers. */
  ask(word: string): Promise<string> {
    this.child.stdin?.write(`${word}\n`);
    return this.line();
  }

  async end(): Promise<void> {
    this.child.stdin?.end();
    await once(this.child, "exit");
  }
}

async function inProcess(url: string): Promise<number> {
  const service = await connect(mailer, { url });
  const create = (number: number) =>
    service.jobs.send.create({ to: `${number}@b.example` }).orThrow();
  await concurrently(warmUpJobs, callers, create);
  const startedAt = performance.now();
  await concurrently(jobs, callers, create);
  const rate = jobs / ((performance.now() - startedAt) / 1_000);
  await service.stop();
  return rate;
}

async function overHttp(server: Script): Promise<number> {
  const address = await server.line();
  const load = new Script("load.ts", address, String(callers));
  await load.ask(String(warmUpJobs));
  const rate = Number(await load.ask(String(jobs)));
  await load.end();
  await server.end();
  return rate;
}

/** How many events each stream got, and what the server's memory was at each tenth of the drain. */
async function streamed(
  url: string,
): Promise<{ readonly heard: string; readonly memory: readonly string[] }> {
  const server = new Script("server.ts", url);
  const address = await server.line();
  const listeners = new Script("listeners.ts", address, String(streams));
  await listeners.line();
  const service = await connect(mailer, { url });
  service.jobs.send.handle(async () => "sent");
  const memory = [await server.ask("memory")];
  await service.start();
  for (let tenth = 0; tenth < 10; tenth++) {
    await concurrently(jobs / 10, callers, async (number) => {
      const ref = await service.jobs.send.create({ to: `${number}@b.example` }).orThrow();
      if (number % 100 === 0) await ref.wait();
    });
    memory.push(await server.ask("memory"));
  }
  const heard = await listeners.ask(String(jobs));
  memory.push(await server.ask("memory"));
  await listeners.end();
  await server.end();
  await service.stop();
  return { heard, memory };
}

function median(numbers: readonly number[]): number {
  return [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? 0;
}

const folder = mkdtempSync(join(tmpdir(), "millrace-http-bench-"));
try {
  const place = (name: string) => `file:${join(folder, `${name}.db`)}`;
  const own: number[] = [];
  const http: number[] = [];
  const bare: number[] = [];
  for (let round = 0; round < rounds; round++) {
    own.push(await inProcess(place(`own-${round}`)));
    http.push(await overHttp(new Script("server.ts", place(`http-${round}`))));
    bare.push(await overHttp(new Script("bare.ts")));
  }
  const ratio = median(http) / median(own);
  console.log(`creates of ${callers} callers in one process: ${Math.round(median(own))}/s`);
  console.log(
    `creates over ${callers} connections: ${Math.round(median(http))}/s, ratio ${ratio.toFixed(2)}`,
  );
  console.log(
    `of a bare Node server that stores nothing, over as many: ${Math.round(median(bare))}/s, ratio ${(median(bare) / median(own)).toFixed(2)}`,
  );
  const { heard, memory } = await streamed(place("streams"));
  console.log(`${streams} event streams while ${jobs} jobs are drained: ${heard}`);
  console.log(`memory of the server in MB (heap, whole process): ${memory.join("  ")}`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
