/**
 * Inserting many rows with few statements: to call SQLite costs about as much as what it does for one row.
 */
import type { SqlValue, Step } from "../sql/statement.js";

/** How many rows go into one statement. */
const chunkSize = 10;

/** Makes an insert of one row, which ends with its values, one of any number of them, given one after the other. */
export function insertMany(one: string): (values: readonly SqlValue[]) => Step<void> {
  const row = one.slice(one.lastIndexOf("("));
  const many = one + `,${row}`.repeat(chunkSize - 1);
  const width = row.split("?").length - 1;
  return function* (values) {
    let start = 0;
    for (const [sql, length] of [
      [many, width * chunkSize],
      [one, width],
    ] as const) {
      for (; values.length - start >= length; start += length)
        yield { sql, values: values.slice(start, start + length) };
    }
  };
}
