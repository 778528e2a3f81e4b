// The types of transactions: `tx` in a handler is the user's own client, as the library types it, with no cast.
import type BetterSqlite from "better-sqlite3";
import { sql } from "drizzle-orm";
import type { NodePgDatabase } from "drizzle-orm/node-postgres";
import type { Knex } from "knex";
import type { Kysely, Transaction } from "kysely";
import {
  type AsyncTransactionSource,
  betterSqliteTransactions,
  type CreateOptions,
  type connect,
  defineJob,
  defineService,
  drizzleTransactions,
  fromDrizzle,
  knexTransactions,
  kyselyTransactions,
  pgTransactions,
  type postgresJsTransactions,
  prismaTransactions,
  type Service,
  type SyncCreateOptions,
  typeOrmTransactions,
} from "millrace";
import type { Client, Pool, PoolClient } from "pg";
import type { Sql, TransactionSql } from "postgres";
import type { DataSource, EntityManager, QueryRunner } from "typeorm";
import { describe, expectTypeOf, it } from "vitest";
import { z } from "zod";

const contract = defineService("shop", { ship: defineJob({ payload: z.object({}) }) });
type Entries = (typeof contract)["jobs"];

interface Tables {
  readonly orders: { readonly id: string };
}

/** The client that a source hands out. */
type ClientOf<Source> = Source extends AsyncTransactionSource<infer Tx> ? Tx : never;

/** Only types are looked at, so that nothing has to exist. */
function given<Value>(): Value {
  return undefined as Value;
}

describe("the client of a source", () => {
  it("is the library's own", () => {
    const types = () => {
      expectTypeOf(pgTransactions(given<Pool>())).toEqualTypeOf<
        AsyncTransactionSource<PoolClient>
      >();
      expectTypeOf<
        ClientOf<ReturnType<typeof postgresJsTransactions<Sql>>>
      >().toEqualTypeOf<TransactionSql>();
      expectTypeOf(kyselyTransactions(given<Kysely<Tables>>())).toEqualTypeOf<
        AsyncTransactionSource<Transaction<Tables>>
      >();
      expectTypeOf(knexTransactions(given<Knex>())).toEqualTypeOf<
        AsyncTransactionSource<Knex.Transaction>
      >();
      expectTypeOf(typeOrmTransactions(given<DataSource>())).toEqualTypeOf<
        AsyncTransactionSource<EntityManager>
      >();
      const drizzled = drizzleTransactions(given<NodePgDatabase>(), sql);
      expectTypeOf<ClientOf<typeof drizzled>>().toHaveProperty("insert");
      expectTypeOf<ClientOf<typeof drizzled>>().toHaveProperty("rollback");
      expectTypeOf(betterSqliteTransactions(given<BetterSqlite.Database>()).run).toBeFunction();
    };
    expectTypeOf(types).toBeFunction();
  });

  it("of Prisma is what its interactive transactions hand out", () => {
    interface PrismaTransaction {
      readonly order: { create(): Promise<void> };
    }
    interface Prisma {
      $transaction<Values extends Promise<unknown>[]>(work: [...Values]): Promise<unknown[]>;
      $transaction<Value>(
        work: (tx: PrismaTransaction) => Promise<Value>,
        options?: { readonly timeout?: number },
      ): Promise<Value>;
    }
    const types = () =>
      expectTypeOf(prismaTransactions(given<Prisma>())).toEqualTypeOf<
        AsyncTransactionSource<PrismaTransaction>
      >();
    expectTypeOf(types).toBeFunction();
  });
});

describe("a handler's tx", () => {
  it("is the client of the source that connect was given", () => {
    const types = (connecting: typeof connect) => async () => {
      const service = await connecting(contract, {
        transactions: kyselyTransactions(given<Kysely<Tables>>()),
      });
      expectTypeOf(service).toEqualTypeOf<Service<Entries, Transaction<Tables>>>();
      service.jobs.ship.handle(async ({ prepare, complete }) => {
        const rows = await prepare({ mode: "staged" }, ({ tx }) =>
          tx.selectFrom("orders").select("id").execute(),
        );
        expectTypeOf(rows).toEqualTypeOf<{ id: string }[]>();
        return complete(({ tx }) => void expectTypeOf(tx).toEqualTypeOf<Transaction<Tables>>());
      });
      service.handle({
        ship: ({ complete }) =>
          complete(({ tx }) => void expectTypeOf(tx).toEqualTypeOf<Transaction<Tables>>()),
      });
    };
    expectTypeOf(types).toBeFunction();
  });

  it("is undefined where connect was given none", () => {
    const types = (service: Service<Entries>) =>
      service.jobs.ship.handle(async ({ prepare, complete }) => {
        const nothing = await prepare({ mode: "atomic" });
        expectTypeOf(nothing).toEqualTypeOf<void>();
        await prepare({ mode: "atomic" }, ({ tx }) => expectTypeOf(tx).toEqualTypeOf<undefined>());
        return complete(({ tx }) => void expectTypeOf(tx).toEqualTypeOf<undefined>());
      });
    expectTypeOf(types).toBeFunction();
  });
});

describe("the tx of a create", () => {
  it("takes every client", () => {
    type Tx = NonNullable<CreateOptions["tx"]>;
    expectTypeOf<Client>().toExtend<Tx>();
    expectTypeOf<PoolClient>().toExtend<Tx>();
    expectTypeOf<TransactionSql>().toExtend<Tx>();
    expectTypeOf<Transaction<Tables>>().toExtend<Tx>();
    expectTypeOf<Knex.Transaction>().toExtend<Tx>();
    expectTypeOf<EntityManager>().toExtend<Tx>();
    expectTypeOf<QueryRunner>().toExtend<Tx>();
    expectTypeOf<BetterSqlite.Database>().toExtend<Tx>();
    expectTypeOf<ReturnType<typeof fromDrizzle>>().toExtend<Tx>();
    expectTypeOf<{ readonly orderId: string }>().not.toExtend<Tx>();
    expectTypeOf<string>().not.toExtend<Tx>();
  });

  it("is needed by a synchronous one, and is better-sqlite3", () => {
    expectTypeOf<BetterSqlite.Database>().toExtend<SyncCreateOptions["tx"]>();
    expectTypeOf<PoolClient>().not.toExtend<SyncCreateOptions["tx"]>();
    expectTypeOf<object>().not.toExtend<SyncCreateOptions>();
  });

  it("is not for a run, which waits", () => {
    type RunOptions = NonNullable<Parameters<Service<Entries>["jobs"]["ship"]["run"]>[1]>;
    expectTypeOf<RunOptions>().not.toHaveProperty("tx");
  });

  it("goes through Drizzle's own sql", () => {
    const types = (db: NodePgDatabase, service: Service<Entries>) =>
      db.transaction(async (tx) => {
        await service.jobs.ship.create({}, { tx: fromDrizzle(tx, sql) }).orThrow();
      });
    expectTypeOf(types).toBeFunction();
  });
});
