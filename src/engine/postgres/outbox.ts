/**
 * The outbox in a PostgreSQL database: two tables in a schema of Millrace's own, written on the caller's client.
 */
import type { PoolClient } from "pg";
import { type Clock, systemClock } from "../clock.js";
import type { Outbox, OutboxEntry, OutboxRow } from "../outbox.js";
import { arrays, type Step } from "../sql/statement.js";
import type { CallerTransaction, SyncTransaction } from "../transaction.js";
import { type Address, addressOf } from "./address.js";
import { asynchronous, Callers, undo } from "./caller.js";
import { CommitWatch } from "./commit-watch.js";
import { Database } from "./driver.js";
import { detailOf, isNameTaken, schemaTaken } from "./faults.js";
import { lockSpace, makeSchema } from "./migrate.js";
import { loadDriver, type PgModule } from "./module.js";
import { run } from "./session.js";
import { array, list } from "./text.js";
import { channelOf, Wake } from "./wake.js";

/** Opens the outbox of a database. `?schema=` in the URL names the schema, as for a store. */
export async function openPostgresOutbox(
  url: string,
  { clock = systemClock }: { readonly clock?: Clock } = {},
): Promise<Outbox> {
  const address = addressOf(url);
  return new PostgresOutbox(await loadDriver(address.where), address, clock);
}

class PostgresOutbox implements Outbox {
  readonly url: string;
  readonly #database: Database;
  readonly #callers: Callers;
  readonly #commitWatch: CommitWatch;
  readonly #wake: Wake;

  constructor(pg: PgModule, address: Address, clock: Clock) {
    this.url = address.where;
    this.#database = new Database(pg, address, () => clock.now(), "outbox_home");
    this.#callers = new Callers(this.#database);
    this.#commitWatch = new CommitWatch({ clock, run: (step) => this.#database.run(step) });
    this.#wake = new Wake({
      clock,
      channel: channelOf(address.schema, "millrace_outbox"),
      connect: () => this.#database.listener(),
      notify: (notice) => this.#database.notify(notice),
    });
  }

  provision(): Promise<void> {
    return this.#guard(() => this.#database.provision(makeTables));
  }

  put(entries: readonly OutboxEntry[], tx: CallerTransaction): Promise<void> {
    return this.#callers.use(tx, async (session, xid) => {
      await session.execute({ sql: "SAVEPOINT millrace", values: [] });
      try {
        await run(session, insertRows(entries));
        await session.execute({ sql: "RELEASE SAVEPOINT millrace", values: [] });
      } catch (error) {
        await undo(session);
        throw error;
      }
      this.#commitWatch.add(xid, () => this.#wake.hint(woke));
    });
  }

  /** No client of PostgreSQL answers at once. */
  putSync(_: readonly OutboxEntry[], tx: SyncTransaction): void {
    asynchronous(tx);
  }

  take(service: string, after: number, limit: number): Promise<readonly OutboxRow[]> {
    return this.#guard(() => this.#database.run(readRows(service, after, limit)));
  }

  remove(numbers: readonly number[]): Promise<void> {
    return this.#guard(() => this.#database.run(removeRows(numbers)));
  }

  wake(on: () => void): () => void {
    return this.#wake.listen("ready", on);
  }

  async close(): Promise<void> {
    await this.#commitWatch.close();
    await this.#wake.close();
    await this.#database.close();
  }

  async #guard<Value>(work: () => Promise<Value>): Promise<Value> {
    try {
      return await work();
    } catch (error) {
      throw await this.#database.faultOf(error);
    }
  }
}

const woke = { ready: true, ended: false, cancel: false } as const;

function* insertRows(entries: readonly OutboxEntry[]): Step<void> {
  yield {
    sql: `INSERT INTO outbox (service, body)
      SELECT service, body FROM unnest(${array("text")}, ${array("text")}) WITH ORDINALITY AS entry (service, body, place)
      ORDER BY place`,
    values: [list(entries.map(({ service }) => service)), list(entries.map(({ body }) => body))],
  };
}

function* readRows(service: string, after: number, limit: number): Step<readonly OutboxRow[]> {
  const rows = yield {
    sql: "SELECT n, body FROM outbox WHERE service = ? AND n > ? ORDER BY n LIMIT ?",
    values: [service, after, limit],
    raw: true,
  };
  return arrays<[number, string]>(rows).map(([n, body]) => ({ n, body }));
}

function* removeRows(numbers: readonly number[]): Step<void> {
  yield { sql: `DELETE FROM outbox WHERE n = ANY(${array("bigint")})`, values: [list(numbers)] };
}

/** Makes the tables if they are not there, one process at a time, and gives the id of the place. */
async function makeTables(client: PoolClient, address: Address): Promise<string> {
  const { schema } = address;
  const home = `"${schema}".outbox_home`;
  const found = await client.query("SELECT to_regclass($1)::text AS found", [home]);
  if (found.rows[0]?.found === null) {
    await client.query("BEGIN");
    try {
      await client.query("SELECT pg_advisory_xact_lock($1, hashtext($2))", [lockSpace, schema]);
      await makeSchema(client, address);
      await client.query(tables(schema));
      await client.query("COMMIT");
    } catch (error) {
      await client.query("ROLLBACK").catch(() => {});
      if (isNameTaken(error)) throw schemaTaken(address, detailOf(error));
      throw error;
    }
  }
  const { rows } = await client.query(`SELECT id FROM ${home}`);
  return String(rows[0]?.id);
}

function tables(schema: string): string {
  return `
    -- What was created in transactions and is not published yet. Numbers are never used again.
    CREATE TABLE IF NOT EXISTS "${schema}".outbox (
      n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      service text COLLATE "C" NOT NULL, body text COLLATE "C" NOT NULL
    ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
    CREATE INDEX IF NOT EXISTS outbox_of_service ON "${schema}".outbox (service, n);
    -- Tells this outbox from others, so that a transaction of another database is refused.
    CREATE TABLE IF NOT EXISTS "${schema}".outbox_home (id text NOT NULL);
    INSERT INTO "${schema}".outbox_home (id)
      SELECT gen_random_uuid()::text WHERE NOT EXISTS (SELECT 1 FROM "${schema}".outbox_home)`;
}
