/**
 * Brings a schema to the newest version, one process at a time, and refuses one that a newer Millrace has written.
 */
import type { PoolClient } from "pg";
import { StoreCorrupt, StoreUnavailable } from "../errors.js";
import type { Address } from "./address.js";
import { codeOf, detailOf, isNameTaken, schemaTaken } from "./faults.js";
import { hasMoved, moveFeed } from "./moved-feed.js";
import { tooNew } from "./newer-schema.js";
import { migrations, projectionTables } from "./schema.js";

/** Names the lock of those who migrate a schema, together with the schema. */
export const lockSpace = 0x4d494c4c;

/** The code of what a user may not do. */
const lacksRight = "42501";

/** What a schema is for: a store of jobs, or a projection of a log that is kept elsewhere. */
type SchemaKind = "store" | "projection";

/** Makes the schema if there is none, and migrates it. Safe when many processes start at once. Gives the store's id. */
export async function migrate(
  client: PoolClient,
  address: Address,
  kind: SchemaKind = "store",
): Promise<string> {
  // Most processes find everything in place, and need neither the lock nor the right to create.
  if ((await versionOf(client, address, kind)) !== migrations.length)
    await underLock(client, address, () => migrateFrom(client, address, kind));
  if (kind === "store" && (await hasMoved(client, address.schema)))
    await underLock(client, address, () => moveFeed(client, address.schema));
  const { rows } = await client.query(`SELECT id FROM "${address.schema}".store`);
  return String(rows[0]?.id);
}

/** Does work in a transaction, one process at a time. What it asks sees what was committed before it had the lock. */
async function underLock(
  client: PoolClient,
  { schema }: Address,
  work: () => Promise<void>,
): Promise<void> {
  await client.query("BEGIN ISOLATION LEVEL READ COMMITTED");
  try {
    await client.query("SELECT pg_advisory_xact_lock($1, hashtext($2))", [lockSpace, schema]);
    await work();
    await client.query("COMMIT");
  } catch (error) {
    await client.query("ROLLBACK").catch(() => {});
    throw error;
  }
}

async function migrateFrom(client: PoolClient, address: Address, kind: SchemaKind): Promise<void> {
  const found = await versionOf(client, address, kind);
  const newer = tooNew(address, found);
  if (newer) throw newer;
  await makeSchema(client, address);
  await makeTables(client, address, found, kind);
}

/**
 * Makes the schema if there is none. PostgreSQL wants the right to create one even if it is there already, so that it is looked
 * for first: who was given a schema needs no right on the database.
 */
export async function makeSchema(
  client: PoolClient,
  { schema, where }: Pick<Address, "schema" | "where">,
): Promise<void> {
  const { rows } = await client.query("SELECT 1 FROM pg_namespace WHERE nspname = $1", [schema]);
  if (rows.length > 0) return;
  try {
    await client.query(`CREATE SCHEMA IF NOT EXISTS "${schema}"`);
  } catch (error) {
    if (codeOf(error) !== lacksRight) throw error;
    const message = `The user may not make the schema "${schema}" of ${where} (${detailOf(error)}). Grant CREATE on the database, or make the schema and let the user own it.`;
    throw new StoreUnavailable({ url: where, message });
  }
}

/** Makes what is missing in a schema that is at a version. */
async function makeTables(
  client: PoolClient,
  address: Address,
  found: number,
  kind: SchemaKind,
): Promise<void> {
  const { schema, where } = address;
  try {
    await client.query(`SET LOCAL search_path TO "${schema}"`);
    if (found === 0)
      await client.query(
        `CREATE TABLE store (id text NOT NULL DEFAULT gen_random_uuid()::text, version int NOT NULL);
         INSERT INTO store (version) VALUES (0)`,
      );
    for (const migration of migrations.slice(found)) await client.query(migration);
    if (found === 0 && kind === "projection") await client.query(projectionTables);
    await client.query("UPDATE store SET version = $1", [migrations.length]);
  } catch (error) {
    if (found === 0 && isNameTaken(error)) throw schemaTaken(address, detailOf(error));
    if (codeOf(error) !== lacksRight) throw error;
    const message = `The user may not make or change tables in the schema "${schema}" of ${where} (${detailOf(error)}). Connect once as the owner of the schema, which brings it up to date for everybody.`;
    throw new StoreUnavailable({ url: where, message });
  }
}

/**
 * The tables that tell what a schema is for, with their columns. The catalog itself, because a look by name may come from before
 * the wait for the lock.
 */
const signs = `SELECT c.relname AS name, array_agg(a.attname || ' ' || format_type(a.atttypid, NULL)) AS columns
  FROM pg_namespace s JOIN pg_class c ON c.relnamespace = s.oid
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  WHERE s.nspname = $1 AND c.relkind IN ('r', 'p') AND c.relname IN ('store', 'projection') GROUP BY c.relname`;

/** What the tables have in every version. */
const signColumns = { store: ["id text", "version integer"], projection: ["position bigint"] };

/** The version of a schema; 0 if it is not there yet. One that is for something else is left alone. */
async function versionOf(client: PoolClient, address: Address, kind: SchemaKind): Promise<number> {
  const { schema, where } = address;
  const tables = await client.query(signs, [schema]);
  if (tables.rows.length === 0) return 0;
  const columns = new Map<string, readonly string[]>(
    tables.rows.map((row) => [row.name, row.columns]),
  );
  const has = (name: SchemaKind) =>
    signColumns[name].every((column) => columns.get(name)?.includes(column));
  if (!has("store"))
    throw schemaTaken(address, `its table "${tables.rows[0].name}" is not Millrace's`);
  const isProjection = has("projection");
  if (isProjection !== (kind === "projection")) {
    const found = isProjection ? "a projection of jobs that are kept elsewhere" : "a store of jobs";
    const wanted = isProjection ? "a store" : "a projection";
    const message = `The schema "${schema}" of ${where} is ${found}, and cannot be opened as ${wanted}. Name another with ?schema= in the URL.`;
    throw new StoreCorrupt({ url: where, message });
  }
  const { rows } = await client.query(`SELECT id, version FROM "${schema}".store LIMIT 2`);
  if (rows.length !== 1 || !uuid.test(rows[0]?.id))
    throw schemaTaken(address, `its table "store" is not Millrace's`);
  return Number(rows[0].version);
}

/** Ids of stores, which tell the only row of `store` from what somebody else may have in a table of that name. */
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
