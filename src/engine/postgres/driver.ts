/**
 * Connections to a PostgreSQL server: a pool that runs operations, alone or in transactions, and the server's clock.
 * Where a pooler may stand between, nothing belongs to a session.
 */
import type { Client, ClientConfig, Pool, PoolClient, PoolConfig, QueryConfig } from "pg";
import { StoreClosed, type StoreError } from "../errors.js";
import type { SqlRow, Statement, Step } from "../sql/statement.js";
import type { Address } from "./address.js";
import { AnswerWatch } from "./answer-watch.js";
import { Connections, idleTimeoutMs, type Purpose } from "./connections.js";
import { CreateConnection } from "./create-connection.js";
import { isConnectionLoss, isReadOnly, storeError } from "./faults.js";
import { migrate } from "./migrate.js";
import type { PgModule } from "./module.js";
import { NewerSchema } from "./newer-schema.js";
import { plannedQueries } from "./planned-query.js";
import { meetServer } from "./server.js";
import { ServerClock } from "./server-clock.js";
import { noRows, run, runOn, type Session } from "./session.js";
import { beginLook, beginText, selectNow, settle } from "./settings.js";
import { closingClient, lose, sendTogether, socketOf } from "./socket.js";
import { storable } from "./storable.js";
import { StatementTexts } from "./text.js";

/** How long to wait for a connection before the server counts as unreachable. */
const connectTimeoutMs = 10_000;

/** How long a server may take to say what it works on. */
const lookTimeouts = { connectionTimeoutMillis: 3_000, query_timeout: 3_000 };

/** A connection on which nothing happens notices within half a minute that the other machine is gone. */
const keepingAlive = { keepAlive: true, keepAliveInitialDelayMillis: 10_000 };

/** A notification to all who listen on a channel. */
export interface Notice {
  readonly channel: string;
  readonly payload: string;
  /** How many hints there had been when it was made. */
  readonly hints: number;
}

/** The oids of whole numbers: the driver gives the largest as text, and the process may have parsers of its own. */
const wholeOids: ReadonlySet<number> = new Set([20, 21, 23]);

/** How an operation is carried out. */
export interface OperateOptions {
  readonly purpose?: Purpose;
  /** How long it waits for a lock, if not for as long as others do. */
  readonly lockMs?: number;
}

export class Database {
  readonly #address: Address;
  readonly #Client: typeof Client;
  readonly #pool: Pool;
  readonly #connections: Connections;
  readonly #answers: AnswerWatch;
  readonly #creating: CreateConnection;
  /** None where there are no versions. */
  readonly #newer: NewerSchema | null;
  readonly #clock = new ServerClock();
  readonly #given: (() => number) | null;
  readonly #texts: StatementTexts;
  readonly #PlannedQuery: ReturnType<typeof plannedQueries>;
  #listener: Client | undefined;
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
    this.#texts = new StatementTexts(`"${address.schema}"`);
    const types: NonNullable<PoolConfig["types"]> = {
      getTypeParser: (oid: number, format?: "text" | "binary") =>
        wholeOids.has(oid) ? Number : pg.types.getTypeParser(oid, format as "text"),
    };
    this.#PlannedQuery = plannedQueries(pg.Query, (oid) => types.getTypeParser(oid, "text"));
    this.#Client = closingClient(pg.Client);
    this.#pool = new pg.Pool({
      Client: this.#Client,
      connectionString: address.connectionString,
      max: address.poolMax,
      types,
      application_name: "millrace",
      connectionTimeoutMillis: connectTimeoutMs,
      idleTimeoutMillis: idleTimeoutMs,
      ...keepingAlive,
      allowExitOnIdle: true,
      pipeline: true,
    } as PoolConfig);
    // An idle connection that breaks is replaced when the next one is needed.
    this.#pool.on("error", () => {});
    this.#connections = new Connections(this.#pool, address.poolMax);
    this.#creating = new CreateConnection(this.#connections);
    this.#answers = new AnswerWatch({
      clients: () => [...this.#connections.all, ...(this.#listener ? [this.#listener] : [])],
      connect: () => this.#client("millrace-look", lookTimeouts),
      isDirect: () => this.#isDirect,
      onSilence: () => this.#replaceAll(),
    });
    this.#newer =
      home === "store" ? new NewerSchema(address, (text) => this.#pool.query(text)) : null;
    this.#pool.on("connect", (client) => {
      this.#answers.start();
      if (this.#isDirect) void settle(client).catch(() => {});
      if (this.#storeId !== "") this.#newer?.connected(client);
    });
  }

  /** How errors name the store. */
  get where(): string {
    return this.#address.where;
  }

  get schema(): string {
    return this.#address.schema;
  }

  get poolMax(): number {
    return this.#address.poolMax;
  }

  /** What the table `home` says about which store this is. */
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
    return this.#connections.load;
  }

  /** Brings the schema to the newest version, as `prepare` does it, and learns the server's time. */
  provision(prepare = migrate): Promise<void> {
    return this.#guard(async () => {
      const client = await this.#pool.connect();
      try {
        const isDirect = await meetServer(client, this.#address);
        this.#storeId = await prepare(client, this.#address);
        this.#isDirect = isDirect;
        if (isDirect) await settle(client);
        await this.#askTime(client);
      } finally {
        client.release();
      }
    });
  }

  /** Sends a notification. */
  async notify(notice: Notice): Promise<void> {
    this.#checkUsable();
    const client = await this.#connections.take();
    try {
      await this.#ask(client, notification(notice));
      client.release();
    } catch (error) {
      this.#lostBy(error);
      client.release(error as Error);
      throw error;
    }
  }

  /**
   * Runs an operation of one statement, and when that has committed sends a notification if there is one, on the same
   * connection and without waiting for the answer in between.
   */
  async runAndNotify<Value>(step: Step<Value>, notice: Notice | null): Promise<Value> {
    this.#checkUsable();
    const since = performance.now();
    const taken = this.#creating.take();
    const client = taken instanceof Promise ? await taken : taken;
    const giveBack = () => this.#creating.done(client, since, lost);
    let lost: Error | undefined;
    let behind: Promise<unknown> | undefined;
    try {
      let next = step.next(noRows);
      while (!next.done) {
        const stream = notice ? socketOf(client) : undefined;
        stream?.cork?.();
        const answer = this.#ask(client, next.value);
        behind = this.#sendBehind(client, notice);
        stream?.uncork?.();
        next = step.next(await answer);
      }
      return next.value;
    } catch (error) {
      lost = this.#lostBy(error);
      throw error;
    } finally {
      // All notifications of a server need one lock, which others may hold for as long as their commits take.
      if (behind === undefined || lost !== undefined) giveBack();
      else void behind.then(giveBack);
    }
  }

  /**
   * Sends what follows a create and nobody waits for: a question for the time, because who only creates asks in no other way, and
   * a notification. Gives the last answer, which is never a fault.
   */
  #sendBehind(client: PoolClient, notice: Notice | null): Promise<unknown> | undefined {
    let read: Promise<void> | undefined;
    if (this.#given === null && this.#clock.isTimeToAsk())
      read = this.#askTime(client).catch(() => {});
    // A notification that cannot be sent is a hint lost, no more.
    return notice ? this.#ask(client, notification(notice)).catch(() => {}) : read;
  }

  async #askTime(client: PoolClient): Promise<void> {
    const sentAt = this.#clock.monotonic();
    const { rows } = await client.query(selectNow);
    this.#clock.learn(Number(rows[0]?.now), sentAt);
  }

  /** Sends a statement, and gives its rows. */
  #ask(client: PoolClient, statement: Statement): Promise<readonly SqlRow[]> {
    if (statement.counted || (statement.planned && statement.raw))
      return this.#askPlanned(client, statement);
    return client.query(this.query(statement)).then(({ rows }) => rows as readonly SqlRow[]);
  }

  /** Sends a statement whose rows nobody looks at, or one that the server remembers. */
  #askPlanned(client: PoolClient, statement: Statement): Promise<readonly SqlRow[]> {
    const { sql, values, planned, counted } = statement;
    const { text, name } = this.#texts.of(sql);
    return new Promise((resolve, reject) => {
      const query = new this.#PlannedQuery(text, storable(values));
      if (planned && this.#isDirect) query.name = name;
      const received: SqlRow[] = [];
      if (!counted) query.received = received;
      query.callback = (error, result) => {
        if (error) reject(error);
        else resolve(counted ? [{ count: result.rowCount ?? 0 }] : received);
      };
      client.query(query);
    });
  }

  /** Runs an operation, each statement of which is a transaction of its own. */
  run<Value>(step: Step<Value>): Promise<Value> {
    return this.#guard(() => run(this, step));
  }

  /** Runs one statement. */
  async execute(statement: Statement): Promise<readonly SqlRow[]> {
    this.#connections.makeReady();
    try {
      const { rows, rowCount } = await this.#pool.query(this.query(statement));
      return statement.counted ? [{ count: rowCount ?? 0 }] : (rows as readonly SqlRow[]);
    } catch (error) {
      this.#lostBy(error);
      throw error;
    }
  }

  /**
   * Runs an operation that reads what people ask for, each statement planned for its values. Where a pooler may stand between, no
   * session has our settings, and the server does so by itself.
   */
  look<Value>(step: Step<Value>): Promise<Value> {
    if (!this.#isDirect) return this.run(step);
    return this.#with(undefined, (client) =>
      this.#inTransaction(client, (session) => run(session, step), beginLook),
    );
  }

  /** Carries out work in one transaction, which commits when the work is done. */
  transaction<Value>(work: (session: Session, now: number) => Promise<Value>): Promise<Value> {
    return this.#with(undefined, (client) =>
      this.#inTransaction(client, (session) => work(session, this.now())),
    );
  }

  /**
   * Carries out an operation in one transaction. One that is a single statement needs none around it, where the session has
   * the settings.
   */
  operate<Value>(
    operation: (now: number) => Step<Value>,
    { purpose, lockMs }: OperateOptions = {},
  ): Promise<Value> {
    return this.#with(purpose, async (client) => {
      const step = operation(this.now());
      const first = step.next(noRows);
      const isSettled = this.#isDirect && this.#clock.isFresh && lockMs === undefined;
      if (first.done || !first.value.last || !isSettled)
        return this.#inTransaction(
          client,
          (session) => runOn(session, step, first),
          beginText(this.#isDirect, lockMs),
        );
      const { done, value } = step.next(await this.#ask(client, first.value));
      if (!done) throw afterLast();
      return value;
    });
  }

  /** Does something with a connection. */
  async #with<Value>(
    purpose: Purpose | undefined,
    use: (client: PoolClient) => Promise<Value>,
  ): Promise<Value> {
    this.#checkUsable();
    const taken = this.#connections.take(purpose);
    const client = taken instanceof Promise ? await taken : taken;
    let lost: Error | undefined;
    try {
      return await use(client);
    } catch (error) {
      lost = this.#lostBy(error);
      throw error;
    } finally {
      this.#connections.giveBack(client, purpose, lost);
    }
  }

  /**
   * Gives a fault that a connection is not used again after. A server that may not be written has most likely been replaced by
   * another one, to which no connection leads that there is.
   */
  #lostBy(error: unknown): Error | undefined {
    if (isReadOnly(error)) this.#replaceAll();
    else if (!isConnectionLoss(error)) return undefined;
    return error as Error;
  }

  /** Uses no connection again that there is. */
  #replaceAll(): void {
    this.#connections.replaceAll();
    if (this.#listener) lose(this.#listener, "the server has been replaced");
  }

  /**
   * Does work in a transaction, which begins with its first statement and commits when it is done. What gives no rows is sent
   * without waiting for the answer to what was sent before, the begin and the commit included.
   */
  async #inTransaction<Value>(
    client: PoolClient,
    work: (session: Session) => Promise<Value>,
    begin = beginText(this.#isDirect),
  ): Promise<Value> {
    const sent: Promise<unknown>[] = [];
    const send = <Answer>(ask: () => Promise<Answer>): Promise<Answer> => {
      sendTogether(client);
      const answer = ask();
      answer.catch(() => {});
      sent.push(answer);
      return answer;
    };
    let hasBegun = false;
    let isOver = false;
    const end = () => {
      isOver = true;
      if (hasBegun) void send(() => client.query("COMMIT"));
    };
    try {
      const session: Session = {
        execute: async (statement) => {
          if (isOver) throw afterLast();
          if (!hasBegun) this.#begin((query) => send(() => client.query(query)), begin);
          hasBegun = true;
          const answer = send(() => this.#ask(client, statement));
          if (statement.last) end();
          return statement.silent ? noRows : answer;
        },
      };
      const value = await work(session);
      if (!isOver) end();
      for (const answer of sent) await answer;
      return value;
    } catch (error) {
      // What failed first has failed all that was sent after it.
      const fault = (await firstFault(sent)) ?? error;
      // Where it cannot be rolled back the connection is broken, and not used again.
      if (hasBegun && !isConnectionLoss(fault)) await client.query("ROLLBACK").catch(() => {});
      throw fault;
    }
  }

  /** Begins a transaction, and learns the server's time from that. */
  #begin(send: (query: string) => Promise<unknown>, begin: string): void {
    const sentAt = this.#clock.monotonic();
    // Statements in one message are answered by a list, which the driver's types do not know.
    const learn = (answers: unknown) => {
      const results = answers as readonly { readonly rows: readonly SqlRow[] }[];
      this.#clock.learn(Number(results.at(-1)?.rows[0]?.now), sentAt);
    };
    send(begin).then(learn, () => {});
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
  listener(): Client {
    this.#listener = this.#client("millrace-listener");
    return this.#listener;
  }

  /** A connection of its own. */
  #client(name: string, config?: ClientConfig): Client {
    return new this.#Client({
      connectionString: this.#address.connectionString,
      application_name: name,
      connectionTimeoutMillis: connectTimeoutMs,
      ...keepingAlive,
      ...config,
    });
  }

  /** Waits for what is under way, then lets go of all connections. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#connections.close();
    this.#answers.stop();
  }

  #guard<Value>(work: () => Promise<Value>): Promise<Value> {
    try {
      this.#checkUsable();
    } catch (error) {
      return Promise.reject(error);
    }
    return work();
  }

  /** Refuses what comes after a newer schema was met. */
  checkVersion(): void {
    this.#newer?.check();
  }

  #checkUsable(): void {
    this.checkVersion();
    if (!this.#isClosed) return;
    const message = "The store was closed before this call was carried out.";
    throw new StoreClosed({ url: this.#address.where, message });
  }

  /** What a caller sees of a fault. One that means that the schema is not as expected is looked into. */
  async faultOf(error: unknown): Promise<StoreError> {
    return this.#newer && !this.#isClosed
      ? this.#newer.faultOf(error)
      : storeError(error, this.#address);
  }
}

function afterLast(): Error {
  return new Error("A statement came after the last one of its transaction.");
}

/** A notification is a hint that may be lost, so that its commit does not wait for the disk. */
function notification({ channel, payload }: Notice): Statement {
  return { sql: notify, values: [channel, payload], counted: true, planned: true };
}

const notify = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(?, ?)";

/** The fault of the first that failed. */
async function firstFault(sent: readonly Promise<unknown>[]): Promise<unknown> {
  for (const answer of await Promise.allSettled(sent))
    if (answer.status === "rejected") return answer.reason;
  return null;
}
