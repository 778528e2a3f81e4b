/**
 * Brings a schema to the newest version, one process at a time, and refuses one that a newer Millrace has written.
 */
import type { PoolClient } from "pg";
import { StoreTooNew } from "../errors.js";
import type { Address } from "./address.js";
import { migrations } from "./schema.js";

/** Names the lock of those who migrate a schema, together with the schema. */
export const lockSpace = 0x4d494c4c;

/** Makes the schema if there is none, and migrates it. Safe when many processes start at once. Gives the store's id. */
export async function migrate(client: PoolClient, address: Address): Promise<string> {
  // Most processes find everything in place, and need neither the lock nor the right to create.
  if ((await versionOf(client, address.schema)) !== migrations.length)
    await migrateUnderLock(client, address);
  const { rows } = await client.query(`SELECT id FROM "${address.schema}".store`);
  return String(rows[0]?.id);
}

async function migrateUnderLock(client: PoolClient, { schema, where }: Address): Promise<void> {
  const name = `"${schema}"`;
  await client.query("BEGIN");
  try {
    await client.query("SELECT pg_advisory_xact_lock($1, hashtext($2))", [lockSpace, schema]);
    const found = await versionOf(client, schema);
    if (found > migrations.length) {
      const known = migrations.length;
      const message = `The schema ${name} of ${where} was written by a newer Millrace (schema ${found}; this one knows ${known}). Upgrade this process.`;
      throw new StoreTooNew({ url: where, message, found, known });
    }
    await client.query(`CREATE SCHEMA IF NOT EXISTS ${name}`);
    await client.query(`SET LOCAL search_path TO ${name}`);
    if (found === 0)
      await client.query(
        `CREATE TABLE store (id text NOT NULL DEFAULT gen_random_uuid()::text, version int NOT NULL);
         INSERT INTO store (version) VALUES (0)`,
      );
    for (const migration of migrations.slice(found)) await client.query(migration);
    await client.query("UPDATE store SET version = $1", [migrations.length]);
    await client.query("COMMIT");
  } catch (error) {
    await client.query("ROLLBACK").catch(() => {});
    throw error;
  }
}

/** The version of a schema; 0 if it is not there yet. */
async function versionOf(client: PoolClient, schema: string): Promise<number> {
  // The catalog itself, because a look by name may come from before the wait for the lock.
  const tables = await client.query(
    "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'store'",
    [schema],
  );
  if (tables.rows.length === 0) return 0;
  const { rows } = await client.query(`SELECT version FROM "${schema}".store`);
  return Number(rows[0]?.version ?? 0);
}
