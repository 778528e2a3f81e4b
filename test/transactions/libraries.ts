// The clients of PostgreSQL that a transaction may come from, each as its library opens it.
import { PrismaPg } from "@prisma/adapter-pg";
import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { drizzle as drizzlePostgresJs } from "drizzle-orm/postgres-js";
import knex from "knex";
import { CamelCasePlugin, Kysely, PostgresDialect } from "kysely";
import {
  type AsyncTransactionSource,
  drizzleTransactions,
  fromDrizzle,
  knexTransactions,
  kyselyTransactions,
  pgTransactions,
  postgresJsTransactions,
  prismaTransactions,
  type TransactionClient,
  typeOrmTransactions,
} from "millrace";
import { Client, Pool } from "pg";
import postgres from "postgres";
import { DataSource } from "typeorm";
import { PrismaClient } from "../../examples/transactions/prisma/generated/client.js";

export interface Library {
  readonly name: string;
  /** Opens the library; gives the source of its transactions and what it is without one. */
  open(url: string): Promise<{
    readonly source: AsyncTransactionSource<never>;
    readonly without: readonly unknown[];
    /** The transaction as a create takes it, where that is not the client itself. */
    readonly wrap?: (client: never) => TransactionClient;
    close(): Promise<unknown>;
  }>;
}

export const libraries: readonly Library[] = [
  {
    name: "node-postgres",
    open: async (url) => {
      const pool = new Pool({ connectionString: url });
      const client = new Client({ connectionString: url });
      await client.connect();
      await client.query("SELECT 1");
      const close = () => Promise.all([pool.end(), client.end()]);
      return { source: pgTransactions(pool) as never, without: [pool, client], close };
    },
  },
  {
    name: "postgres.js",
    open: async (url) => {
      const own = postgres(url, { onnotice: () => {} });
      return {
        source: postgresJsTransactions(own) as never,
        without: [own],
        close: () => own.end(),
      };
    },
  },
  {
    name: "Drizzle on node-postgres",
    open: async (url) => {
      const pool = new Pool({ connectionString: url });
      const db = drizzle(pool);
      return {
        source: drizzleTransactions(db, sql) as never,
        wrap: (tx) => fromDrizzle(tx, sql),
        without: [db],
        close: () => pool.end(),
      };
    },
  },
  {
    name: "Drizzle on postgres.js",
    open: async (url) => {
      const client = postgres(url, { onnotice: () => {} });
      const db = drizzlePostgresJs(client);
      return {
        source: drizzleTransactions(db, sql) as never,
        wrap: (tx) => fromDrizzle(tx, sql),
        without: [db],
        close: () => client.end(),
      };
    },
  },
  {
    name: "Kysely",
    open: async (url) => {
      const dialect = new PostgresDialect({ pool: new Pool({ connectionString: url }) });
      const db = new Kysely<object>({ dialect, plugins: [new CamelCasePlugin()] });
      return {
        source: kyselyTransactions(db) as never,
        without: [db],
        close: () => db.destroy(),
      };
    },
  },
  {
    name: "Knex",
    open: async (url) => {
      const postProcessResponse = () => "renamed";
      const db = knex({ client: "pg", connection: url, postProcessResponse });
      return { source: knexTransactions(db) as never, without: [db], close: () => db.destroy() };
    },
  },
  {
    name: "TypeORM",
    open: async (url) => {
      const dataSource = await new DataSource({ type: "postgres", url }).initialize();
      return {
        source: typeOrmTransactions(dataSource) as never,
        without: [dataSource.manager, dataSource.createQueryRunner()],
        close: () => dataSource.destroy(),
      };
    },
  },
  {
    name: "Prisma",
    open: async (url) => {
      const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) });
      return {
        source: prismaTransactions(prisma) as never,
        without: [prisma],
        close: () => prisma.$disconnect(),
      };
    },
  },
];
