// What goes wrong with a PostgreSQL store outside Millrace: each fault is a typed error with a sentence
// that names the remedy and no secret, and nothing is half stored.

import { connect, type Engine, type FeedItem, openEngine, type StoreError } from "millrace";
import { Client } from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { openOutbox } from "#millrace/engine/open.js";
import { startChild } from "../crash/children.js";
import { contract, noWork } from "../crash/contract.js";
import type { OpenerReport } from "../crash/opener.js";
import { execute, freshDatabase, freshSchema, ownPostgres } from "../support/postgres.js";
import { postgresWay } from "../support/postgres-proxy.js";
import { gate } from "../worker/workshop.js";

/** A password that no message may hold. */
const secret = "not-to-be-told";

describe("a server that lets nobody in", () => {
  it("is told apart when the password is wrong", async () => {
    const { storeUrl } = await freshSchema();
    const fault = await faultOfOpening(changed(storeUrl, { password: secret }));
    expect(fault._tag).toBe("StoreUnavailable");
    expect(fault.message).toMatch(/refused the user or the password.*Check both in the URL/);
  });

  it("is told apart when the database is missing", async () => {
    const { storeUrl } = await freshSchema();
    const fault = await faultOfOpening(changed(storeUrl, { pathname: "/nowhere" }));
    expect(fault._tag).toBe("StoreUnavailable");
    expect(fault.message).toMatch(/does not exist. Create it, or name another/);
  });

  it("is told apart when it is down", async () => {
    const url = `postgres://postgres:${secret}@127.0.0.1:1/postgres`;
    const fault = await faultOfOpening(url);
    expect(fault._tag).toBe("StoreUnavailable");
    expect(fault.message).toMatch(/cannot be reached.*Check that the server runs/);
  });
});

describe("a URL or a database that cannot be used", () => {
  it("is told apart when the server wants a password and the URL has none", async () => {
    const { storeUrl } = await freshSchema();
    const fault = await faultOfOpening(changed(storeUrl, { password: "" }));
    expect(fault._tag).toBe("StoreUnavailable");
    expect(fault.message).toMatch(/asks for a password, and the URL names none\. Name it there/);
  });

  it("holds no connection to a server that waits for a password", { timeout: 20_000 }, async () => {
    const { storeUrl } = await freshSchema();
    const way = await postgresWay(storeUrl);
    await faultOfOpening(changed(way.url, { password: "" }));
    // The server itself gives up after a minute.
    await expect(way.isLeft()).resolves.toBeUndefined();
  });

  it("is told apart when the name of the schema is the server's own", async () => {
    const { url } = await freshSchema();
    const fault = await faultOfOpening(`${url}?schema=pg_jobs`);
    expect(fault._tag).toBe("StoreUnavailable");
    expect(fault.message).toMatch(/"pg_jobs" .* cannot be used; .* Choose another/);
  });

  it("is told apart when the database takes no connections", async () => {
    const { url } = await freshSchema();
    const closed = await freshDatabase();
    const name = new URL(closed).pathname.slice(1);
    await execute(url, `ALTER DATABASE ${name} ALLOW_CONNECTIONS false`);
    const fault = await faultOfOpening(closed);
    expect(fault._tag).toBe("StoreUnavailable");
    const [remedy = ""] = fault.message.match(/ALTER DATABASE [^;]+;/) ?? [];
    await execute(url, remedy);
    await (await connect(contract, { url: closed })).stop();
  });

  it.each([
    [
      "LATIN1",
      /cannot hold all characters \(its encoding is LATIN1\).* ENCODING 'UTF8' TEMPLATE template0;/,
    ],
    ["SQL_ASCII", null],
  ])("is told apart when it cannot hold all characters: %s", async (encoding, refused) => {
    const options = `ENCODING '${encoding}' LOCALE 'C' TEMPLATE template0`;
    const storeUrl = await freshDatabase(options);
    if (refused !== null) {
      const fault = await faultOfOpening(storeUrl);
      expect(fault._tag).toBe("StoreUnavailable");
      expect(fault.message).toMatch(refused);
      return;
    }
    const service = await connect(contract, { url: storeUrl });
    onTestFinished(() => service.stop());
    const payload = { ...noWork, key: "schön 😀" };
    const created = await service.jobs.quick.create(payload, { tags: ["😀"] }).orThrow();
    const found = await service.reads.job(created.id).orThrow();
    expect(found).toMatchObject({ payload, tags: ["😀"] });
  });
});

describe("a schema that somebody else uses", () => {
  it.each([
    ["a table that Millrace makes, too", "jobs (id int)"],
    ["a table of the name by which Millrace knows its own", "store (id int)"],
    ["one that looks alike", "store (id text, version int)"],
    ["one of a projection", "projection (id int)"],
  ])("is refused with a remedy and left as it is: %s", async (_, table) => {
    const { url, schema, storeUrl } = await freshSchema();
    const [name] = table.split(" ");
    await execute(url, `CREATE SCHEMA ${schema}`, `CREATE TABLE ${schema}.${table}`);
    if (table.includes("version"))
      await execute(url, `INSERT INTO ${schema}.store VALUES ('Berlin', 3), ('Bonn', 99)`);
    const fault = await faultOfOpening(storeUrl);
    expect(fault._tag).toBe("StoreCorrupt");
    expect(fault.message).toMatch(/is used by something else than Millrace.* with \?schema= /);
    expect(fault.message).toContain(schema);
    expect(fault.message).toContain(`"${name}"`);
    const left = `SELECT tablename FROM pg_tables WHERE schemaname = '${schema}'`;
    expect(await execute(url, left)).toEqual([{ tablename: name }]);
  });

  it("is refused by an outbox, too", async () => {
    const { url, schema, storeUrl } = await freshSchema();
    await execute(url, `CREATE SCHEMA ${schema}`, `CREATE TABLE ${schema}.outbox (id int)`);
    const outbox = await openOutbox(storeUrl);
    onTestFinished(() => outbox.close());
    await expect(outbox.provision()).rejects.toThrow(/used by something else .* with \?schema= /);
  });
});

describe("a schema that is not for this Millrace", () => {
  it("is refused when a newer version has written it, and left as it is", async () => {
    const { url, schema, storeUrl } = await freshSchema();
    await (await connect(contract, { url: storeUrl })).stop();
    await execute(url, `UPDATE ${schema}.store SET version = 99`);
    const fault = await faultOfOpening(storeUrl);
    expect(fault).toMatchObject({ _tag: "StoreTooNew", found: 99, known: expect.any(Number) });
    expect(fault.message).toMatch(/newer Millrace .*Upgrade/);
    expect(await execute(url, `SELECT version FROM ${schema}.store`)).toEqual([{ version: 99 }]);
  });
});

describe("what PostgreSQL cannot hold", () => {
  it("is stored all the same when it is a NUL character in a payload", async () => {
    const service = await openService();
    const payload = { ...noWork, key: "a\u0000b" };
    const created = await service.jobs.quick.create(payload).orThrow();
    expect(await service.reads.job(created.id).orThrow()).toMatchObject({ payload });
  });

  it("is stored all the same when it is a NUL character in a key, which stays another than its neighbours", async () => {
    const service = await openService();
    const keys = ["a b", "a\u0000b", "a\ufffdb"];
    const refs = await Promise.all(
      keys.map((key) => service.jobs.failsStale.create({ ...noWork, key }).orThrow()),
    );
    const jobs = await Promise.all(refs.map(({ id }) => service.reads.job(id).orThrow()));
    expect(jobs.map(({ payload }) => (payload as { key: string }).key)).toEqual(keys);
    expect(new Set(jobs.map(({ key }) => key?.hash)).size).toBe(3);
  });

  it("is refused with a remedy when it is a NUL character in a name", async () => {
    const service = await openService();
    const refused = await service.jobs.quick.create(noWork, { tags: ["a\u0000b"] });
    expect(refused.isErr() && refused.error.message).toMatch(/use 1 to 128 printable characters/);
  });

  it("is refused before it is sent when it is larger than the limit", async () => {
    const service = await openService();
    const refused = await service.jobs.quick.create({ ...noWork, key: "x".repeat(300 * 1024) });
    expect(refused.isErr() && refused.error.message).toMatch(/256 KiB|262,?144/);
    expect(await service.reads.counts().orThrow()).toEqual([]);
  });
});

describe("many processes on one database", () => {
  it("can all provision it at the same moment", { timeout: 120_000 }, async () => {
    const url = await freshDatabase();
    const openers = Array.from({ length: 10 }, () => startChild("./opener.ts", [url, "3", "1"]));
    await Promise.all(openers.map(({ said }) => said("ready")));
    for (const { tell } of openers) tell("open");
    const endings = await Promise.all(openers.map(({ ended }) => ended));
    expect(endings.map(({ errors }) => errors).join("")).toBe("");
    const reports = endings.map(({ lines }) => JSON.parse(lines[1] ?? "null") as OpenerReport);
    expect(reports.map(({ fault }) => fault)).toEqual(Array(10).fill(undefined));
    const service = await connect(contract, { url });
    onTestFinished(() => service.stop());
    const loaded = await service.engine.load(reports.flatMap(({ created }) => created));
    expect(loaded.filter((job) => job !== null)).toHaveLength(30);
  });
});

describe("a server that goes away and returns", () => {
  it("is waited for: what was acknowledged is there, what runs goes on, and new jobs run", {
    timeout: 60_000,
  }, async () => {
    const server = await ownPostgres();
    const service = await connect(contract, { url: server.url });
    onTestFinished(() => service.stop());
    const running = gate();
    const finish = gate();
    service.jobs.quick.handle(async ({ payload }) => {
      if (payload.key !== "long") return {};
      running.open();
      await finish.opened;
      return { isLong: true };
    });
    await service.start();
    const long = await service.jobs.quick.create({ ...noWork, key: "long" }).orThrow();
    await running.opened;

    await server.kill("SIGKILL");
    const refused = await service.jobs.quick.create(noWork);
    expect(refused.isErr() && refused.error).toMatchObject({
      _tag: "StoreUnavailable",
      message: expect.stringMatching(/cannot be reached|not available/),
    });
    await server.restart();

    // The lease still stands, so that the handler's outcome counts.
    finish.open();
    expect(await long.wait().orThrow()).toEqual({ isLong: true });
    const next = await service.jobs.quick.create(noWork).orThrow();
    await next.wait().orThrow();
    expect((await long.events().orThrow()).map(({ name }) => name)).toEqual([
      "created",
      "started",
      "completed",
    ]);
  });
});

describe("a server that forgets what was rolled back", () => {
  it("gives its numbers to others when it returns, and the feed shows those all the same", async () => {
    const server = await ownPostgres();
    // A rollback reaches the disk when the server likes; here that takes longer than the server lives.
    await execute(
      server.url,
      "ALTER SYSTEM SET wal_writer_delay = '10s'",
      "SELECT pg_reload_conf()",
    );
    const service = await connect(contract, { url: server.url });
    onTestFinished(() => service.stop());
    await service.jobs.quick.create(noWork, { id: "a" }).orThrow();
    const reader = readFeed(service.engine, null);
    const first = await reader.next();
    const rolledBack = Array(100).fill(["BEGIN", "CREATE TABLE gone (id int)", "ROLLBACK"]).flat();
    await execute(server.url, ...rolledBack);
    const head = await service.engine.head();
    await server.kill("SIGKILL");
    await server.restart();

    await service.jobs.quick.create(noWork, { id: "b" }).orThrow();
    // A new server begins below 1,000, so that the numbers grow by a digit here.
    await execute(server.url, ...Array(500).fill("SELECT pg_current_xact_id()"));
    await service.jobs.quick.create(noWork, { id: "c" }).orThrow();
    for (const cursor of [first.cursor, head]) {
      const { next } = readFeed(service.engine, cursor);
      expect([(await next()).event.jobId, (await next()).event.jobId]).toEqual(["b", "c"]);
    }
  });
});

describe("a transaction that somebody leaves open", () => {
  it("does not stop jobs from being created, claimed and completed", async () => {
    const service = await openService();
    const client = await openTransaction("BEGIN ISOLATION LEVEL REPEATABLE READ");
    await client.query("SELECT pg_current_xact_id()");
    service.jobs.quick.handle(async () => ({}));
    await service.start();
    const batch = Array(1_000).fill({ payload: noWork });
    const created = await service.jobs.quick.createMany(batch).orThrow();
    await Promise.all(created.map((job) => job.unwrap().wait().orThrow()));
  });

  it("shows in the feed when it commits, also to those who have read what came after it", async () => {
    const service = await openService();
    const client = await openTransaction("BEGIN");
    await service.jobs.quick.create(noWork, { id: "late", tx: client }).orThrow();
    for (const id of ["a", "b", "c"]) await service.jobs.quick.create(noWork, { id }).orThrow();
    const reader = readFeed(service.engine, null);
    const early = [await reader.next(), await reader.next(), await reader.next()];
    expect(early.map(({ event }) => event.jobId)).toEqual(["a", "b", "c"]);

    await client.query("COMMIT");
    expect((await reader.next()).event.jobId).toBe("late");
    const returning = readFeed(service.engine, early[2]?.cursor ?? null);
    expect((await returning.next()).event.jobId).toBe("late");
    const halfway = readFeed(service.engine, early[1]?.cursor ?? null);
    const rest = [await halfway.next(), await halfway.next()];
    expect(rest.map(({ event }) => event.jobId).sort()).toEqual(["c", "late"]);
    await service.jobs.quick.create(noWork, { id: "d" }).orThrow();
    for (const each of [reader, returning, halfway]) {
      expect((await each.next()).event.jobId).toBe("d");
    }
  });
});

/** A connection to the shared server on which a transaction has begun. */
async function openTransaction(begin: string): Promise<Client> {
  const { url } = await freshSchema();
  const client = new Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  await client.query(begin);
  return client;
}

/** Reads the feed one event at a time. */
function readFeed(engine: Engine, from: string | null): { next(): Promise<FeedItem> } {
  const stop = new AbortController();
  onTestFinished(() => stop.abort());
  const items = engine.tail(from, stop.signal)[Symbol.asyncIterator]();
  return {
    async next() {
      const { value, done } = await items.next();
      if (done) throw new Error("The feed ended.");
      return value;
    },
  };
}

async function openService() {
  const { storeUrl } = await freshSchema();
  const service = await connect(contract, { url: storeUrl });
  onTestFinished(() => service.stop());
  return service;
}

function faultOfOpening(url: string): Promise<StoreError> {
  return faultOf(async () => {
    const engine = await openEngine(url);
    onTestFinished(() => engine.close());
    await engine.provision();
  });
}

async function faultOf(work: () => Promise<void>): Promise<StoreError> {
  try {
    await work();
  } catch (error) {
    const fault = error as StoreError;
    expect(fault.message).not.toMatch(/\n|\bat .*:\d+:\d+/);
    expect(JSON.stringify([fault.message, fault.url])).not.toContain(secret);
    return fault;
  }
  throw new Error("Nothing went wrong.");
}

function changed(url: string, part: { password?: string; pathname?: string }) {
  return Object.assign(new URL(url), part).href;
}
