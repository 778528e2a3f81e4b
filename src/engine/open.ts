/**
 * Turns a URL into an engine. Each engine is imported when it is asked for, so that its driver stays optional.
 */
import type { Clock } from "./clock.js";
import type { Engine } from "./engine.js";
import { StoreUnavailable } from "./errors.js";
import type { Logger } from "./logger.js";
import type { Outbox } from "./outbox.js";

/** The store of those who name none. */
export const defaultUrl = "file:millrace.db";

/** What an engine is opened with. */
export interface OpenOptions {
  readonly clock?: Clock;
  readonly logger?: Logger;
}

/** Opens the engine that a URL names. A URL that names none throws `StoreUnavailable`. */
export async function openEngine(url: string, options: OpenOptions = {}): Promise<Engine> {
  const scheme = schemeOf(url);
  switch (scheme) {
    case "memory":
      return (await import("./memory/engine.js")).openMemory(options);
    case "file":
      return (await import("./sqlite/engine.js")).openSqlite(url, options);
    case "postgres":
    case "postgresql":
      return (await import("./postgres/engine.js")).openPostgres(url, options);
    case "nats":
      return (await import("./nats/open.js")).openNats(url, options);
    default:
      throw new StoreUnavailable({ url: withoutSecrets(url), message: unknownUrl(url, scheme) });
  }
}

/** Opens the outbox in the database that a URL names. A URL that names none throws `StoreUnavailable`. */
export async function openOutbox(url: string, options: OpenOptions = {}): Promise<Outbox> {
  switch (schemeOf(url)) {
    case "file":
      return (await import("./sqlite/outbox.js")).openSqliteOutbox(url, options);
    case "postgres":
    case "postgresql":
      return (await import("./postgres/outbox.js")).openPostgresOutbox(url, options);
    default: {
      const place = withoutSecrets(url);
      const message = `An outbox cannot be in "${place}": name the database of your own tables, "postgres://…" or "file:app.db".`;
      throw new StoreUnavailable({ url: place, message });
    }
  }
}

function schemeOf(url: string): string | undefined {
  return /^([a-z][a-z0-9+.-]*):/i.exec(url)?.[1]?.toLowerCase();
}

function unknownUrl(url: string, scheme: string | undefined): string {
  const remedy =
    'use "file:jobs.db" for a SQLite file, "postgres://…" for PostgreSQL, "nats://…" for NATS JetStream, or "memory:" for a store that ends with the process';
  if (scheme === undefined) return `"${withoutSecrets(url)}" is not a URL of a store: ${remedy}.`;
  return `${scheme}: stores are not supported by this version of Millrace: ${remedy}.`;
}

/** The URL without the user and password that it may hold. */
function withoutSecrets(url: string): string {
  return url.replace(/\/\/[^/@]*@/, "//");
}
