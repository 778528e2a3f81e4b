/**
 * Turns a URL into a projection.
 */
import { StoreUnavailable } from "../errors.js";
import { MemoryProjectionStore } from "./memory.js";
import { PostgresProjectionStore } from "./postgres.js";
import { Projection, type ProjectionOptions } from "./projection.js";
import { SqliteProjectionStore } from "./sqlite.js";

/** Opens the projection that a URL names: `file:…`, `postgres://…`, or `memory:` for one that ends with its process. */
export async function openProjection(url: string, options: ProjectionOptions): Promise<Projection> {
  const scheme = /^([a-z]+):/i.exec(url)?.[1]?.toLowerCase();
  switch (scheme) {
    case "memory":
      return Projection.open(new MemoryProjectionStore(options.clock), options);
    case "file":
      return Projection.open(new SqliteProjectionStore(url, options.clock), options);
    case "postgres":
    case "postgresql":
      return Projection.open(await PostgresProjectionStore.to(url, options.clock), options);
    default: {
      const message =
        'A projection lies in a SQLite file or in PostgreSQL: use "file:projection.db" or "postgres://…", or "memory:" in tests.';
      throw new StoreUnavailable({ url: `${scheme ?? ""}:`, message });
    }
  }
}
