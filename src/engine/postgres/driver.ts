/**
 * Connections to a PostgreSQL server: a pool that runs operations, alone or in transactions, and the server's clock.
 * Where a pooler may stand between, nothing belongs to a session.
 */
import type { Writable } from "node:stream";
import type { Pool, PoolClient, PoolConfig, QueryConfig } from "pg";
import { StoreClosed, type StoreError, StoreUnavailable } from "../errors.js";
import type { SqlRow, Statement, Step } from "../sql/statement.js";
import type { Address } from "./address.js";
import { countedQueries } from "./counted-query.js";
import { CreateConnection } from "./create-connection.js";
import { isConnectionLoss, storeError } from "./faults.js";
import { migrate } from "./migrate.js";
import { ServerClock } from "./server-clock.js";
import { storable } from "./storable.js";
import { StatementTexts } from "./text.js";

/** How long to wait for a connection before the server counts as unreachable. */
const connectTimeoutMs = 10_000;

/** How long an unused connection is kept. */
const idleTimeoutMs = 30_000;

/** Runs one statement at a time. */
export interface Session {
  execute(statement: Statement): Promise<readonly SqlRow[]>;
}

/** Calls whose statements take a server milliseconds to plan. Each session plans them anew. */
export type Purpose = "claim" | "create" | "end";

/** A notification to all who listen on a channel. */
export interface Notice {
  readonly channel: string;
  readonly payload: string;
  /** How many hints there had been when it was made. */
  readonly hints: number;
}

/** Runs an operation on a session. */
export async function run<Value>(session: Session, step: Step<Value>): Promise<Value> {
  let next = step.next(noRows);
  while (!next.done) next = step.next(await session.execute(next.value));
  return next.value;
}

const noRows: readonly SqlRow[] = [];

type PgModule = typeof import("pg");

/** Loads the driver, which is optional. */
export async function loadDriver(where: string): Promise<PgModule> {
  try {
    const module = await import("pg");
    // A CommonJS package: what it exports may stand under `default`.
    return (module.default ?? module) as PgModule;
  } catch {
    const message = 'postgres: stores need the package pg; install it with "npm install pg".';
    throw new StoreUnavailable({ url: where, message });
  }
}

/** The oid of bigint, which the driver gives as text unless it is told otherwise. */
const bigintOid = 20;

/** The most time that a transaction of ours waits for a lock that somebody else holds: longer than a disk that stalls. */
const lockTimeoutMs = 5_000;

export class Database {
  readonly #address: Address;
  readonly #pool: Pool;
  readonly #clock = new ServerClock();
  readonly #given: (() => number) | null;
  readonly #texts: StatementTexts;
  readonly #CountedQuery: ReturnType<typeof countedQueries>;
  readonly #creating: CreateConnection;
  /** What each connection has served first, if that was one of the purposes. */
  readonly #purposes = new WeakMap<PoolClient, Purpose>();
  #isClosed = false;
  #storeId = "";
  /** The name of the table that tells this place from others. */
  readonly home: "store" | "outbox_home";
  #isDirect = false;

  /** `given` tells the time where a clock of the caller's own rules; otherwise the server's does. */
  constructor(
    pg: PgModule,
    address: Address,
    given: (() => number) | null,
    home: "store" | "outbox_home" = "store",
  ) {
    this.#address = address;
    this.home = home;
    this.#given = given;
    this.#CountedQuery = countedQueries(pg.Query);
    this.#texts = new StatementTexts(`"${address.schema}"`);
    const types: NonNullable<PoolConfig["types"]> = {
      getTypeParser: (oid: number, format?: "text" | "binary") =>
        oid === bigintOid ? Number : pg.types.getTypeParser(oid, format as "text"),
    };
    this.#pool = new pg.Pool({
      connectionString: address.connectionString,
      max: address.poolMax,
      types,
      application_name: "millrace",
      connectionTimeoutMillis: connectTimeoutMs,
      idleTimeoutMillis: idleTimeoutMs,
      keepAlive: true,
      allowExitOnIdle: true,
      pipeline: true,
    } as PoolConfig);
    this.#creating = new CreateConnection(this.#pool, address.poolMax);
    // An idle connection that breaks is replaced when the next one is needed.
    this.#pool.on("error", () => {});
    // One that breaks between two statements of a transaction fails the next of them.
    this.#pool.on("connect", (client) => {
      client.on("error", (error) => this.#creating.broke(client, error));
      if (this.#isDirect) void settle(client).catch(() => {});
    });
  }

  /** How errors name the store. */
  get where(): string {
    return this.#address.where;
  }

  /** The table that says which store this is, and what it says. */
  get storeTable(): string {
    return `"${this.#address.schema}".${this.home}`;
  }

  get storeId(): string {
    return this.#storeId;
  }

  /** The text of a statement for a client that is not ours. */
  textOf(sql: string): string {
    return this.#texts.of(sql).text;
  }

  /** The time of the store. */
  now(): number {
    return this.#given?.() ?? this.#clock.now();
  }

  /** How many connections there are, are in use and are waited for. */
  get load(): { readonly open: number; readonly used: number; readonly waitedFor: number } {
    const { totalCount, idleCount, waitingCount } = this.#pool;
    const used = totalCount - idleCount - (this.#creating.isFree ? 1 : 0);
    return { open: totalCount, used, waitedFor: waitingCount };
  }

  /** Brings the schema to the newest version, as `prepare` does it, and learns the server's time. */
  provision(prepare = migrate): Promise<void> {
    return this.#guard(async () => {
      const client = await this.#pool.connect();
      try {
        this.#storeId = await prepare(client, this.#address);
        this.#isDirect = await isDirect(client);
        if (this.#isDirect) await settle(client);
        const sentAt = this.#clock.monotonic();
        const { rows } = await client.query(selectNow);
        this.#clock.learn(Number(rows[0]?.now), sentAt);
      } finally {
        client.release();
      }
    });
  }

  /** Sends a notification. */
  async notify(notice: Notice): Promise<void> {
    if (this.#isClosed) throw this.#closed();
    const client = await this.#connect(undefined);
    try {
      await this.#countOn(client, notification(notice));
      client.release();
    } catch (error) {
      client.release(error as Error);
      throw error;
    }
  }

  /**
   * Runs an operation of one statement, and when that has committed sends a notification if there is one, on the same
   * connection and without waiting for the answer in between.
   */
  async runAndNotify<Value>(step: Step<Value>, notice: Notice | null): Promise<Value> {
    if (this.#isClosed) throw this.#closed();
    const since = performance.now();
    const creating = this.#creating;
    const client = creating.take() ?? creating.adopt(await this.#connect("create"));
    let lost: Error | undefined;
    let notified: Promise<unknown> | undefined;
    try {
      let next = step.next(noRows);
      while (!next.done) {
        if (notice) sendTogether(client);
        const answer = this.#ask(client, next.value);
        // A notification that cannot be sent is a hint lost, no more.
        if (notice) notified = this.#countOn(client, notification(notice)).catch(() => {});
        next = step.next(await answer);
      }
      return next.value;
    } catch (error) {
      if (isConnectionLoss(error)) lost = error as Error;
      throw error;
    } finally {
      // All notifications of a server need one lock, which others may hold for as long as their commits take.
      if (lost !== undefined) creating.lose(client, lost);
      else if (notified !== undefined) void notified.then(() => creating.done(client, since));
      else creating.done(client, since);
    }
  }

  /** Sends a statement, and gives its rows. */
  #ask(client: PoolClient, statement: Statement): Promise<readonly SqlRow[]> {
    if (statement.counted) return this.#countOn(client, statement);
    return client.query(this.query(statement)).then(({ rows }) => rows as readonly SqlRow[]);
  }

  /** Sends a statement whose rows nobody looks at. */
  #countOn(client: PoolClient, { sql, values, planned }: Statement): Promise<readonly SqlRow[]> {
    const { text, name } = this.#texts.of(sql);
    return new Promise((resolve, reject) => {
      const query = new this.#CountedQuery(text, storable(values));
      if (planned && this.#isDirect) query.name = name;
      query.callback = (error, result) =>
        error ? reject(error) : resolve([{ count: result.rowCount ?? 0 }]);
      client.query(query);
    });
  }

  /** Runs an operation, each statement of which is a transaction of its own. */
  run<Value>(step: Step<Value>): Promise<Value> {
    return this.#guard(() => run(this, step));
  }

  /** Runs one statement. */
  async execute(statement: Statement): Promise<readonly SqlRow[]> {
    this.#giveNext(undefined);
    const { rows, rowCount } = await this.#pool.query(this.query(statement));
    return statement.counted ? [{ count: rowCount ?? 0 }] : (rows as readonly SqlRow[]);
  }

  /**
   * Carries out work in one transaction, which commits when the work is done. What gives no rows is sent without
   * waiting for the answer to what was sent before, the begin and the commit included. Work that is a single statement
   * needs neither, where the session has the settings.
   */
  transaction<Value>(
    work: (session: Session, now: number) => Promise<Value>,
    purpose?: Purpose,
  ): Promise<Value> {
    return this.#guard(async () => {
      const client = await this.#connect(purpose);
      const sent: Promise<unknown>[] = [];
      const send = (query: string | QueryConfig) => {
        sendTogether(client);
        const answer = client.query(query);
        answer.catch(() => {});
        sent.push(answer);
        return answer;
      };
      let lost: Error | undefined;
      let hasBegun = false;
      let isOver = false;
      const begin = () => {
        hasBegun = true;
        this.#begin(send);
      };
      const end = () => {
        isOver = true;
        if (hasBegun) void send("COMMIT");
      };
      try {
        const session: Session = {
          execute: async (statement) => {
            if (isOver) throw new Error("A statement came after the last one of its transaction.");
            const isAlone = statement.last && this.#isDirect && this.#clock.isFresh;
            if (!hasBegun && !isAlone) begin();
            const answer = send(this.query(statement));
            if (statement.last) end();
            if (statement.silent) return noRows;
            return (await answer).rows as readonly SqlRow[];
          },
        };
        const value = await work(session, this.now());
        if (!isOver) end();
        for (const answer of sent) await answer;
        return value;
      } catch (error) {
        // What failed first has failed all that was sent after it.
        const fault = (await firstFault(sent)) ?? error;
        if (isConnectionLoss(fault)) lost = fault as Error;
        else if (hasBegun) await client.query("ROLLBACK").catch((broken: Error) => (lost = broken));
        throw fault;
      } finally {
        // A broken connection is not given back to the pool.
        client.release(lost);
      }
    });
  }

  /** A connection: one that has served the same purpose before, if one is free, and else one that has served none. */
  async #connect(purpose: Purpose | undefined): Promise<PoolClient> {
    this.#giveNext(purpose);
    const client = await this.#pool.connect();
    if (purpose !== undefined && !this.#purposes.has(client)) this.#purposes.set(client, purpose);
    return client;
  }

  /** Lets a pool that gives the connection which was freed last give the one that fits a purpose. */
  #giveNext(purpose: Purpose | undefined): void {
    this.#creating.makeRoom();
    const { _idle: idle } = this.#pool as unknown as { _idle?: { readonly client: PoolClient }[] };
    if (idle === undefined) return;
    const servedAs = (wanted: Purpose | undefined) =>
      idle.findLastIndex(({ client }) => this.#purposes.get(client) === wanted);
    let place = servedAs(purpose);
    if (place < 0) place = servedAs(undefined);
    if (place >= 0 && place < idle.length - 1) idle.push(...idle.splice(place, 1));
  }

  /** Begins a transaction, and learns the server's time from that. */
  #begin(send: (query: string) => Promise<unknown>): void {
    const sentAt = this.#clock.monotonic();
    // Statements in one message are answered by a list, which the driver's types do not know.
    const learn = (answers: unknown) => {
      const results = answers as readonly { readonly rows: readonly SqlRow[] }[];
      this.#clock.learn(Number(results.at(-1)?.rows[0]?.now), sentAt);
    };
    send(this.#isDirect ? beginWhereSettled : beginAnywhere).then(learn, () => {});
  }

  /** A statement as the driver takes it. A server remembers plans for a session, which no pooler stands between. */
  query({ sql, values, raw, planned }: Statement): QueryConfig & { rowMode?: "array" } {
    const { text, name } = this.#texts.of(sql);
    return {
      text,
      values: storable(values) as unknown[],
      ...(raw ? { rowMode: "array" } : null),
      ...(planned && this.#isDirect ? { name } : null),
    };
  }

  /** A connection that listens; whoever takes it ends it. */
  listener(pg: PgModule): InstanceType<PgModule["Client"]> {
    return new pg.Client({
      connectionString: this.#address.connectionString,
      application_name: "millrace-listener",
      connectionTimeoutMillis: connectTimeoutMs,
      keepAlive: true,
    });
  }

  /** Waits for what is under way, then lets go of all connections. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#creating.close();
    await this.#pool.end();
  }

  #guard<Value>(work: () => Promise<Value>): Promise<Value> {
    return this.#isClosed ? Promise.reject(this.#closed()) : work();
  }

  #closed(): StoreClosed {
    const message = "The store was closed before this call was carried out.";
    return new StoreClosed({ url: this.#address.where, message });
  }

  /** What a caller sees of a fault. */
  storeError(error: unknown): StoreError {
    return storeError(error, this.#address.where);
  }
}

/**
 * Holds back what is sent on a connection until the end of this turn. Each write wakes the server, which costs more than
 * what is written.
 */
function sendTogether(client: PoolClient): void {
  const { connection } = client as unknown as { connection?: { stream?: Partial<Writable> } };
  const stream = connection?.stream;
  stream?.cork?.();
  process.nextTick(() => stream?.uncork?.());
}

/** A notification is a hint that may be lost, so that its commit does not wait for the disk. */
function notification({ channel, payload }: Notice): Statement {
  return { sql: notify, values: [channel, payload], planned: true };
}

const notify = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(?, ?)";

/** Whether the server itself is at the other end: a pooler tells another process number than the server does. */
async function isDirect(client: PoolClient): Promise<boolean> {
  const { rows } = await client.query("SELECT pg_backend_pid() AS pid");
  return (client as unknown as { processID?: number }).processID === rows[0]?.pid;
}

/** The fault of the first that failed. */
async function firstFault(sent: readonly Promise<unknown>[]): Promise<unknown> {
  for (const answer of await Promise.allSettled(sent))
    if (answer.status === "rejected") return answer.reason;
  return null;
}

const now = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now";

const selectNow = `SELECT ${now}`;

/**
 * Rows of `ready` and `leases` come and go faster than statistics follow, and a plan for a table that was empty a minute ago
 * reads all of it. Every statement of ours has an index to go by, so that the planner is told to use it. There is but one plan
 * for each, so that one which is remembered is never made again for other values.
 */
const planning = {
  jit: "off",
  enable_seqscan: "off",
  enable_bitmapscan: "off",
  enable_mergejoin: "off",
  plan_cache_mode: "force_generic_plan",
};

const locking = { lock_timeout: String(lockTimeoutMs) };

/** One statement makes all settings, which costs less than one for each; for the transaction, or for the session. */
function setting(settings: Readonly<Record<string, string>>, isLocal: boolean): string {
  const calls = Object.entries(settings).map(
    ([name, value]) => `set_config('${name}', '${value}', ${isLocal})`,
  );
  return `SELECT ${calls.join(", ")}`;
}

/**
 * The isolation is said, too, because a database may have another default, under which those who meet would fail instead of
 * waiting for each other.
 */
const begin = "BEGIN ISOLATION LEVEL READ COMMITTED";
const beginAnywhere = `${begin}; ${setting({ ...planning, ...locking }, true)}, ${now}`;
const beginWhereSettled = `${begin}; ${setting(locking, true)}, ${now}`;

/** Makes the settings for a session that nobody else gets, where a statement may be a transaction of its own. */
async function settle(client: PoolClient): Promise<void> {
  const isolation = { default_transaction_isolation: "read committed" };
  await client.query(setting({ ...planning, ...isolation }, false));
}
