/**
 * SQL operations are generators: each yields statements and is sent their rows. One operation can so be run
 * by a thread of ours, by a network driver, or on a transaction that belongs to the caller.
 */

/** A value that can be bound to a statement. */
export type SqlValue = string | number | null;

/** A row as drivers give it. */
export type SqlRow = Readonly<Record<string, SqlValue>>;

/** One statement with the values of its placeholders, in order. */
export interface Statement {
  readonly sql: string;
  readonly values: readonly SqlValue[];
  /** Rows come as arrays of their columns' values, which is cheaper where there are many. See `arrays`. */
  readonly raw?: true;
  /** Asked so often that its plan is worth remembering, and planned in the same way whatever its values are. */
  readonly planned?: true;
  /** Gives no rows, so that the next statement may be sent before this one is answered. */
  readonly silent?: true;
  /** Gives no rows of its own, but how many rows it stored, as the member `count` of one. See `countOf`. */
  readonly counted?: true;
  /** Nothing follows it in its transaction, so that the commit may be sent before it is answered. */
  readonly last?: true;
}

/** An operation that yields statements, gets their rows, and gives `Value` in the end. */
export type Step<Value> = Generator<Statement, Value, readonly SqlRow[]>;

/** How many rows a counted statement stored. */
export function countOf([row]: readonly SqlRow[]): number {
  return Number(row?.count);
}

/** The rows of a raw statement. */
export function arrays<Row extends readonly SqlValue[]>(rows: readonly SqlRow[]): readonly Row[] {
  return rows as unknown as readonly Row[];
}

/** Text of a column that is never null. */
export function text(row: SqlRow, column: string): string {
  return String(row[column]);
}

/** Number of a column that is never null. */
export function int(row: SqlRow, column: string): number {
  return Number(row[column]);
}

/** Number of a column that may be null. */
export function intOrNull(row: SqlRow, column: string): number | null {
  const value = row[column];
  return value === null || value === undefined ? null : Number(value);
}

/** A member that is left out when the column is null. */
export function optional<Name extends string, Value extends SqlValue>(
  name: Name,
  value: SqlValue | undefined,
): { readonly [N in Name]?: Value } {
  return (value === null || value === undefined ? {} : { [name]: value }) as {
    readonly [N in Name]?: Value;
  };
}
