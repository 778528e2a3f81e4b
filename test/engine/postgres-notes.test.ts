// Notes on PostgreSQL beside changes of the same job: whoever is first is waited for, so that all readers of the feed see
// both in one order; and what leaves the job as it is waits for nobody.
import { connect, defineJob, defineService, type FeedItem } from "millrace";
import { Client } from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { freshSchema } from "../support/postgres.js";
import { gate } from "../worker/workshop.js";

const contract = defineService("shop", { pack: defineJob({ payload: z.object({}) }) });

/** A job whose handler says something when it is told to, and a transaction beside it that is open. */
async function openShop() {
  const { url, schema, storeUrl } = await freshSchema();
  const [worker, caller] = [
    await connect(contract, { url: storeUrl }),
    await connect(contract, { url: storeUrl }),
  ];
  const ended = gate();
  const running = new Map<string, ReturnType<typeof gate<(step: string) => Promise<void>>>>();
  worker.jobs.pack.handle(async (job) => {
    running.get(job.id)?.open((step) => job.progress({ step, current: 1, total: 2 }));
    await ended.opened;
  });
  await worker.start();
  onTestFinished(async () => {
    ended.open();
    await worker.stop();
    await caller.stop();
  });
  const startAnother = async () => {
    const id = `job-${running.size}`;
    const started = gate<(step: string) => Promise<void>>();
    running.set(id, started);
    const job = await caller.jobs.pack.create({}, { id }).orThrow();
    return { job, say: await started.opened };
  };
  const { job, say } = await startAnother();
  // The first note gives the job a lease of its own, if it shares one.
  await say("first");
  const client = new Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  await client.query("BEGIN");
  const lease = (lock: string) =>
    client.query(`SELECT id FROM ${schema}.leases WHERE id = $1 ${lock}`, [job.id]);
  const events = () => job.events().orThrow();
  const names = async () => (await events()).map(({ name }) => name);
  const steps = async () =>
    (await events()).flatMap((event) => (event.name === "progress" ? [event.progress.step] : []));
  return { job, client, schema, lease, names, steps, say, startAnother, worker };
}

/** Waits until another transaction waits for a lock that this one holds. */
async function isWaitedFor(client: Client): Promise<void> {
  const waiting =
    "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))";
  while ((await client.query(waiting)).rowCount === 0);
}

describe("a note on postgres", () => {
  it.for([
    [false, "cancelRequested"],
    [true, "cancelled"],
  ] as const)("on its way is waited for by a command (forced: %s)", async ([force, name]) => {
    const { job, client, lease, names } = await openShop();
    await lease("FOR KEY SHARE");
    const cancelled = job.cancel("enough", { force });
    await isWaitedFor(client);
    expect(await names()).not.toContain(name);
    await client.query("COMMIT");
    await cancelled.orThrow();
    expect(await names()).toContain(name);
  });

  it("waits for whoever takes its job away, with those behind it, and is stored if they do not", async () => {
    const { client, schema, job, steps, say, startAnother } = await openShop();
    await client.query(`DELETE FROM ${schema}.leases WHERE id = $1`, [job.id]);
    const said = [say("second"), say("third")];
    // Notes of another job of the same worker go past them.
    const another = await startAnother();
    await another.say("first");
    said.push(say("fourth"));
    await another.say("second");
    expect(await steps()).toEqual(["first"]);
    await client.query("ROLLBACK");
    await Promise.all(said);
    expect(await steps()).toEqual(["first", "second", "third", "fourth"]);
  });

  it("is stored while the job's own transaction holds it", async () => {
    const { lease, steps, say } = await openShop();
    await lease("FOR NO KEY UPDATE");
    await say("second");
    expect(await steps()).toEqual(["first", "second"]);
  });

  it("does not keep a lease from being renewed", async () => {
    const { client, schema, job, lease, worker } = await openShop();
    const until = async () =>
      Number((await client.query(`SELECT until FROM ${schema}.leases`)).rows[0]?.until);
    const before = await until();
    await lease("FOR KEY SHARE");
    const { token, service, type } = await job.get().orThrow();
    const held = { job: { service, type, id: job.id }, token, leaseMs: 3_600_000 };
    const [renewed] = await worker.engine.renew([held]);
    expect(renewed).toMatchObject({ outcome: "held" });
    expect(await until()).toBeGreaterThan(before + 3_000_000);
  });
});

it("readers of the feed agree on the order of notes and commands", async () => {
  const { storeUrl } = await freshSchema();
  const [worker, caller] = [
    await connect(contract, { url: storeUrl }),
    await connect(contract, { url: storeUrl }),
  ];
  worker.jobs.pack.handle(async (job) => {
    for (let current = 0; current < 20; current++)
      await job.progress({ step: "pack", current, total: 20 });
  });
  await worker.start();
  const stop = new AbortController();
  onTestFinished(async () => {
    stop.abort();
    await worker.stop();
    await caller.stop();
  });
  const live: FeedItem[] = [];
  const last = "last";
  const following = (async () => {
    for await (const item of caller.reads.tail(stop.signal)) {
      live.push(item);
      if (item.event.jobId === last && item.event.name === "completed") return;
    }
  })();
  for (let round = 0; round < 20; round++) {
    const jobs = await Promise.all(
      Array.from({ length: 10 }, () => caller.jobs.pack.create({}).orThrow()),
    );
    await Promise.all(jobs.map((job, index) => job.cancel("enough", { force: index % 2 === 0 })));
    await Promise.all(jobs.map((job) => job.wait()));
  }
  await caller.jobs.pack.run({}, { id: last }).orThrow();
  await following;
  const again: FeedItem[] = [];
  for await (const item of caller.reads.tail(stop.signal)) {
    again.push(item);
    if (again.length === live.length) break;
  }
  expect(orders(live)).toEqual(orders(again));
});

/** The events of each job, in the order in which they were read. */
function orders(items: readonly FeedItem[]): Readonly<Record<string, readonly string[]>> {
  const byJob: Record<string, string[]> = {};
  for (const { event } of items) {
    byJob[event.jobId] ??= [];
    byJob[event.jobId]?.push(`${event.name} ${event.id}`);
  }
  return byJob;
}
