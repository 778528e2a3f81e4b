// PostgreSQL for tests: the server that a run shares, with fresh schemas and databases in it, and
// servers of a test's own, which it may kill.
import { randomUUID } from "node:crypto";
import { Client } from "pg";
import { inject, onTestFinished } from "vitest";
import { type PostgresServer, startPostgres, startStandby } from "../../scripts/postgres-server.js";
import { offeredUrl } from "./shared-server.js";

/** The superuser's URL of a server that outlives the run, where somebody gave one. */
const given = process.env.MILLRACE_TEST_POSTGRES_URL ?? "";

/** The superuser's URL of the server that all tests of the run share. */
export async function sharedPostgresUrl(): Promise<string> {
  return given === "" ? offeredUrl(inject("postgresPort")) : given;
}

/** Runs statements on a connection of their own, and gives the rows of the last one. */
export async function execute(url: string, ...statements: readonly string[]): Promise<unknown[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    let rows: unknown[] = [];
    for (const statement of statements) rows = (await client.query(statement)).rows;
    return rows;
  } finally {
    await client.end();
  }
}

/** The URL of a store in a schema that nobody has made yet, on the shared server, and the way to remove it. */
export async function newSchema(): Promise<{
  readonly url: string;
  readonly remove: () => Promise<void>;
}> {
  const server = await sharedPostgresUrl();
  const schema = `test_${randomUUID().replaceAll("-", "")}`;
  const url = new URL(server);
  url.searchParams.set("schema", schema);
  url.searchParams.set("poolMax", "3");
  return {
    url: url.href,
    remove: async () => {
      await execute(server, `DROP SCHEMA IF EXISTS ${schema} CASCADE`);
    },
  };
}

/** A schema that nobody has made yet, on the shared server; it is dropped after the test. */
export interface FreshSchema {
  /** The superuser's URL of the server. */
  readonly url: string;
  readonly schema: string;
  /** The URL of a store in the schema. */
  readonly storeUrl: string;
}

/** The name of a schema for a test. */
export async function freshSchema(): Promise<FreshSchema> {
  const url = await sharedPostgresUrl();
  const schema = `test_${randomUUID().replaceAll("-", "")}`;
  onTestFinished(async () => {
    await execute(url, `DROP SCHEMA IF EXISTS ${schema} CASCADE`);
  });
  const store = new URL(url);
  store.searchParams.set("schema", schema);
  return { url, schema, storeUrl: store.href };
}

/**
 * The URL of an empty database of its own on the shared server, made with some options. To drop it forces a checkpoint of all that the other tests
 * wrote, which takes many seconds on a slow disk, so that it goes with the server unless that is somebody's.
 */
export async function freshDatabase(options = ""): Promise<string> {
  const url = await sharedPostgresUrl();
  const database = `test_${randomUUID().replaceAll("-", "")}`;
  await execute(url, `CREATE DATABASE ${database} ${options}`);
  onTestFinished(async () => {
    if (given !== "") await execute(url, `DROP DATABASE ${database} WITH (FORCE)`);
  });
  const own = new URL(url);
  own.pathname = `/${database}`;
  return own.href;
}

/** A server that the test may kill and restart; it is stopped after the test. */
export async function ownPostgres(): Promise<PostgresServer> {
  const server = await startPostgres();
  onTestFinished(() => server.stop());
  return server;
}

/** A standby of a server of the test's own; it is stopped after the test. */
export async function standbyOf(primary: PostgresServer): Promise<PostgresServer> {
  const server = await startStandby(primary);
  onTestFinished(() => server.stop());
  return server;
}
