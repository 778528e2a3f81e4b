// What a projection does besides obeying the log: whose it is, who leads, who waits, and what may go wrong.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import type { JobEvent } from "#millrace/core/event.js";
import { systemClock } from "#millrace/engine/clock.js";
import { openEngine } from "#millrace/engine/open.js";
import type { LoggedEvent } from "#millrace/engine/projection/entry.js";
import { openProjection } from "#millrace/engine/projection/open.js";
import { leadMs, type Projection } from "#millrace/engine/projection/projection.js";
import { firstDue, type TicketScope } from "#millrace/engine/projection/tickets.js";
import { freshSchema } from "../support/postgres.js";
import { runScript } from "../support/process.js";
import { busyLog, key, Log } from "./log.js";
import { packed } from "./recorder.js";
import { readKeys, readViews } from "./views.js";

const stores = [
  {
    name: "SQLite",
    freshUrl: async () => {
      const folder = await mkdtemp(join(tmpdir(), "millrace-projection-"));
      onTestFinished(() => rm(folder, { recursive: true, force: true }));
      return `file:${join(folder, "view.db")}`;
    },
  },
  { name: "PostgreSQL", freshUrl: async () => (await freshSchema()).storeUrl },
];

const owner = { identity: "test", origin: "first" };

async function open(url: string, log: Log, options: Partial<typeof owner> = {}) {
  const projection = await openProjection(url, { ...owner, clock: log.clock, ...options });
  onTestFinished(() => projection.close());
  return projection;
}

/** Everything that a projection answers. */
async function everything(projection: Projection, log: Log) {
  const ids = [...new Set(log.entries.map(({ event }) => event.jobId))];
  return { ...(await readViews(projection, ids)), keys: await readKeys(projection) };
}

/** The answers of a projection that was told a log in one go. */
async function expected(log: Log) {
  const projection = await open((await stores[0]?.freshUrl()) ?? "", log);
  await projection.apply(0, log.entries);
  return everything(projection, log);
}

describe.for(stores)("a projection in $name", ({ freshUrl }) => {
  it("refuses the database of another deployment", async () => {
    const url = await freshUrl();
    await open(url, new Log());
    await expect(open(url, new Log(), { identity: "other" })).rejects.toThrow(
      /is the projection of "test", not of "other"/,
    );
  });

  it("can be opened by many at the same moment", async () => {
    const url = await freshUrl();
    const log = busyLog(3);
    const many = await Promise.all(Array.from({ length: 4 }, () => open(url, log)));
    await Promise.all(many.map((projection) => projection.apply(0, log.entries)));
    for (const projection of many)
      expect(await everything(projection, log)).toEqual(await expected(log));
  });

  it("is no store, and a store is no projection", async () => {
    const url = await freshUrl();
    await open(url, new Log());
    await expect(openEngine(url)).rejects.toThrow(/is a projection of jobs.*cannot be opened as/);
    const storeUrl = await freshUrl();
    const engine = await openEngine(storeUrl);
    await engine.close();
    await expect(open(storeUrl, new Log())).rejects.toThrow(
      /is a store of jobs.*cannot be opened as/,
    );
  });

  it("clears what is left of an older log in its place, and stops whoever still applies that", async () => {
    const url = await freshUrl();
    const log = busyLog(10);
    const older = await open(url, log);
    await older.apply(0, log.entries.slice(0, 8));
    expect(await older.lead()).toBe(true);
    const newer = await open(url, log, { origin: "second" });
    await expect(older.lead()).rejects.toThrow(/of a newer log/);
    expect([older.leads, await newer.lead()]).toEqual([false, true]);
    expect(await newer.status(log.head)).toMatchObject({ position: 0, lag: log.head });
    expect((await newer.query("jobs", {})).count).toBe(0);
    await expect(older.apply(8, log.entries.slice(8))).rejects.toThrow(/of a newer log/);
  });

  it("skips what it has, also where two apply at once", async () => {
    const url = await freshUrl();
    const log = busyLog(60);
    const both = [await open(url, log), await open(url, log)];
    const applyAll = async (projection: Projection, batchSize: number) => {
      let position = 0;
      while (position < log.entries.length) {
        const batch = log.entries.slice(position, position + batchSize);
        await projection.apply(position, batch);
        position += batch.length;
      }
    };
    await Promise.all(both.map((projection, index) => applyAll(projection, index + 3)));
    for (const projection of both) {
      await applyAll(projection, 1_000);
      expect(await everything(projection, log)).toEqual(await expected(log));
      expect(await projection.status(log.head)).toMatchObject({ lag: 0, ignored: 0 });
    }
  });

  it("remembers nothing that another process has changed meanwhile", async () => {
    const url = await freshUrl();
    const log = busyLog(60);
    const entries = log.entries.map((entry) => ({ ...entry, seq: entry.seq * 10 }));
    const [one, other] = [await open(url, log), await open(url, log)];
    let position = await one.apply(0, entries.slice(0, 50));
    position = await other.apply(position, entries.slice(50, 70));
    position = await one.apply(position, entries.slice(70, 90));
    // The same position as before, where lanes have other numbers.
    const bank = new Log();
    bank.create("elsewhere", { service: "bank" });
    const first = { ...bank.entries[0], seq: 5 } as LoggedEvent<JobEvent>;
    await other.clear();
    expect(await other.apply(0, [first, ...entries.slice(0, 90)])).toBe(position);
    await one.apply(position, entries.slice(90));
    log.entries.splice(0, log.entries.length, first, ...entries);
    expect(await everything(one, log)).toEqual(await expected(log));
  });

  it("goes on where a killed process stopped", async () => {
    const url = await freshUrl();
    const log = busyLog(200);
    const script = runScript(new URL("./applier.ts", import.meta.url), url, "200");
    for (let line = 0; line < 10; line++) await script.nextLine();
    script.child.kill("SIGKILL");
    await script.exited;
    const projection = await open(url, log);
    const position = await projection.position();
    expect(position).toBeGreaterThanOrEqual(50);
    expect(position).toBeLessThan(log.head);
    await projection.apply(position, log.entries.slice(position));
    expect(await everything(projection, log)).toEqual(await expected(log));
  });

  it("applies nothing behind a gap that a clearing has left", async () => {
    const url = await freshUrl();
    const log = busyLog(20);
    const [one, other] = [await open(url, log), await open(url, log)];
    const position = await one.apply(0, log.entries.slice(0, 10));
    await other.clear();
    expect(await one.apply(position, log.entries.slice(10))).toBe(0);
    expect((await one.query("jobs", {})).count).toBe(0);
    await one.apply(0, log.entries);
    expect(await everything(other, log)).toEqual(await expected(log));
  });

  it("counts events that the fold ignores, and changes nothing for them", async () => {
    const log = new Log();
    log.create("job-1");
    log.start("job-1");
    const created = log.entries[0]?.event as LoggedEvent<JobEvent>["event"];
    const started = log.entries[1]?.event as LoggedEvent<JobEvent>["event"];
    const projection = await open(await freshUrl(), log);
    await projection.apply(0, log.entries);
    const before = await everything(projection, log);
    const strange = { ...started, name: "polished", id: "event-x" } as unknown as typeof started;
    const missing = { ...started, jobId: "job-2" };
    const stranger = { ...created, service: "bank" };
    for (const event of [created, started, strange, missing, stranger]) log.write(event);
    await projection.apply(2, log.entries.slice(2));
    expect(await projection.status(log.head)).toMatchObject({ lag: 0, ignored: 5 });
    log.entries.splice(2);
    expect(await everything(projection, log)).toEqual(before);
  });

  it("removes a job whose last events were removed from the log before it saw them", async () => {
    const log = new Log();
    log.create("first");
    log.create("second", { blockers: [{ jobId: "first", onBadEnd: "unreachable" }] });
    log.start("first");
    const seen = log.head;
    log.do("first", { command: "complete", token: 1, completedBy: "worker-1" });
    log.do("first", { command: "delete", reason: "retention" });
    const projection = await open(await freshUrl(), log);
    await projection.apply(0, log.entries.slice(0, seen));
    await projection.apply(seen, log.entries.slice(-1));
    expect(await projection.query("job", { id: "first" })).toBeNull();
    const due = await projection.due({ kind: "blocked", service: "shop" }, 10);
    expect(due.map(({ id }) => id)).toEqual(["second"]);
    const [blockers] = await projection.query("blockers", { ids: ["second"] });
    expect(blockers).toMatchObject([{ id: "first", state: "completed" }]);
  });

  it.for([false, true])(
    "goes on over events that cannot be stored (as bytes: %s)",
    async (asBytes) => {
      const log = busyLog(10);
      const projection = await open(await freshUrl(), log);
      const created = log.entries[0]?.event as LoggedEvent<JobEvent>["event"];
      const broken = [
        { ...created, jobId: "broken-1", tags: undefined },
        { ...created, jobId: "broken-2", priority: "high" },
        { ...created, jobId: "broken-3", at: null },
      ] as unknown as LoggedEvent<JobEvent>["event"][];
      const entries = log.entries.map(({ seq, ...rest }) => ({ ...rest, seq: seq * 10 }));
      const mixed = [
        ...entries,
        ...broken.map((event, index) => ({ event, seq: index * 70 + 75 })),
      ].sort((a, b) => a.seq - b.seq);
      const told = asBytes ? packed(mixed) : mixed;
      expect(await projection.apply(0, told)).toBe(mixed.at(-1)?.seq);
      expect(await everything(projection, log)).toEqual(await expected(log));
      expect(await projection.status(mixed.at(-1)?.seq ?? 0)).toMatchObject({ lag: 0, ignored: 3 });
    },
  );

  it("tells which jobs need a ticket when their time comes", async () => {
    const log = new Log();
    const shop = { service: "shop" };
    const lane = { lanes: ["shop/mail/mail@1"] };
    const start = log.clock.now();
    log.create("now");
    log.create("later", { runAt: start + 100 });
    log.create("keyed", { runAt: start + 200, key: key("k1") });
    log.create("elsewhere", { runAt: start + 50, service: "bank" });
    log.create("cancelled", { runAt: start + 50 });
    log.do("cancelled", { command: "cancel" });
    log.start("now");
    const projection = await open(await freshUrl(), log);
    let position = await projection.apply(0, log.entries);
    const goOn = async () => {
      position = await projection.apply(position, log.entries.slice(position));
    };
    const tickets = (scope: TicketScope, at: number, after = firstDue, limit = 10) =>
      projection.dueTickets({ scope, now: start + at, after, limit });
    const due = async (scope: TicketScope, at: number) =>
      (await tickets(scope, at)).map((ticket) => ticket.key.id);
    expect(await projection.nextDueAt(shop, start)).toBe(start + 100);
    expect(await projection.nextDueAt({ service: "bank" }, start)).toBe(start + 50);
    expect(await due(shop, 99)).toEqual([]);
    expect(await due(shop, 200)).toEqual(["later", "keyed"]);
    expect(await due(lane, 200)).toEqual(["later", "keyed"]);
    // They can be gone through in parts.
    const [first] = await tickets(shop, 200, firstDue, 1);
    expect(first?.key.id).toBe("later");
    const [next] = await tickets(shop, 200, first?.place, 1);
    expect(next?.key.id).toBe("keyed");
    expect(await tickets(shop, 200, next?.place)).toEqual([]);
    // A ticket that comes too early does not count, and one in time does.
    const ticket = (id: string) =>
      log.write({ ...log.job(id), ...envelope(log, id), name: "ready", cause: "due" } as never);
    ticket("later");
    await goOn();
    expect(await due(shop, 100)).toEqual(["later"]);
    log.clock.advance(100);
    ticket("later");
    await goOn();
    expect(await due(shop, 100)).toEqual([]);
    expect(await projection.nextDueAt(lane, start + 100)).toBe(start + 200);
    // One that fails needs another ticket when it is to be tried again.
    const error = { message: "no luck", reason: "error" } as const;
    log.do("now", { command: "fail", token: 1, error, retryAt: start + 150 });
    await goOn();
    expect(await tickets(shop, 150)).toMatchObject([
      { key: { service: "shop", type: "mail", id: "now" }, version: 3 },
    ]);
    log.clock.advance(60);
    log.start("now");
    await goOn();
    expect(await due(shop, 150)).toEqual([]);
    expect(await projection.due({ kind: "lapsed", service: "shop" }, 10)).toEqual([]);
  });

  it("obeys where a job starts whose turn it is not", async () => {
    const log = new Log();
    for (const id of ["a", "b", "c"]) log.create(id, { key: key("k1") });
    const projection = await open(await freshUrl(), log);
    const row = async () => {
      const found = await projection.query("key", { hash: key("k1").hash });
      return found && [found.active.map(({ jobId, state }) => `${jobId} ${state}`), found.queued];
    };
    await projection.apply(0, log.entries);
    expect(await row()).toEqual([["a reserved"], ["b", "c"]]);
    log.start("c");
    await projection.apply(3, log.entries.slice(3));
    expect(await row()).toEqual([["c active"], ["a", "b"]]);
    log.complete("c");
    await projection.apply(4, log.entries.slice(4));
    expect(await row()).toEqual([["a reserved"], ["b"]]);
  });

  it("keeps the slot of a job that was ended from outside until its worker says so or its lease lapses", async () => {
    const log = new Log();
    log.create("a", { key: key("k1") });
    log.create("b", { key: key("k1") });
    log.create("c", { key: key("k1") });
    log.start("a", 1_000);
    log.do("a", { command: "cancel", force: true });
    const projection = await open(await freshUrl(), log);
    const holders = async () =>
      (await projection.query("key", { hash: key("k1").hash }))?.active.map(
        ({ jobId, state, leaseUntil }) => [jobId, state, leaseUntil],
      );
    const start = log.clock.now();
    let position = await projection.apply(0, log.entries);
    expect(await holders()).toEqual([["a", "ended", start + 1_000]]);
    await projection.renew([{ jobId: "a", token: 1, until: start + 2_000, at: start }]);
    expect(await holders()).toEqual([["a", "ended", start + 2_000]]);
    log.do("a", { command: "reportStale", token: 1, outcome: "completed" });
    position = await projection.apply(position, log.entries.slice(position));
    expect(await holders()).toEqual([["b", "reserved", undefined]]);
    log.start("b", 1_000);
    log.do("b", { command: "cancel", force: true });
    log.clock.advance(1_000);
    log.create("d");
    await projection.apply(position, log.entries.slice(position));
    expect(await holders()).toEqual([["c", "reserved", undefined]]);
  });

  it("is led by one process at a time, and takes renewals and records from no other", async () => {
    const url = await freshUrl();
    const log = new Log();
    log.create("a");
    log.start("a", 1_000);
    const [one, other] = [await open(url, log), await open(url, log)];
    await one.apply(0, log.entries);
    expect([await one.lead(), await other.lead(), await one.lead()]).toEqual([true, false, true]);
    const at = log.clock.now();
    const record = (version: number) => {
      const id = "worker/shop/one";
      return { id, record: { id, version, body: { version } } };
    };
    const lease = (until: number) => ({ jobId: "a", token: 1, until: at + until, at });
    await one.putRecords([record(3)]);
    await one.renew([lease(2_000)]);
    await other.putRecords([record(2)]);
    await other.renew([lease(1_500), { ...lease(3_000), token: 2 }]);
    const seen = async () => [
      (await other.query("job", { id: "a" }))?.leaseUntil,
      (await other.query("records", { prefix: "worker/" })).map(({ version }) => version),
    ];
    expect(await seen()).toEqual([at + 2_000, [3]]);
    log.clock.advance(leadMs);
    expect([await other.lead(), await one.lead()]).toEqual([true, false]);
    await other.putRecords([{ id: "worker/shop/one", record: null }]);
    await one.putRecords([record(3)]);
    expect(await seen()).toEqual([at + 2_000, []]);
    await other.close();
    expect(await one.lead()).toBe(true);
  });

  it("tells those who wait when another process has come far enough", async () => {
    const url = await freshUrl();
    const log = busyLog(5);
    const open = async () => {
      const projection = await openProjection(url, { ...owner, clock: systemClock });
      onTestFinished(() => projection.close());
      return projection;
    };
    const [one, other] = [await open(), await open()];
    const stop = new AbortController();
    const never = other.reached(log.head + 1, stop.signal);
    const reached = other.reached(log.head, stop.signal);
    await one.apply(0, log.entries);
    expect(await reached).toBe(true);
    expect(await other.position()).toBe(log.head);
    stop.abort();
    expect(await never).toBe(false);
  });

  it("waits a minute for what continues a chain, before the end of that counts as removed", async () => {
    const log = new Log();
    log.create("first", { chainId: "first" });
    const chain = { jobId: "first", onBadEnd: "unreachable", chain: true } as const;
    log.create("waits", { blockers: [chain] });
    log.start("first");
    const continuation = { jobId: "second", type: "mail" };
    const outcome = { token: 1, completedBy: "worker-1", continuation } as const;
    log.do("first", { command: "complete", actor: "worker:worker-1", ...outcome });
    const projection = await open(await freshUrl(), log);
    await projection.apply(0, log.entries);
    const told = async () => {
      const [[row] = []] = await projection.query("blockers", { ids: ["waits"] });
      const due = await projection.due({ kind: "blocked", service: "shop" }, 10);
      return [row?.state, due.length];
    };
    expect(await told()).toEqual(["pending", 0]);
    log.clock.advance(60_000);
    expect(await told()).toEqual(["cancelled", 1]);
    log.create("second", { chainId: "first" });
    await projection.apply(4, log.entries.slice(4));
    expect(await told()).toEqual(["pending", 0]);
  });

  it("goes on over text that a database cannot hold", async () => {
    const log = new Log();
    log.create("a", { key: key("before\0after"), tags: ["x\0y"] });
    log.start("a");
    log.complete("a");
    const projection = await open(await freshUrl(), log);
    await projection.apply(0, log.entries);
    const row = await projection.query("job", { id: "a" });
    expect(row).toMatchObject({ state: "completed", version: 3 });
    expect(await projection.status(log.head)).toMatchObject({ lag: 0, ignored: 0 });
  });
});

/** What an event says of the job that it is about. */
function envelope(log: Log, id: string) {
  const job = log.job(id);
  const said = { previousState: job.state, at: log.clock.now(), actor: "keeper:one" };
  return { ...said, id: `ticket-${log.head}`, jobId: id };
}
