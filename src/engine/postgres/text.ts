/**
 * The text of statements: those that SQLite shares are given numbered placeholders and the names of the store's own schema;
 * lists of values travel as one text each.
 */
import type { SqlValue } from "../sql/statement.js";

/** Tables where a statement names one: after these words, and nowhere else. */
const tables =
  /\b(FROM|JOIN|INTO|UPDATE|USING|TRUNCATE)\s+(lanes|events|rounds|rounds_of_job|jobs|ended|tags|waiting|ready|leases|shared_leases|held|held_by_job|slots|blockers|keys|records|store|projection|delayed|outbox|outbox_home)\b/g;

/** A statement as the server gets it. */
export interface StatementText {
  readonly text: string;
  /** A name under which the server may remember its plan. */
  readonly name: string;
}

/** Turns shared statements into those of one schema. Each text is turned once. */
export class StatementTexts {
  readonly #prefix: string;
  readonly #texts = new Map<string, StatementText>();

  /** `schema` is quoted already. */
  constructor(schema: string) {
    this.#prefix = `${schema}.`;
  }

  /** What the server gets for a statement. */
  of(sql: string): StatementText {
    const known = this.#texts.get(sql);
    if (known) return known;
    let count = 0;
    const text = sql
      .replace(tables, `$1 ${this.#prefix}$2`)
      .replaceAll("events_seq", `${this.#prefix}events_seq`)
      .replaceAll("?", () => `$${++count}`);
    const turned = { text, name: `millrace_${this.#texts.size}` };
    this.#texts.set(sql, turned);
    return turned;
  }
}

/** What stands between the values of a list. */
export const separator = "\u001f";
/** What stands in a list for no value. */
export const nothing = "\u001e";
const unfit = new RegExp(`[\\0${nothing}${separator}]`, "g");

/**
 * Many values of one column as one text, which both sides split and join faster than an array literal.
 * Names, ids and JSON never hold the characters that separate; in other text they become spaces.
 */
export function list(values: readonly SqlValue[]): string {
  let text = "";
  for (let index = 0; index < values.length; index++) {
    const value = values[index];
    if (index > 0) text += separator;
    text += value === null || value === undefined ? nothing : value;
  }
  return text;
}

/** Text that may hold anything, made fit for a list and for a column of text. Empty text becomes none. */
export function plainText(value: string | null): string | null {
  return value === null || value === "" ? null : fitted(value);
}

/** Text that may hold anything, made fit for a list and for a column of text. */
export function fitted(value: string): string {
  return value.replace(unfit, " ");
}

/** One list as an array of a type. */
export function array(type: string): string {
  return `string_to_array(?, E'\\x1f', E'\\x1e')::${type}[]`;
}

/** The values of a column as one list. */
export function joined(column: string): string {
  return `string_agg(${column}, E'\\x1f')`;
}

/** Lists as the columns of a table: `unnest(…) AS name (first, second)`. */
export function table(name: string, columns: Readonly<Record<string, string>>): string {
  const arrays = Object.values(columns).map(array).join(", ");
  return `unnest(${arrays}) AS ${name} (${Object.keys(columns).join(", ")})`;
}
