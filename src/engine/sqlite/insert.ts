/**
 * Inserting many rows with few statements: to call SQLite costs about as much as what it does for one row.
 */
import type { SqlValue, Step } from "../sql/statement.js";

/** How many rows go into one statement: the largest number that is still to come, so that few rows take few statements, too. */
const chunkSizes = [32, 16, 8, 4, 2, 1] as const;

/** Makes an insert of one row, which ends with its values, one of any number of them, given one after the other. */
export function insertMany(one: string): (values: readonly SqlValue[]) => Step<void> {
  const row = one.slice(one.lastIndexOf("("));
  const width = row.split("?").length - 1;
  const inserts = chunkSizes.map((size) => ({
    sql: one + `,${row}`.repeat(size - 1),
    length: width * size,
  }));
  return function* (values) {
    let start = 0;
    for (const { sql, length } of inserts) {
      for (; values.length - start >= length; start += length)
        yield { sql, values: values.slice(start, start + length) };
    }
  };
}
