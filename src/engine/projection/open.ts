/**
 * Turns a URL into a projection.
 */
import { StoreUnavailable } from "../errors.js";
import { PostgresProjectionStore } from "./postgres.js";
import { Projection, type ProjectionOptions } from "./projection.js";
import { SqliteProjectionStore } from "./sqlite.js";

/** Opens the projection that a URL names: `file:…` or `postgres://…`. */
export async function openProjection(url: string, options: ProjectionOptions): Promise<Projection> {
  const scheme = /^([a-z]+):/i.exec(url)?.[1]?.toLowerCase();
  switch (scheme) {
    case "file":
      return Projection.open(new SqliteProjectionStore(url, options.clock), options);
    case "postgres":
    case "postgresql":
      return Projection.open(await PostgresProjectionStore.to(url, options.clock), options);
    default: {
      const message =
        'A projection lies in a SQLite file or in PostgreSQL: use "file:projection.db" or "postgres://…".';
      throw new StoreUnavailable({ url: `${scheme ?? ""}:`, message });
    }
  }
}
