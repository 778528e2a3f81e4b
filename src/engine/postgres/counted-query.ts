/**
 * Statements whose rows nobody looks at and whose plan the server remembers, in as few messages as there can be: the values and the
 * order to carry it out, in one write. The driver also asks each time what the columns of the answer are, in a message of its own, and
 * writes every message apart.
 */
import type { Query } from "pg";
import type { SqlValue } from "../sql/statement.js";

/** What the driver's queries are made of, which its types do not tell. */
interface DriverQuery {
  readonly name: string | undefined;
  readonly values: readonly SqlValue[];
  hasBeenParsed(connection: DriverConnection): unknown;
  prepare(connection: DriverConnection): void;
  handleDataRow(): void;
}

interface DriverConnection {
  readonly stream: { write(message: Uint8Array): unknown };
}

type DriverQueryClass = new (text: string, values: readonly SqlValue[]) => DriverQuery;

/** A query that calls back with how many rows it stored. */
export type CountedQuery = Query & {
  name?: string;
  callback: (error: Error | null, result: { readonly rowCount: number | null }) => void;
};

/** Makes queries of a driver. A session that does not know the statement yet is sent it in the driver's own way. */
export function countedQueries(
  driver: typeof Query,
): new (
  text: string,
  values: readonly SqlValue[],
) => CountedQuery {
  class Counted extends (driver as unknown as DriverQueryClass) {
    override prepare(connection: DriverConnection): void {
      if (this.name && this.hasBeenParsed(connection))
        connection.stream.write(messageOf(this.name, this.values));
      else super.prepare(connection);
    }

    /** What the columns are was not asked. */
    override handleDataRow(): void {}
  }
  return Counted as unknown as ReturnType<typeof countedQueries>;
}

/** How many bytes a message has besides its values and the name of the statement: Bind, Execute and Sync. */
const bindBytes = 1 + 4 + 1 + 1 + 2 + 2 + 2;
const endOf = Buffer.from([0x45, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0x53, 0, 0, 0, 4]);
const lengthBytes = 4;
const bind = 0x42;

/** Binds a statement to values, which go as text, carries it out, and asks for the end of the transaction. */
function messageOf(name: string, values: readonly SqlValue[]): Uint8Array {
  const texts: (string | null)[] = [];
  let size = bindBytes + Buffer.byteLength(name) + lengthBytes * values.length;
  for (const value of values) {
    const text = value === null ? null : String(value);
    texts.push(text);
    if (text !== null) size += Buffer.byteLength(text);
  }
  const message = Buffer.allocUnsafe(size + endOf.length);
  message[0] = bind;
  message.writeInt32BE(size - 1, 1);
  // No name for the portal, then that of the statement, then no formats: all values are text.
  message[5] = 0;
  let place = 6 + message.write(name, 6);
  message[place] = 0;
  message.writeInt16BE(0, place + 1);
  message.writeInt16BE(values.length, place + 3);
  place += 5;
  for (const text of texts) {
    const length = text === null ? -1 : message.write(text, place + lengthBytes);
    message.writeInt32BE(length, place);
    place += lengthBytes + Math.max(length, 0);
  }
  message.writeInt16BE(0, place);
  message.set(endOf, size);
  return message;
}
