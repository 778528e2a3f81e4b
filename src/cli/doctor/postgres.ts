/**
 * What the doctor looks at of a `postgres:` store. Nothing is written.
 */
import type { Client } from "pg";
import { addressOf } from "../../engine/postgres/address.js";
import { loadDriver } from "../../engine/postgres/module.js";
import { migrations } from "../../engine/postgres/schema.js";
import { messageOf } from "../failure.js";
import { clockFinding, type Finding, failed, ok, schemaFinding, warning } from "./finding.js";
import { driverFinding, notThereYet } from "./machine.js";

const versionNeeded = 130_000;
const connectTimeoutMs = 5_000;

/** Looks at a server and the schema that a URL names. */
export async function postgresFindings(url: string): Promise<readonly Finding[]> {
  const driver = driverFinding("pg");
  if (driver.status === "failed") return [driver];
  const { connectionString, where, schema } = addressOf(url);
  const pg = await loadDriver(where);
  const client = new pg.Client({ connectionString, connectionTimeoutMillis: connectTimeoutMs });
  client.on("error", () => {});
  try {
    await client.connect();
    return [
      driver,
      await versionFinding(client),
      ...(await durabilityFindings(client)),
      await clock(client),
      await writesFinding(client, where),
      await schemaOf(client, schema),
      await connectionsFinding(client),
    ];
  } catch (error) {
    const remedy =
      "Check host, port, user and password, and that the server accepts connections from here.";
    return [driver, failed("server", `${where}: ${messageOf(error)}`, remedy)];
  } finally {
    await client.end().catch(() => {});
  }
}

async function setting(client: Client, name: string): Promise<string> {
  const { rows } = await client.query("SELECT current_setting($1) AS value", [name]);
  return String(rows[0]?.value);
}

async function versionFinding(client: Client): Promise<Finding> {
  const number = Number(await setting(client, "server_version_num"));
  const says = `PostgreSQL is ${await setting(client, "server_version")}.`;
  return number >= versionNeeded
    ? ok("server", says)
    : failed("server", says, "Millrace needs PostgreSQL 13 or newer.");
}

async function durabilityFindings(client: Client): Promise<readonly Finding[]> {
  const commit = await setting(client, "synchronous_commit");
  const check = "durability";
  const findings: Finding[] = [
    commit === "off"
      ? warning(
          check,
          "synchronous_commit is off: a crash of the server may lose acknowledged jobs.",
          "Turn it on for this database: ALTER DATABASE … SET synchronous_commit = on.",
        )
      : ok(check, `synchronous_commit is ${commit}.`),
  ];
  for (const name of ["fsync", "full_page_writes"]) {
    const value = await setting(client, name);
    findings.push(
      value === "on"
        ? ok(check, `${name} is on.`)
        : failed(
            check,
            `${name} is ${value}: a crash of the machine may damage the database.`,
            `Set ${name} = on in postgresql.conf.`,
          ),
    );
  }
  return findings;
}

async function clock(client: Client): Promise<Finding> {
  const before = Date.now();
  const { rows } = await client.query("SELECT extract(epoch FROM clock_timestamp()) * 1000 AS now");
  return clockFinding(Number(rows[0]?.now) - (before + Date.now()) / 2);
}

async function writesFinding(client: Client, where: string): Promise<Finding> {
  const { rows } = await client.query("SELECT pg_is_in_recovery() AS standby");
  const isReadOnly = (await setting(client, "default_transaction_read_only")) === "on";
  if (rows[0]?.standby === true)
    return failed("writable", `${where} is a standby.`, "Name the primary in the URL.");
  return isReadOnly
    ? failed("writable", "default_transaction_read_only is on.", "Use a user who may write.")
    : ok("writable", "The server takes writes.");
}

async function schemaOf(client: Client, schema: string): Promise<Finding> {
  const { rows } = await client.query("SELECT to_regclass($1) IS NOT NULL AS there", [
    `"${schema}".store`,
  ]);
  if (rows[0]?.there === true) {
    const found = await client.query(`SELECT version FROM "${schema}".store`);
    return schemaFinding(Number(found.rows[0]?.version), migrations.length);
  }
  const right = await client.query(
    "SELECT has_database_privilege(current_database(), 'CREATE') AS may",
  );
  return right.rows[0]?.may === true
    ? notThereYet(`The schema ${schema}`)
    : failed(
        "schema",
        `The schema ${schema} is not there, and this user may not make it.`,
        `CREATE SCHEMA ${schema} AUTHORIZATION … as an owner of the database.`,
      );
}

const connectionsShare = 0.8;

async function connectionsFinding(client: Client): Promise<Finding> {
  const max = Number(await setting(client, "max_connections"));
  const { rows } = await client.query("SELECT count(*) AS used FROM pg_stat_activity");
  const used = Number(rows[0]?.used);
  const says = `${used} of ${max} connections are in use.`;
  return used < max * connectionsShare
    ? ok("connections", says)
    : warning(
        "connections",
        says,
        "Lower ?poolMax= in the URLs, raise max_connections, or use PgBouncer.",
      );
}
