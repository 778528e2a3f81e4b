// The settings in the URLs of stores: a misspelt one is refused, because the store would be another than was meant.
import { join } from "node:path";
import { StoreUnavailable } from "millrace";
import { describe, expect, it } from "vitest";
import { addressOf } from "#millrace/engine/postgres/address.js";
import { filePath } from "#millrace/engine/sqlite/engine.js";

function refusal(work: () => unknown): StoreUnavailable {
  try {
    work();
  } catch (error) {
    if (error instanceof StoreUnavailable) return error;
    throw error;
  }
  throw new Error("It was not refused.");
}

describe("a postgres: URL", () => {
  const base = "postgres://ada:secret@db.example:5432/app";

  it.for([
    ...["schma", "Schema", "SCHEMA", "scehma", "schemas", "shema", "scheme"].map((name) => [
      name,
      "schema",
    ]),
    ...["currentSchema", "schema_name", "db-schema"].map((name) => [name, "schema"]),
    ...["poolmax", "pool_max", "poolMx", "polomax", "poolMax2", "poolMaxSize"].map((name) => [
      name,
      "poolMax",
    ]),
  ] as [string, string][])("is refused with %s, and told of %s", ([name, meant]) => {
    const { message, url } = refusal(() => addressOf(`${base}?sslmode=require&${name}=5`));
    expect(message).toContain(`"${name}" in the URL is not known; ${meant} `);
    expect(`${message}${url}`).not.toContain("secret");
  });

  it("has the settings of the driver and the server as they are", () => {
    const names = [
      ..."host hostaddr port dbname user password passfile require_auth channel_binding".split(" "),
      ..."connect_timeout client_encoding options application_name fallback_application_name".split(
        " ",
      ),
      ..."keepalives keepalives_idle keepalives_interval keepalives_count tcp_user_timeout".split(
        " ",
      ),
      ..."replication gssencmode sslmode sslnegotiation sslcompression sslcert sslkey sslrootcert".split(
        " ",
      ),
      ..."sslcrl sslsni requirepeer krbsrvname service target_session_attrs load_balance_hosts".split(
        " ",
      ),
      ..."uselibpqcompat statement_timeout query_timeout lock_timeout pgbouncer connection_limit".split(
        " ",
      ),
      ..."pool_timeout pool_mode max min search_path ssl".split(" "),
    ];
    const query = names.map((name) => `${name}=5`).join("&");
    const { connectionString, schema, poolMax } = addressOf(
      `${base}?schema=jobs&poolMax=7&${query}`,
    );
    expect(connectionString).toBe(`${base}?${query}`);
    expect([schema, poolMax]).toEqual(["jobs", 7]);
  });
});

describe("a file: URL", () => {
  it.for(["file:jobs.db?mode=ro", "file:///var/lib/jobs.db?schema=jobs"])(
    "takes no settings: %s",
    (url) => {
      expect(refusal(() => filePath(url)).message).toMatch(
        /^"(mode|schema)" in the URL is not known/,
      );
    },
  );

  it("may name any file", () => {
    expect(filePath("file:///var/lib/jobs%3Fmode=ro.db")).toBe("/var/lib/jobs?mode=ro.db");
    expect(filePath("file:what%3Fa=b.db")).toBe(join(process.cwd(), "what?a=b.db"));
    expect(filePath("file:what?.db")).toBe(join(process.cwd(), "what?.db"));
  });
});
