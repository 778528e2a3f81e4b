// Creates of one batch are one statement on PostgreSQL, which is sent once what they have in common. Whatever they share
// or differ in, each is stored as it was decided.
import { connect, defineJob, defineService, type Engine, openEngine } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import type { EventOf } from "#millrace/core/event.js";
import { execute, freshSchema } from "../support/postgres.js";

type Creation = EventOf<"created">;

const at = 1_000;
const traceId = "0af7651916cd43dd8448eb211c80319c";
const traceparent = `00-${traceId}-b7ad6b7169203331-01`;

function creation(id: string, differs: Partial<Creation> = {}): Creation {
  return {
    name: "created",
    ...{ jobId: id, service: "shop", type: "send", id: `e-${id}`, actor: "client:one", at },
    ...{ version: 1, run: 1, tries: 0, state: "pending", previousState: null },
    context: { requestId: id, traceId, traceparent },
    ...{ typeVersion: 1, queue: "send", payload: { to: id }, maxTries: 5, priority: 0, runAt: at },
    ...{ deadLetter: true, tags: [], blockers: [] },
    ...differs,
  };
}

async function openStore() {
  const { url, schema, storeUrl } = await freshSchema();
  const engine = await openEngine(storeUrl);
  onTestFinished(() => engine.close());
  return { url, schema, engine };
}

function append(engine: Engine, events: readonly Creation[], isFresh = false) {
  return engine.append(
    events.map((event) => ({
      job: { service: event.service, type: event.type, id: event.jobId },
      expect: { version: 0 },
      event,
      ...(isFresh && { isFresh }),
    })),
  );
}

async function eventsOf(engine: Engine, events: readonly Creation[]) {
  const loaded = await engine.load(
    events.map(({ jobId }) => jobId),
    { history: true },
  );
  return loaded.map((job) => job?.events?.[0]);
}

/** What one create of a batch may have unlike the others. */
const differences: readonly [string, Partial<Creation>][] = [
  ["nothing", {}],
  ["its lane", { type: "print", queue: "paper", typeVersion: 2 }],
  ["its priority", { priority: 7 }],
  ["its deadline", { deadline: 90_000_000_000_000 }],
  ["its tries", { maxTries: 2 }],
  ["its actor", { actor: "client:two" }],
  ["when it may run", { runAt: at - 5 }],
  ["when it was created", { at: at + 9, runAt: at + 9 }],
];

describe.each([
  ["chosen", false],
  ["fresh", true],
])("a batch of creates with %s ids", (_, isFresh) => {
  it.each(differences)("stores one of which differs: %s", async (_, differs) => {
    const { engine } = await openStore();
    const events = [creation("a"), creation("b", differs), creation("c")];
    const outcomes = await append(engine, events, isFresh);
    expect(outcomes).toEqual(events.map(() => ({ outcome: "appended" })));
    expect(await eventsOf(engine, events)).toEqual(events);
  });

  it.each(differences)("lines up one of which differs: %s", async (_, differs) => {
    const { engine, url, schema } = await openStore();
    await append(engine, [creation("a"), creation("b", differs), creation("c")], isFresh);
    const { priority = 0, runAt = at, deadline = null } = differs;
    const line = `SELECT r.rank, r.run_at::int, r.deadline::text, r.lane = j.lane AND r.n = j.n AS alike
      FROM ${schema}.ready r JOIN ${schema}.jobs j ON j.id = r.id WHERE r.id = 'b'`;
    const text = deadline === null ? null : String(deadline);
    expect(await execute(url, line)).toEqual([
      { rank: 0 - priority, run_at: runAt, deadline: text, alike: true },
    ]);
  });

  it("tells which ids are taken, and stores the others", async () => {
    const { engine } = await openStore();
    await append(engine, [creation("b")], isFresh);
    const events = [creation("a"), creation("b"), creation("c")];
    const outcomes = await append(engine, events, isFresh);
    expect(outcomes.map(({ outcome }) => outcome)).toEqual(["appended", "exists", "appended"]);
    expect(await eventsOf(engine, events)).toEqual(events);
  });
});

it("claims stay on the connection that has planned them, whatever others do meanwhile", async () => {
  const { engine, url, schema } = await openStore();
  const lane = { lane: "shop/send/send@1", service: "shop", queue: "send", type: "send" };
  const ask = { worker: "w", lanes: [{ ...lane, free: 1, leaseMs: 1_000 }], limit: 1 };
  const claimers = new Set<unknown>();
  const claimer = `SELECT pid FROM pg_stat_activity
    WHERE application_name = 'millrace' AND query LIKE 'WITH outlook%"${schema}"%'`;
  // The first claim that finds nothing goes on in another way, so that it is not looked at.
  for (let round = 0; round < 3; round++) await engine.claim(ask);
  for (let round = 0; round < 5; round++) {
    await Promise.all(Array.from({ length: 4 }, () => engine.records(["any"])));
    await engine.claim(ask);
    const found = (await execute(url, claimer)) as { readonly pid: number }[];
    for (const { pid } of found) claimers.add(pid);
  }
  expect(claimers.size).toBe(1);
});

describe("an id", () => {
  /** A job that is deleted while it runs: its worker has not let go of the id. */
  async function heldId() {
    const { storeUrl } = await freshSchema();
    const shop = defineService("shop", {
      send: defineJob({ payload: z.object({}), keyConcurrency: { key: ["send"], maxActive: 9 } }),
      print: defineJob({ payload: z.object({}) }),
    });
    const service = await connect(shop, { url: storeUrl });
    onTestFinished(() => service.stop());
    const engine = await openEngine(storeUrl);
    onTestFinished(() => engine.close());
    const { id } = await service.jobs.send.create({}).orThrow();
    const lane = { lane: "shop/send/send@1", service: "shop", queue: "send", type: "send" };
    const lanes = [{ ...lane, free: 1, leaseMs: 60_000 }];
    expect((await engine.claim({ worker: "w", lanes, limit: 1 })).jobs).toHaveLength(1);
    await service.ref(id).delete({ force: true }).orThrow();
    return { id, jobs: service.jobs };
  }

  it("that was chosen is refused while the worker of its deleted job has not let go", async () => {
    const { id, jobs } = await heldId();
    expect(await jobs.print.create({}, { id })).toMatchObject({ error: { _tag: "JobExists" } });
    const many = await jobs.print.createMany([{ payload: {} }, { payload: {}, id }]).orThrow();
    expect(many.map((result) => result.isOk())).toEqual([true, false]);
  });
});

describe("one create after the other", () => {
  it("stores text of any length in any script, and numbers and nothing as they are", async () => {
    const { engine } = await openStore();
    const events = ["", "ÄÖ€", "😀".repeat(5_000), "a".repeat(200_000)].map((to, place) =>
      creation(`job-${place}`, {
        payload: { to },
        priority: 3 - place,
        ...(place > 1 && { deadline: 90_000_000_000_000 + place }),
      }),
    );
    for (const event of events)
      expect(await append(engine, [event], true)).toEqual([{ outcome: "appended" }]);
    expect(await eventsOf(engine, events)).toEqual(events);
  });

  it.each([
    ["chosen", false],
    ["fresh", true],
  ])("tells of each whether it was stored, with %s ids", async (_, isFresh) => {
    const { engine } = await openStore();
    const outcomes: unknown[] = [];
    for (const id of ["a", "b", "a", "c"])
      outcomes.push(...(await append(engine, [creation(id)], isFresh)));
    expect(outcomes).toEqual([
      { outcome: "appended" },
      { outcome: "appended" },
      { outcome: "exists" },
      { outcome: "appended" },
    ]);
  });

  it("leaves the connections to others", async () => {
    const { storeUrl } = await freshSchema();
    const engine = await openEngine(`${storeUrl}&poolMax=2`);
    onTestFinished(() => engine.close());
    for (const id of ["a", "b", "c"]) {
      await append(engine, [creation(id)]);
      const asked = Array.from({ length: 3 }, () => engine.records(["any"]));
      expect(await Promise.all(asked)).toEqual([[null], [null], [null]]);
    }
  });

  it("goes on after one that cannot be stored", async () => {
    const { engine } = await openStore();
    await append(engine, [creation("a")]);
    const tooLarge = creation("b", { maxTries: 2 ** 40 });
    expect(await append(engine, [tooLarge])).toMatchObject([{ outcome: "faulted" }]);
    expect(await append(engine, [creation("c")])).toEqual([{ outcome: "appended" }]);
  });
});
