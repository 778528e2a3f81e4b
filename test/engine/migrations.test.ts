// Stores that an earlier version has written are brought to the newest schema, with everything that they hold.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "better-sqlite3";
import { type Engine, openEngine } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { laneOf } from "#millrace/core/order.js";
import { migrations as postgresMigrations } from "#millrace/engine/postgres/schema.js";
import { applicationId, migrations as sqliteMigrations } from "#millrace/engine/sqlite/schema.js";
import { execute, freshSchema } from "../support/postgres.js";

const createdBody = `'{"typeVersion":1,"queue":"mail","payload":{"to":"a"},"maxTries":1,"priority":0,"runAt":1000,"deadLetter":true,"tags":[],"blockers":[]}'`;
const context = `'["r","00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"]'`;
const deletedBody = `'{"jobId":"gone","service":"shop","type":"mail","context":{"requestId":"r","traceId":"0123456789abcdef0123456789abcdef","traceparent":"00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"}}'`;

/** A store of the first schema, with a job that waits. Both dialects understand this. */
const firstStore = `
  INSERT INTO lanes (service, queue, type, type_version) VALUES ('shop', 'mail', 'mail', 1);
  INSERT INTO events (seq, job, at, version, run, tries, name, state, previous, id, actor, body, context) VALUES
    (1, 1, 1000, 1, 1, 0, 'created', 'pending', NULL, 'e1', 'client:a', ${createdBody}, ${context});
  INSERT INTO jobs (n, id, lane, priority, run_at, created_at, max_tries) VALUES (1, 'waits', 1, 0, 1000, 1000, 1);
  INSERT INTO ready (n, id, lane, rank, run_at, state, version, run, tries, token, updated_at, noted)
    VALUES (1, 'waits', 1, 0, 1000, 'pending', 1, 1, 0, 0, 1000, 0);
`;

/** What came into it later: a job that is dead, one that began to run between its events, and the end of one that was deleted. */
const laterStore = `
  INSERT INTO events (seq, job, at, version, run, tries, name, state, previous, id, actor, body, context) VALUES
    (2, 2, 1000, 1, 1, 0, 'created', 'pending', NULL, 'e2', 'client:a', ${createdBody}, ${context}),
    (3, 2, 2000, 2, 1, 1, 'started', 'active', 'pending', 'e3', 'worker:w', '{"token":1,"worker":"w"}', NULL),
    (4, 4, 2500, 1, 1, 0, 'created', 'blocked', NULL, 'e4', 'client:b', ${createdBody}, ${context}),
    (5, 2, 3000, 3, 1, 1, 'dead', 'dead', 'active', 'e5', 'worker:w', '{"token":1,"error":{"message":"no","reason":"error"}}', NULL),
    (7, 6, 4000, 2, 1, 0, 'deleted', 'deleted', 'pending', 'e7', 'client:a', ${deletedBody}, NULL);
  INSERT INTO jobs (n, id, lane, priority, run_at, created_at, max_tries, state, version, run, tries, token, started_at,
    ended_at, updated_at, detail) VALUES
    (2, 'died', 1, 0, 1000, 1000, 1, 'dead', 3, 1, 1, 1, 2000, 3000, 3000, 'no'),
    (4, 'blocked', 1, 0, 2500, 2500, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
  INSERT INTO waiting (n, id, lane, rank, run_at, state, version, run, tries, token, updated_at, noted, cause)
    VALUES (4, 'blocked', 1, 0, 2500, 'blocked', 1, 1, 0, 0, 2500, 0, 'blocked');
`;

async function expectAllJobs(engine: Engine): Promise<void> {
  const [waits, died] = await Promise.all(
    ["waits", "died"].map((id) => engine.query("job", { id })),
  );
  expect(waits).toMatchObject({ state: "pending", version: 1 });
  expect(died).toMatchObject({
    state: "dead",
    version: 3,
    tries: 1,
    startedAt: 2000,
    endedAt: 3000,
  });
  expect(died).toMatchObject({ updatedAt: 3000, detail: "no" });
  const counts = await engine.query("counts", {});
  expect(counts.map(({ state, count }) => [state, count])).toEqual([
    ["blocked", 1],
    ["dead", 1],
    ["pending", 1],
  ]);
  const retention = { kind: "retention", service: "shop", type: "mail", state: "dead" } as const;
  const due = await engine.due({ ...retention, endedBefore: 3001 }, 10);
  expect(due).toMatchObject([{ id: "died", version: 3, token: 1 }]);
}

/** The ids of the events after a cursor, in the order of the feed. */
async function feedAfter(engine: Engine, cursor: string | null): Promise<readonly string[]> {
  const ids: string[] = [];
  const { signal } = new AbortController();
  for await (const { event } of engine.tail(cursor, signal, "stored")) ids.push(event.id);
  return ids;
}

/** The log is what it was, for whoever begins to read it and for whoever goes on after a cursor from before. */
async function expectWholeLog(engine: Engine, cursorAfterFirst: string): Promise<void> {
  expect(await feedAfter(engine, null)).toEqual(["e1", "e2", "e3", "e4", "e5", "e7"]);
  expect(await feedAfter(engine, cursorAfterFirst)).toEqual(["e2", "e3", "e4", "e5", "e7"]);
  const loaded = await engine.load(["waits", "died", "blocked", "gone"], { history: true });
  expect(loaded.map((job) => job?.events?.map(({ id }) => id) ?? null)).toEqual([
    ["e1"],
    ["e2", "e3", "e5"],
    ["e4"],
    null,
  ]);
  const [, , blocked] = loaded;
  expect(blocked?.events?.[0]).toEqual({
    ...JSON.parse(createdBody.slice(1, -1)),
    name: "created",
    jobId: "blocked",
    service: "shop",
    type: "mail",
    version: 1,
    run: 1,
    tries: 0,
    state: "blocked",
    previousState: null,
    at: 2500,
    id: "e4",
    actor: "client:b",
    context: {
      requestId: "r",
      traceId: "0123456789abcdef0123456789abcdef",
      traceparent: "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01",
    },
  });
}

/** What comes now comes after all that was there, and the jobs from before run. */
async function expectToGoOn(engine: Engine): Promise<void> {
  const head = await engine.head();
  const names = { service: "shop", queue: "mail", type: "mail" };
  const lane = { ...names, lane: laneOf({ ...names, typeVersion: 1 }), free: 5, leaseMs: 60_000 };
  const { jobs } = await engine.claim({ worker: "w", lanes: [lane], limit: 5 });
  expect(jobs.map(({ job }) => [job.id, job.payload])).toEqual([["waits", { to: "a" }]]);
  const [started] = (await engine.load(["waits"], { history: true })) ?? [];
  expect(await feedAfter(engine, head)).toEqual([started?.events?.at(-1)?.id]);
}

async function expectStore(engine: Engine, cursorAfterFirst: string): Promise<void> {
  onTestFinished(() => engine.close());
  await expectAllJobs(engine);
  await expectWholeLog(engine, cursorAfterFirst);
  await expectToGoOn(engine);
}

describe("a store of the first schema", () => {
  it("is brought to the newest on SQLite", async () => {
    const folder = mkdtempSync(join(tmpdir(), "millrace-migrations-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const path = join(folder, "jobs.db");
    const database = new Database(path);
    database.exec(sqliteMigrations[0] ?? "");
    database.exec(firstStore + laterStore);
    database.pragma(`application_id = ${applicationId}`);
    database.pragma("user_version = 1");
    database.close();
    await expectStore(await openEngine(`file:${path}`), "1");
  });

  it("is brought to the newest on PostgreSQL", async () => {
    const { url, schema, storeUrl } = await freshSchema();
    const [first] = await execute(
      url,
      `CREATE SCHEMA ${schema}; SET search_path TO ${schema};
        CREATE TABLE store (id text NOT NULL DEFAULT gen_random_uuid()::text, version int NOT NULL);
        INSERT INTO store (version) VALUES (1); ${postgresMigrations[0]} ${firstStore}`,
      "SELECT pg_current_snapshot()::text AS snapshot",
    );
    await execute(
      url,
      `SET search_path TO ${schema}; ${laterStore} SELECT setval('events_seq', 7)`,
    );
    const { snapshot } = first as { readonly snapshot: string };
    await expectStore(await openEngine(storeUrl), snapshot);
  });
});
