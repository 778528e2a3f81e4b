// A store that is dumped and restored into a younger server, whose transactions have lower numbers: the feed shows everything in its
// order, whoever keeps a place in the store goes on from there, and cursors from before are refused.
import { connect, type Engine, type FeedItem } from "millrace";
import { Client } from "pg";
import { expect, it, onTestFinished } from "vitest";
import { recordId } from "#millrace/engine/record.js";
import { contract, noWork } from "../crash/contract.js";
import { execute, ownPostgres } from "../support/postgres.js";

/** Uses up numbers of transactions, as a server that has been in use for long has. */
const useNumbers = `DO $$ BEGIN
    CREATE TEMPORARY TABLE used (n int) ON COMMIT DROP;
    FOR n IN 1..5000 LOOP
      BEGIN INSERT INTO used VALUES (n); EXCEPTION WHEN division_by_zero THEN NULL; END;
    END LOOP;
  END $$`;

/** Copies the rows of a schema into a database where it was made but holds nothing else, as a dump and its restore do. */
async function restore(from: string, to: string): Promise<void> {
  const [source, target] = [from, to].map((url) => new Client({ connectionString: url }));
  if (!source || !target) throw new Error("There are two.");
  await Promise.all([source.connect(), target.connect()]);
  const named = (kind: string) =>
    `SELECT relname AS name FROM pg_class WHERE relnamespace = 'millrace'::regnamespace AND relkind = '${kind}'`;
  for (const { name } of (await source.query(named("r"))).rows) {
    await target.query(`DELETE FROM millrace.${name}`);
    const { rows } = await source.query(`SELECT e::text AS row FROM millrace.${name} e`);
    const insert = `INSERT INTO millrace.${name} OVERRIDING SYSTEM VALUE SELECT (e).* FROM (SELECT $1::millrace.${name} AS e) AS r`;
    for (const { row } of rows) await target.query(insert, [row]);
  }
  for (const { name } of (await source.query(named("S"))).rows) {
    const { rows } = await source.query(`SELECT last_value, is_called FROM millrace.${name}`);
    const { last_value: value, is_called: isCalled } = rows[0];
    await target.query(`SELECT setval('millrace.${name}', $1, $2)`, [value, isCalled]);
  }
  await Promise.all([source.end(), target.end()]);
}

async function read(engine: Engine, cursor: string | null): Promise<readonly FeedItem[]> {
  const items: FeedItem[] = [];
  for await (const item of engine.tail(cursor, AbortSignal.timeout(30_000), "stored"))
    items.push(item);
  return items;
}

const idsOf = (items: readonly FeedItem[]) => items.map(({ event }) => event.id);

/** Places that readers keep in the store, and one that somebody keeps elsewhere. */
async function keep(engine: Engine, name: string, cursor: string): Promise<void> {
  const id = recordId.cursor("crash", name);
  const [found] = await engine.records([id]);
  await engine.swap([{ id, expect: found?.version ?? 0, body: { cursor, types: ["quick"] } }]);
}

async function kept(engine: Engine, name: string): Promise<string> {
  const [found] = await engine.records([recordId.cursor("crash", name)]);
  const body = found?.body as { readonly cursor: string; readonly types: unknown } | undefined;
  expect(body?.types).toEqual(["quick"]);
  return body?.cursor ?? "";
}

async function open(url: string) {
  const service = await connect(contract, { url });
  onTestFinished(() => service.stop());
  return service;
}

/** A user who may do what the guide says that one needs, and owns nothing. */
async function plainUser(url: string): Promise<string> {
  await execute(
    url,
    "CREATE ROLE web LOGIN PASSWORD 'web'",
    "GRANT USAGE ON SCHEMA millrace TO web",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA millrace TO web",
    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA millrace TO web",
  );
  const own = new URL(url);
  own.username = "web";
  own.password = "web";
  return own.href;
}

it("goes on where it was, and again after the next one", { timeout: 240_000 }, async () => {
  let from = await ownPostgres();
  await execute(from.url, useNumbers, useNumbers);
  let before = await open(from.url);
  before.jobs.quick.handle(async () => ({}));
  const refs = await before.jobs.quick
    .createMany(Array.from({ length: 20 }, () => ({ payload: noWork })))
    .orThrow();
  await before.start();
  for (const ref of refs) await ref.unwrap().wait().orThrow();
  await before.stop();
  before = await open(from.url);
  const history = await read(before.engine, null);
  expect(history.length).toBeGreaterThanOrEqual(60);
  // In the midst of the events, most of which many jobs share a row for.
  for (const [index, { cursor }] of history.entries())
    await keep(before.engine, `at-${index}`, cursor);
  await keep(before.engine, "head", await before.engine.head());
  await before.jobs.quick.create(noWork).orThrow();

  for (const use of [useNumbers, "SELECT 1"]) {
    const told = await read(before.engine, null);
    const old = await before.engine.head();
    const expected = new Map<string, readonly string[]>();
    for (const name of [...history.keys()].map((index) => `at-${index}`).concat("head"))
      expected.set(name, idsOf(await read(before.engine, await kept(before.engine, name))));
    await before.stop();

    const to = await ownPostgres();
    await execute(to.url, use);
    // A process that goes on meanwhile writes to the new server before anybody has looked at it.
    const other = await open(to.url);
    await restore(from.url, to.url);
    await other.jobs.quick.create(noWork).orThrow();
    const stale = await other.engine.head();
    const after = await open(await plainUser(to.url));
    const all = idsOf(await read(after.engine, null));
    const [written] = all.slice(-1);
    expect(all).toEqual([...idsOf(told), written]);
    const { id } = await after.jobs.quick.create(noWork).orThrow();
    const [created] = (await read(after.engine, null)).slice(-1);
    expect(created?.event).toMatchObject({ jobId: id, name: "created" });
    for (const [name, ids] of expected) {
      const rest = await read(after.engine, await kept(after.engine, name));
      expect(idsOf(rest), name).toEqual([...ids, written, created?.event.id]);
      const last = rest.at(-1)?.cursor ?? "";
      expect(await read(after.engine, last)).toEqual([]);
    }
    for (const cursor of [old, stale])
      await expect(read(other.engine, cursor)).rejects.toMatchObject({
        _tag: "InvalidCursor",
        message: expect.stringMatching(/restored into another server/),
      });
    // It is done once.
    await after.stop();
    before = await open(to.url);
    from = to;
    expect(idsOf(await read(before.engine, await kept(before.engine, "head"))).slice(-1)).toEqual([
      created?.event.id,
    ]);
  }
  expect(await execute(from.url, "SELECT moves FROM millrace.store")).toEqual([{ moves: 2 }]);
});

it("needs nothing on a server that is further on", { timeout: 120_000 }, async () => {
  const [from, to] = [await ownPostgres(), await ownPostgres()];
  const before = await open(from.url);
  await before.jobs.quick.create(noWork).orThrow();
  const cursor = await before.engine.head();
  await before.jobs.quick.create(noWork).orThrow();
  const rest = idsOf(await read(before.engine, cursor));
  await before.stop();
  await execute(to.url, useNumbers);
  await (await open(to.url)).stop();
  await restore(from.url, to.url);
  const after = await open(to.url);
  await after.jobs.quick.create(noWork).orThrow();
  const [one, ...others] = idsOf(await read(after.engine, cursor));
  expect([one]).toEqual(rest);
  expect(others).toHaveLength(1);
});
