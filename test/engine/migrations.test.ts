// Stores that an earlier version has written are brought to the newest schema, with everything that they hold.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "better-sqlite3";
import { type Engine, openEngine } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { migrations as postgresMigrations } from "#millrace/engine/postgres/schema.js";
import { applicationId, migrations as sqliteMigrations } from "#millrace/engine/sqlite/schema.js";
import { execute, freshSchema } from "../support/postgres.js";

/** A store of the first schema, with a job that waits and one that is dead. Both dialects understand this. */
const firstStore = `
  INSERT INTO lanes (service, queue, type, type_version) VALUES ('shop', 'mail', 'mail', 1);
  INSERT INTO events (seq, job, at, version, run, tries, name, state, previous, id, actor, body, context) VALUES
    (1, 1, 1000, 1, 1, 0, 'created', 'pending', NULL, 'e1', 'client:a',
      '{"typeVersion":1,"queue":"mail","payload":{},"maxTries":1,"priority":0,"runAt":1000,"deadLetter":true,"tags":[],"blockers":[]}',
      '["r","00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"]'),
    (2, 2, 1000, 1, 1, 0, 'created', 'pending', NULL, 'e2', 'client:a',
      '{"typeVersion":1,"queue":"mail","payload":{},"maxTries":1,"priority":0,"runAt":1000,"deadLetter":true,"tags":[],"blockers":[]}',
      '["r","00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"]'),
    (3, 2, 2000, 2, 1, 1, 'started', 'active', 'pending', 'e3', 'worker:w', '{"token":1,"worker":"w"}', NULL),
    (4, 2, 3000, 3, 1, 1, 'dead', 'dead', 'active', 'e4', 'worker:w', '{"token":1,"error":{"message":"no","reason":"error"}}', NULL);
  INSERT INTO jobs (n, id, lane, priority, run_at, created_at, max_tries, state, version, run, tries, token, started_at,
    ended_at, updated_at, detail) VALUES
    (1, 'waits', 1, 0, 1000, 1000, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (2, 'died', 1, 0, 1000, 1000, 1, 'dead', 3, 1, 1, 1, 2000, 3000, 3000, 'no');
  INSERT INTO ready (n, id, lane, rank, run_at, state, version, run, tries, token, updated_at, noted)
    VALUES (1, 'waits', 1, 0, 1000, 'pending', 1, 1, 0, 0, 1000, 0);
`;

async function expectBothJobs(engine: Engine): Promise<void> {
  onTestFinished(() => engine.close());
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
    ["dead", 1],
    ["pending", 1],
  ]);
  const retention = { kind: "retention", service: "shop", type: "mail", state: "dead" } as const;
  const due = await engine.due({ ...retention, endedBefore: 3001 }, 10);
  expect(due).toMatchObject([{ id: "died", version: 3, token: 1 }]);
}

describe("a store of the first schema", () => {
  it("is brought to the newest on SQLite", async () => {
    const folder = mkdtempSync(join(tmpdir(), "millrace-migrations-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const path = join(folder, "jobs.db");
    const database = new Database(path);
    database.exec(sqliteMigrations[0] ?? "");
    database.exec(firstStore);
    database.pragma(`application_id = ${applicationId}`);
    database.pragma("user_version = 1");
    database.close();
    await expectBothJobs(await openEngine(`file:${path}`));
  });

  it("is brought to the newest on PostgreSQL", async () => {
    const { url, schema, storeUrl } = await freshSchema();
    await execute(
      url,
      `CREATE SCHEMA ${schema}; SET search_path TO ${schema};
        CREATE TABLE store (id text NOT NULL DEFAULT gen_random_uuid()::text, version int NOT NULL);
        INSERT INTO store (version) VALUES (1); ${postgresMigrations[0]} ${firstStore}
        SELECT setval('events_seq', 4)`,
    );
    await expectBothJobs(await openEngine(storeUrl));
  });
});
