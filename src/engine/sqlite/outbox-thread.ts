/**
 * The thread that reads and empties an outbox in a file of the caller's, so that neither a lock nor an fsync of that
 * file ever blocks the event loop.
 */
import { parentPort, workerData } from "node:worker_threads";
import type { OutboxRow } from "../outbox.js";
import { int, type Step, text } from "../sql/statement.js";
import { type Connection, openForeign } from "./driver.js";
import { type Fault, faultOf } from "./faults.js";

/** What the thread is asked. */
export type OutboxAsk =
  | { readonly kind: "provision" }
  | {
      readonly kind: "take";
      readonly service: string;
      readonly after: number;
      readonly limit: number;
    }
  | { readonly kind: "remove"; readonly numbers: readonly number[] };

/** An ask with the number that its answer will have; the thread ends when it is asked to. */
export type OutboxRequest = { readonly id: number; readonly ask: OutboxAsk } | "close";

/** What became of an ask. */
export type OutboxReply =
  | { readonly id: number; readonly rows: readonly OutboxRow[] }
  | { readonly id: number; readonly fault: Fault };

const { path } = workerData as { readonly path: string };
const port = parentPort;
if (!port) throw new Error("This file runs as a worker thread.");

let connection: Connection | null = null;
port.on("message", (request: OutboxRequest) => {
  if (request !== "close") {
    port.postMessage(reply(request.id, request.ask));
    return;
  }
  connection?.close();
  port.close();
});

function reply(id: number, ask: OutboxAsk): OutboxReply {
  try {
    connection ??= openForeign(path);
    return { id, rows: connection.run(operation(ask)) };
  } catch (error) {
    return { id, fault: faultOf(error, path) };
  }
}

function* operation(ask: OutboxAsk): Step<readonly OutboxRow[]> {
  switch (ask.kind) {
    case "provision":
      // The number of a removed row is never used again, or a late removal would hit another row.
      yield {
        sql: `CREATE TABLE IF NOT EXISTS millrace_outbox (
          n INTEGER PRIMARY KEY AUTOINCREMENT, service TEXT NOT NULL, body TEXT NOT NULL)`,
        values: [],
      };
      return [];
    case "take": {
      const rows = yield {
        sql: "SELECT n, body FROM millrace_outbox WHERE service = ? AND n > ? ORDER BY n LIMIT ?",
        values: [ask.service, ask.after, ask.limit],
      };
      return rows.map((row) => ({ n: int(row, "n"), body: text(row, "body") }));
    }
    case "remove":
      yield {
        sql: "DELETE FROM millrace_outbox WHERE n IN (SELECT value FROM json_each(?))",
        values: [JSON.stringify(ask.numbers)],
      };
      return [];
  }
}
