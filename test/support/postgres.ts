// PostgreSQL for tests: the server that a run shares, with fresh schemas and databases in it, and
// servers of a test's own, which it may kill.
import { randomUUID } from "node:crypto";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { Client } from "pg";
import { inject, onTestFinished } from "vitest";
import { type PostgresServer, startPostgres } from "../../scripts/postgres-server.js";

/** The superuser's URL of the server that all tests of the run share. */
async function sharedPostgresUrl(): Promise<string> {
  const given = process.env.MILLRACE_TEST_POSTGRES_URL;
  if (given !== undefined && given !== "") return given;
  const answer = await text(connect(inject("postgresPort"), "127.0.0.1"));
  if (!answer.startsWith("postgres://")) throw new Error(answer);
  return answer;
}

/** Runs statements as the superuser of a server, each in a transaction of its own. */
export async function execute(url: string, ...statements: readonly string[]): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    for (const statement of statements) await client.query(statement);
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
    remove: () => execute(server, `DROP SCHEMA IF EXISTS ${schema} CASCADE`),
  };
}

/** The name of a schema that nobody has made yet, on the shared server; it is dropped after the test. */
export async function freshSchema(): Promise<{ readonly url: string; readonly schema: string }> {
  const url = await sharedPostgresUrl();
  const schema = `test_${randomUUID().replaceAll("-", "")}`;
  onTestFinished(() => execute(url, `DROP SCHEMA IF EXISTS ${schema} CASCADE`));
  return { url, schema };
}

/** The URL of an empty database of its own on the shared server; it is dropped after the test. */
export async function freshDatabase(): Promise<string> {
  const url = await sharedPostgresUrl();
  const database = `test_${randomUUID().replaceAll("-", "")}`;
  await execute(url, `CREATE DATABASE ${database} STRATEGY file_copy`);
  onTestFinished(() => execute(url, `DROP DATABASE ${database} WITH (FORCE)`));
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
