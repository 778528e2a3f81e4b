// Every client of PostgreSQL that a transaction may come from, against the real library and a real server:
// statements run inside the transaction, a rollback undoes them, and what has no transaction is refused.
import { sql } from "drizzle-orm";
import knex from "knex";
import { fromDrizzle } from "millrace";
import { DataSource } from "typeorm";
import { describe, expect, it, onTestFinished } from "vitest";
import { callerTransaction } from "#millrace/client/transactions/recognise.js";
import type { TransactionSource } from "#millrace/client/transactions/source.js";
import type { AsyncTransaction } from "#millrace/engine/transaction.js";
import { execute, freshSchema } from "../support/postgres.js";
import { type Library, libraries } from "./libraries.js";

/** The client as the store gets it. */
function enlisted(source: TransactionSource<never>, client: never): AsyncTransaction {
  const tx = source.enlist ? source.enlist(client) : callerTransaction(client);
  if (tx instanceof Error) throw tx;
  if (tx.kind === "sync") throw new Error("It is synchronous.");
  return tx;
}

async function open(library: Library) {
  const { url, schema } = await freshSchema();
  await execute(
    url,
    `CREATE SCHEMA ${schema}`,
    `CREATE TABLE ${schema}.notes (note_id bigint, body text, done_at bigint)`,
  );
  const opened = await library.open(url);
  onTestFinished(async () => void (await opened.close()));
  return { ...opened, table: `${schema}.notes` };
}

it.for(["node-postgres", "postgres.js"])(
  "a source of %s tells of a commit that rolled back",
  async (name) => {
    const library = libraries.find((each) => each.name === name);
    if (library === undefined) throw new Error(`There is no library ${name}.`);
    const { source } = await open(library);
    const committing = source.run(async (client) => {
      await enlisted(source, client)
        .execute("SELECT 1 / 0", [])
        .catch(() => {});
      return "done";
    });
    await expect(committing).rejects.toThrow(/everything in it is rolled back|division by zero/);
  },
);

describe.for(libraries)("a transaction of $name", (library) => {
  it("runs statements and gives their rows as they are named", async () => {
    const { source, table } = await open(library);
    await source.run(async (client) => {
      const tx = enlisted(source, client);
      const insert = `INSERT INTO ${table} (note_id, body, done_at) VALUES ($1,$2,$3),($4,$5,$6)`;
      expect(await tx.execute(insert, [1, "why? $1", null, 2, "{}", 1_700_000_000_000])).toEqual(
        [],
      );
      const read = `SELECT note_id, body, done_at FROM ${table} WHERE note_id = $1 AND body = $2`;
      const [row] = await tx.execute(read, [2, "{}"]);
      expect(row).toMatchObject({ body: "{}" });
      expect([Number(row?.note_id), Number(row?.done_at)]).toEqual([2, 1_700_000_000_000]);
      const [updated] = await tx.execute(
        `UPDATE ${table} SET body = $1 WHERE note_id = $2 RETURNING body`,
        ["new", 1],
      );
      expect(updated).toEqual({ body: "new" });
      const [deleted] = await tx.execute(
        `DELETE FROM ${table} WHERE note_id = $1 RETURNING body`,
        [1],
      );
      expect(deleted).toEqual({ body: "new" });
      expect(await tx.execute("SELECT NULL::bigint AS nothing", [])).toEqual([{ nothing: null }]);
    });
  });

  it("commits when its work succeeds and rolls back when it fails", async () => {
    const { source, table } = await open(library);
    const count = () =>
      source.run(async (client) => {
        const [row] = await enlisted(source, client).execute(`SELECT count(*) FROM ${table}`, []);
        return Number(row?.count);
      });
    const insert = (client: never) =>
      enlisted(source, client).execute(`INSERT INTO ${table} (note_id) VALUES ($1)`, [1]);
    const failing = source.run(async (client) => {
      await insert(client);
      throw new Error("no stock");
    });
    await expect(failing).rejects.toThrow("no stock");
    expect(await count()).toBe(0);
    expect(await source.run(async (client) => (await insert(client)).length)).toBe(0);
    expect(await count()).toBe(1);
    const broken = source.run((client) => enlisted(source, client).execute("SELECT nothing", []));
    await expect(broken).rejects.toThrow(/nothing/);
    expect(await count()).toBe(1);
  });

  it("is refused where none is open", async () => {
    const { without } = await open(library);
    for (const client of without) {
      const refused = callerTransaction(client);
      if (library.name.startsWith("Drizzle")) {
        expect(refused).toMatchObject({ _tag: "InvalidOption", field: "tx" });
        expect((refused as unknown as Error).message).toContain("fromDrizzle(tx, sql)");
      } else {
        expect(refused).toMatchObject({ _tag: "TransactionRefused", reason: "not_open" });
      }
    }
  });
});

describe("a transaction that has ended", () => {
  it("of Knex is refused", async () => {
    const { url } = await freshSchema();
    const db = knex({ client: "pg", connection: url });
    onTestFinished(() => db.destroy());
    const trx = await db.transaction();
    await trx.commit();
    expect(callerTransaction(trx)).toMatchObject({ reason: "closed" });
  });

  it("of TypeORM is refused", async () => {
    const { url } = await freshSchema();
    const dataSource = await new DataSource({ type: "postgres", url }).initialize();
    onTestFinished(() => dataSource.destroy());
    const kept = await dataSource.transaction(async (manager) => manager);
    expect(callerTransaction(kept)).toMatchObject({ _tag: "TransactionRefused" });
  });
});

describe("Prisma before version 7, by its structure", () => {
  it("has the server's code of a fault where it tells it", async () => {
    const fault = Object.assign(new Error("Raw query failed."), {
      code: "P2010",
      meta: { code: "40001" },
    });
    const tx = callerTransaction({ $queryRawUnsafe: () => Promise.reject(fault) });
    if (tx instanceof Error || tx.kind === "sync") throw new Error("It was not taken.");
    await expect(tx.execute("SELECT 1", [])).rejects.toMatchObject({ code: "40001", cause: fault });
  });
});

describe("an object with executeSql", () => {
  it("is taken as it is", async () => {
    const tx = callerTransaction({ executeSql: async (text: string) => [{ text }] });
    if (tx instanceof Error || tx.kind === "sync") throw new Error("It was not taken.");
    expect(await tx.execute("SELECT 1", [])).toEqual([{ text: "SELECT 1" }]);
  });

  it("is what Drizzle's transactions become", () => {
    const tx = callerTransaction(fromDrizzle({ execute: async () => [] }, sql as never));
    expect(tx).toMatchObject({ kind: "async" });
  });
});
