/**
 * The server at the other end: whether it is one that this engine can work with, and whether something stands between.
 */
import type { PoolClient } from "pg";
import { StoreUnavailable } from "../errors.js";
import type { Address } from "./address.js";
import { wrongEncoding } from "./faults.js";

/** The oldest server that has what the feed goes by: ids of transactions that never come again. */
const oldestVersion = 13;

/** Encodings that hold every character; the second one takes bytes as they come. */
const encodings = ["UTF8", "SQL_ASCII"];

/** Refuses a server that is too old, and a database that cannot hold all texts. Gives whether it is met itself: a pooler tells another process number than the server does. */
export async function meetServer(client: PoolClient, { where }: Address): Promise<boolean> {
  const { rows } = await client.query(
    "SELECT pg_backend_pid() AS pid, current_setting('server_version_num') AS version, current_setting('server_encoding') AS encoding",
  );
  const version = Math.floor(Number(rows[0]?.version) / 10_000);
  if (version < oldestVersion) {
    const message = `${where} is PostgreSQL ${version}, and Millrace needs ${oldestVersion} or newer. Upgrade the server, or name another in the URL.`;
    throw new StoreUnavailable({ url: where, message });
  }
  const encoding = String(rows[0]?.encoding);
  if (!encodings.includes(encoding)) throw wrongEncoding({ where }, `its encoding is ${encoding}`);
  return (client as unknown as { processID?: number }).processID === rows[0]?.pid;
}
