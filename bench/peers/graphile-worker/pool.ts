// Connections of graphile-worker's. The database of a round is dropped right after it, also under a connection that has
// not quite closed yet, and a pool without listeners would end the run for that.
import { Pool } from "pg";

/** A pool whose broken connections fail the statements on them, and nothing else. */
export function quietPool(connectionString: string, max: number): Pool {
  const pool = new Pool({ connectionString, max });
  pool.on("error", () => undefined);
  pool.on("connect", (client) => client.on("error", () => undefined));
  return pool;
}
