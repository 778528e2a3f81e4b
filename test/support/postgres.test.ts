// PostgreSQL for tests: fresh places on the shared server, and servers that die, return and go.
import { describe, expect, it } from "vitest";
import { execute, freshDatabase, freshSchema, ownPostgres } from "./postgres.js";

describe("PostgreSQL for tests", () => {
  it("gives each test a schema and a database of its own", async () => {
    const { url, schema } = await freshSchema();
    await execute(url, `CREATE SCHEMA ${schema}`, `CREATE TABLE ${schema}.jobs (id text)`);
    const database = await freshDatabase();
    expect(database).not.toBe(url);
    expect(
      await execute(
        database,
        "SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'test_%'",
      ),
    ).toEqual([]);
  });

  it("syncs every commit, in UTF-8", async () => {
    const { url } = await freshSchema();
    const settings = await execute(
      url,
      "SELECT current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS commit, current_setting('server_encoding') AS encoding",
    );
    expect(settings).toEqual([{ fsync: "on", commit: "on", encoding: "UTF8" }]);
  });

  it("keeps what was committed when a server of one's own is killed", async () => {
    const server = await ownPostgres();
    const { pid } = server;
    await execute(server.url, "CREATE TABLE kept (id int)", "INSERT INTO kept VALUES (1)");
    await server.kill("SIGKILL");
    expect(server.pid).toBeUndefined();
    await expect(execute(server.url, "SELECT 1")).rejects.toThrow();
    await server.restart();
    expect(server.pid).not.toBe(pid);
    expect(await execute(server.url, "SELECT id FROM kept")).toEqual([{ id: 1 }]);
    await server.stop();
    await expect(execute(server.url, "SELECT 1")).rejects.toThrow();
  });
});
