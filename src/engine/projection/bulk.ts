/**
 * Statements that a batch of events repeats, gathered and sent as one for many rows, because each message to a server
 * costs more than a row. What is gathered is sent before anything that speaks of the same tables.
 */
import type { Session } from "../postgres/session.js";
import { array, fitted, list, table } from "../postgres/text.js";
import { insertJob } from "../sql/create.js";
import { insertEnded } from "../sql/place.js";
import { insertLease, insertReady } from "../sql/slim.js";
import type { SqlRow, SqlValue, Statement } from "../sql/statement.js";
import { deleteReady } from "./keys.js";
import { deleteLease } from "./known.js";
import { insertEvent } from "./transaction.js";

/** A statement that is gathered. */
interface Form {
  readonly table: string;
  /** Where the row's name stands among the values. */
  readonly key: number;
  /** The statement for many rows, with a list for each value. */
  readonly many: string;
}

const bigints =
  "n seq job at run_at created_at deadline started_at ended_at updated_at heartbeat_at until";
const integers =
  "lane rank priority version run tries token max_tries key_max noted capped type_version";
const types = new Map<string, string>([
  ...bigints.split(" ").map((name) => [name, "bigint"] as const),
  ...integers.split(" ").map((name) => [name, "int"] as const),
]);

function typed(columns: readonly string[]): Record<string, string> {
  return Object.fromEntries(columns.map((name) => [name, types.get(name) ?? "text"]));
}

/** An INSERT of one row as one of many. Columns that it fills with constants stay as they are. */
function insertMany(sql: string): string {
  const [, name, names = "", values = ""] =
    /INTO (\w+)\s*\(([^)]+)\)\s*VALUES\s*\(([^)]+)\)/.exec(sql) ?? [];
  const columns = names.split(",").map((column) => column.trim());
  const given = values.split(",").map((value) => value.trim());
  const filled = columns.filter((_, index) => given[index] === "?");
  const selected = columns.map((column, index) =>
    given[index] === "?" ? `i.${column}` : given[index],
  );
  return `INSERT INTO ${name} (${columns.join(", ")}) SELECT ${selected.join(", ")} FROM ${table("i", typed(filled))}`;
}

const place = ["lane", "rank", "run_at", "id"];

const leaveMany = `DELETE FROM ready USING ${table("i", typed(place))}
  WHERE ${place.map((column) => `ready.${column} = i.${column}`).join(" AND ")}`;

/** In the order in which they are sent. */
const forms: readonly (readonly [sql: string, form: Form])[] = [
  [insertEvent, { table: "events", key: 0, many: insertMany(insertEvent) }],
  [insertJob, { table: "jobs", key: 0, many: insertMany(insertJob) }],
  [insertEnded, { table: "ended", key: 0, many: insertMany(insertEnded) }],
  [insertReady, { table: "ready", key: 1, many: insertMany(insertReady) }],
  [deleteReady, { table: "ready", key: 3, many: leaveMany }],
  [insertLease, { table: "leases", key: 0, many: insertMany(insertLease) }],
  [
    deleteLease,
    { table: "leases", key: 0, many: `DELETE FROM leases WHERE id = ANY(${array("text")})` },
  ],
];

const orders = new Map(forms.map(([sql], order) => [sql, order]));

/** Rows of one form that wait to be sent. */
type Rows = (readonly SqlValue[])[];

/** A session that gathers. Whoever uses it flushes it before the transaction commits. */
export class BulkSession implements Session {
  readonly #session: Session;
  #gathered: Rows[] = forms.map(() => []);
  /** Which form has touched a row last, so that what is done to one row stays in order. */
  readonly #touched = new Map<string, number>();
  readonly #pending = new Set<string>();

  constructor(session: Session) {
    this.#session = session;
  }

  async execute(statement: Statement): Promise<readonly SqlRow[]> {
    const order = orders.get(statement.sql);
    const form = order === undefined ? undefined : forms[order]?.[1];
    if (order === undefined || form === undefined) {
      if (this.#concerns(statement.sql)) await this.flush();
      return this.#session.execute(hasty({ ...statement, values: fitting(statement.values) }));
    }
    const row = `${form.table}/${statement.values[form.key]}`;
    if ((this.#touched.get(row) ?? -1) >= order) await this.flush();
    this.#touched.set(row, order);
    this.#pending.add(form.table);
    this.#gathered[order]?.push(fitting(statement.values));
    return noRows;
  }

  /** Sends what is gathered. */
  async flush(): Promise<void> {
    const gathered = this.#gathered;
    this.#gathered = forms.map(() => []);
    this.#touched.clear();
    this.#pending.clear();
    for (const [order, rows] of gathered.entries()) {
      const [sql, form] = forms[order] ?? [];
      const [first] = rows;
      if (sql === undefined || form === undefined || first === undefined) continue;
      const statement =
        rows.length === 1 ? { sql, values: first } : { sql: form.many, values: columnsOf(rows) };
      await this.#session.execute(hasty(statement));
    }
  }

  #concerns(sql: string): boolean {
    if (this.#pending.size === 0) return false;
    return [...sql.matchAll(names)].some(([name]) => this.#pending.has(name));
  }
}

/** Nobody waits for what gives no rows, and the server remembers every plan: there are few, and all are used again. */
function hasty(statement: Statement): Statement {
  const silent = !/^SELECT|RETURNING/.test(statement.sql);
  return silent ? { ...statement, planned: true, silent } : { ...statement, planned: true };
}

const noRows: readonly SqlRow[] = [];
const names = /\b(?:events|jobs|ended|ready|leases)\b/g;

/** Rows as a list for each of their values. */
function columnsOf(rows: Rows): readonly SqlValue[] {
  const [first = []] = rows;
  return first.map((_, index) => list(rows.map((row) => row[index] ?? null)));
}

/** The log may hold text that the server cannot store; the view goes on with spaces in its place. */
function fitting(values: readonly SqlValue[]): readonly SqlValue[] {
  return values.map((value) => (typeof value === "string" ? fitted(value) : value));
}
