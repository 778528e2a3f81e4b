/**
 * Statements whose plan the server remembers, in as few messages as there can be: the values and the order to carry it out, in one
 * write. The driver also asks each time what the columns of the answer are, in a message of its own, and writes every
 * message apart. What the columns are is asked once for each statement.
 */
import type { Query } from "pg";
import type { SqlRow, SqlValue } from "../sql/statement.js";

/** Makes a value of a column's text. */
type Read = (text: string) => SqlValue;

/** What the driver's queries are made of, which its types do not tell. */
interface DriverQuery {
  readonly text: string;
  readonly name: string | undefined;
  readonly values: readonly SqlValue[];
  hasBeenParsed(connection: DriverConnection): unknown;
  prepare(connection: DriverConnection): void;
  handleRowDescription(message: { readonly fields: readonly { dataTypeID: number }[] }): void;
  handleDataRow(message: { readonly fields: readonly (string | null)[] }): void;
}

interface DriverConnection {
  readonly stream: { write(message: Uint8Array): unknown };
}

type DriverQueryClass = new (text: string, values: readonly SqlValue[]) => DriverQuery;

/** A query that calls back with how many rows it stored. */
export type PlannedQuery = Query & {
  name?: string;
  /** Its rows, as arrays of their columns' values. Nobody looks at those of one that has no such list. */
  received?: SqlRow[];
  callback: (error: Error | null, result: { readonly rowCount: number | null }) => void;
};

/** Makes queries of a driver. A session that does not know the statement yet is sent it in the driver's own way. */
export function plannedQueries(
  driver: typeof Query,
  readerOf: (oid: number) => Read,
): new (
  text: string,
  values: readonly SqlValue[],
) => PlannedQuery {
  /** How the columns of each statement are read, once it has been answered. */
  const readers = new Map<string, readonly Read[]>();

  class Planned extends (driver as unknown as DriverQueryClass) {
    received: SqlValue[][] | undefined;

    override prepare(connection: DriverConnection): void {
      const isKnown = this.received === undefined || readers.has(this.text);
      if (this.name && isKnown && this.hasBeenParsed(connection))
        connection.stream.write(messageOf(this.name, this.values));
      else super.prepare(connection);
    }

    override handleRowDescription({ fields }: { fields: readonly { dataTypeID: number }[] }): void {
      readers.set(
        this.text,
        fields.map(({ dataTypeID }) => readerOf(dataTypeID)),
      );
    }

    override handleDataRow({ fields }: { fields: readonly (string | null)[] }): void {
      if (this.received === undefined) return;
      const columns = readers.get(this.text) ?? [];
      const row: SqlValue[] = [];
      for (let place = 0; place < fields.length; place++) {
        const field = fields[place] ?? null;
        row.push(field === null ? null : (columns[place] as Read)(field));
      }
      this.received.push(row);
    }
  }
  return Planned as unknown as ReturnType<typeof plannedQueries>;
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
