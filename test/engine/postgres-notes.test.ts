// Notes on PostgreSQL beside changes of the same job: whoever is first is waited for, so that all readers of the feed see
// both in one order; and what leaves the job as it is waits for nobody.
import { connect, defineJob, defineService, type FeedItem } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { evolve } from "#millrace/core/evolve.js";
import type { StatementValue } from "#millrace/engine/transaction.js";
import { changeOf, decided } from "../support/changes.js";
import { freshSchema } from "../support/postgres.js";
import { isWaitedFor, openTransaction } from "../support/postgres-locks.js";
import { gate } from "../worker/workshop.js";

const contract = defineService("shop", {
  pack: defineJob({ payload: z.object({}) }),
  sync: defineJob({
    payload: z.object({ tenant: z.string() }),
    keyConcurrency: { key: ["/tenant"], maxActive: 1 },
    queue: { maxQueuedPerKey: 5 },
  }),
});

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
  const client = await openTransaction(url);
  const lease = (lock: string) =>
    client.query(`SELECT id FROM ${schema}.leases WHERE id = $1 ${lock}`, [job.id]);
  const events = () => job.events().orThrow();
  const names = async () => (await events()).map(({ name }) => name);
  const steps = async () =>
    (await events()).flatMap((event) => (event.name === "progress" ? [event.progress.step] : []));
  return { job, client, schema, lease, names, steps, say, startAnother, worker };
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

it("a late outcome waits for no key: whoever retries its job by hand has the key and waits for the note", async () => {
  const { url, schema, storeUrl } = await freshSchema();
  const service = await connect(contract, { url: storeUrl });
  const [started, ended] = [gate(), gate()];
  onTestFinished(async () => {
    ended.open();
    await service.stop();
  });
  service.jobs.sync.handle(async () => {
    started.open();
    await ended.opened;
  });
  await service.start();
  const tenant = { tenant: "acme" };
  const job = await service.jobs.sync.create(tenant, { id: "first" }).orThrow();
  await started.opened;
  const next = await service.jobs.sync.create(tenant, { id: "next" }).orThrow();
  // It has ended, and its slot is held until its worker lets go of it.
  await job.cancel("enough", { force: true }).orThrow();
  const client = await openTransaction(url);
  await client.query(`SELECT hash FROM ${schema}.keys FOR UPDATE`);
  const retried = job.retry();
  await isWaitedFor(client);
  ended.open();
  const names = async () => (await job.events().orThrow()).map(({ name }) => name);
  while (!(await names()).includes("staleCompletionIgnored"));
  expect(await names()).not.toContain("retried");
  await client.query("COMMIT");
  await retried.orThrow();
  await next.wait().orThrow();
  await job.wait().orThrow();
  expect((await names()).slice(-4)).toEqual([
    "staleCompletionIgnored",
    "retried",
    "started",
    "completed",
  ]);
});

describe("a lease that jobs share", () => {
  /** Jobs that one claim of an engine has started, so that they share a lease. */
  async function sharingShop() {
    const { url, schema, storeUrl } = await freshSchema();
    const service = await connect(contract, { url: storeUrl });
    onTestFinished(() => service.stop());
    const payloads = Array.from({ length: 40 }, () => ({ payload: {} }));
    await service.jobs.pack.createMany(payloads).orThrow();
    const names = { service: "shop", queue: "pack", type: "pack" };
    const lanes = [{ ...names, lane: "shop/pack/pack@1", free: 40, leaseMs: 60_000 }];
    const claim = () => service.engine.claim({ worker: "w", lanes, limit: 40 });
    return { url, schema, storeUrl, service, claim };
  }

  it("is spread before anybody notes something on one of them", async () => {
    const { url, schema, storeUrl, claim } = await sharingShop();
    const { jobs } = await claim();
    // Whoever has claimed them remembers that they share a lease.
    const other = await connect(contract, { url: storeUrl });
    onTestFinished(() => other.stop());
    const [job] = jobs.map((claimed) => claimed.job);
    if (!job) throw new Error("no job");
    const client = await openTransaction(url);
    await client.query(`SELECT seq FROM ${schema}.shared_leases FOR UPDATE`);
    const error = { message: "no paper", reason: "hook" } as const;
    const event = decided(job, "reportHook", { hook: "onStart", error });
    const noted = other.engine.note([event]);
    await isWaitedFor(client);
    await client.query("COMMIT");
    expect(await noted).toEqual([true]);
    const leases = await client.query(`SELECT id FROM ${schema}.leases`);
    expect(leases.rowCount).toBe(40);
  });

  it("and is spread amid a command is left as it is: nobody has waited for the notes that share it", async () => {
    const { url, schema, service, claim } = await sharingShop();
    const [client, noting] = [await openTransaction(url), await openTransaction(url)];
    const { entries } = await service.reads.jobs({ limit: 1 }).orThrow();
    const [loaded] = await service.engine.load([entries[0]?.id ?? ""]);
    if (!loaded) throw new Error("no job");
    const { id } = loaded.job;
    const job = { service: "shop", type: "pack", id };
    const started = evolve(loaded.job, decided(loaded.job, "start", { worker: "w" })).job;
    if (!started) throw new Error("It does not run.");
    const change = changeOf(started, "cancel", {});
    const execute = async (sql: string, values: readonly StatementValue[]) => {
      // The claim comes after all leases of the job have been spread, and before the command looks for one.
      if (sql.startsWith("SAVEPOINT")) await claim();
      const { rows } = await client.query(sql, [...values]);
      if (!sql.includes("NOWAIT")) return rows;
      await service.engine.renew([{ job, token: 1, leaseMs: 60_000 }]);
      await noting.query(`SELECT id FROM ${schema}.leases WHERE id = $1 FOR KEY SHARE`, [id]);
      return rows;
    };
    const tx = { kind: "async", client, execute } as const;
    expect(await service.engine.append([change], tx)).toEqual([{ outcome: "conflict" }]);
    await client.query("ROLLBACK");
    // Asked again, it waits for the note.
    const appended = service.engine.append([change]);
    await isWaitedFor(noting);
    await noting.query("COMMIT");
    expect(await appended).toEqual([{ outcome: "appended" }]);
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
