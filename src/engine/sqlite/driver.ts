/**
 * One connection to a SQLite file: opened with the settings that durability asks for, brought to the newest schema,
 * and able to run operations.
 */
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname } from "node:path";
import type { Database, Statement as Prepared } from "better-sqlite3";
import type { SqlRow, Statement, Step } from "../sql/statement.js";
import { FaultError } from "./faults.js";
import { applicationId, migrations, projectionId, projectionTables } from "./schema.js";

/** How long a connection waits for others before it gives up. */
const busyTimeoutMs = 10_000;

/** After how many pages the write-ahead log is copied into the file, and the size to which it is then cut. */
const checkpointPages = 4_000;
export const walBytesMax = 64 * 1024 * 1024;

/** A small cache is the fast one: each commit walks all of it, and the file system has a cache of its own. */
const storeCacheKibibytes = 4_096;

/** A rebuild writes all over a large file in long transactions, and then a large one is. */
const projectionCacheKibibytes = 65_536;

/** A connection that runs operations. */
export interface Connection {
  run<Value>(step: Step<Value>): Value;
  exec(sql: string): void;
  /** Whether another connection has written since this was last asked; also when it is asked for the first time. */
  isChangedByOthers(): boolean;
  /** Whether commits of a store return when they are on disk, as they do at first, or are synced by somebody else. */
  syncWithCommit(isWanted: boolean): void;
  close(): void;
}

/** What a file is for, which is marked in it: a store of jobs, or a projection of a log that is kept elsewhere. */
export type FileKind = keyof typeof kinds;

const kinds = {
  store: {
    applicationId,
    synchronous: "FULL",
    cacheKibibytes: storeCacheKibibytes,
    ours: "a store of jobs",
    tables: "",
  },
  // What a crash takes from a projection is read from the log again.
  projection: {
    applicationId: projectionId,
    synchronous: "NORMAL",
    cacheKibibytes: projectionCacheKibibytes,
    ours: "a projection of jobs that are kept elsewhere",
    tables: projectionTables,
  },
} as const;

/** Opens a file for writing, making it if there is none. */
export function openWriter(path: string, kind: FileKind = "store"): Connection {
  const database = openDatabase(path);
  try {
    database.pragma(`busy_timeout = ${busyTimeoutMs}`);
    refuseStrangers(database, path, kind);
    database.pragma("journal_mode = WAL");
    database.pragma(`synchronous = ${kinds[kind].synchronous}`);
    database.pragma(`wal_autocheckpoint = ${checkpointPages}`);
    database.pragma(`journal_size_limit = ${walBytesMax}`);
    database.pragma(`cache_size = ${-kinds[kind].cacheKibibytes}`);
    migrate(database, path, kind);
    // Only now, because a migration of a large store puts aside more than fits into memory.
    database.pragma("temp_store = MEMORY");
    return connection(database);
  } catch (error) {
    database.close();
    throw error;
  }
}

/** Opens a file that a writer has made ready, for reading. */
export function openReader(path: string): Connection {
  const database = openDatabase(path);
  database.pragma(`busy_timeout = ${busyTimeoutMs}`);
  database.pragma("query_only = true");
  return connection(database);
}

/** Opens a file of another program's, and leaves it as it is. */
export function openForeign(path: string): Connection {
  const database = openDatabase(path);
  database.pragma(`busy_timeout = ${busyTimeoutMs}`);
  return connection(database);
}

type DatabaseClass = new (path: string) => Database;

function openDatabase(path: string): Database {
  if (!existsSync(dirname(path))) {
    const message = `${path} cannot be opened. Check that its folder exists and that this user may write there.`;
    throw new FaultError({ kind: "unavailable", message });
  }
  return new (loadDriver())(path);
}

/** Loads better-sqlite3, which is optional, and refuses versions that would crash this Node.js. */
function loadDriver(): DatabaseClass {
  const require = createRequire(import.meta.url);
  const remedy = 'install it with "npm install better-sqlite3@^12.11.1"';
  let version: string;
  try {
    version = (require("better-sqlite3/package.json") as { version: string }).version;
  } catch {
    throw new FaultError({
      kind: "unavailable",
      message: `file: stores need the package better-sqlite3; ${remedy}.`,
    });
  }
  if (Number.parseInt(version, 10) >= 13 && Number(process.versions.napi) < 10) {
    const message = `better-sqlite3 ${version} crashes Node.js ${process.version}; ${remedy}, or use a newer Node.js.`;
    throw new FaultError({ kind: "unavailable", message });
  }
  try {
    return require("better-sqlite3") as DatabaseClass;
  } catch (error) {
    const reason = error instanceof Error ? error.message.split("\n")[0] : String(error);
    throw new FaultError({
      kind: "unavailable",
      message: `better-sqlite3 cannot be loaded (${reason}); ${remedy}.`,
    });
  }
}

/** Another program's database is left alone, and so is one of ours that is for something else. */
function refuseStrangers(database: Database, path: string, kind: FileKind): void {
  // One statement, so that a process that makes the file at this moment is not taken for a stranger.
  const [row] = database
    .prepare(
      `SELECT (SELECT application_id FROM pragma_application_id) AS id,
        (SELECT count(*) FROM sqlite_schema) AS tables`,
    )
    .all() as { id: number; tables: number }[];
  if (row === undefined || row.id === kinds[kind].applicationId) return;
  if (row.id === 0 && row.tables === 0) return;
  const other = Object.values(kinds).find((known) => known.applicationId === row.id);
  const message = other
    ? `${path} is ${other.ours}, and cannot be opened as ${kinds[kind].ours}. Name another file.`
    : `${path} is the database of another program. Name another file for the jobs.`;
  throw new FaultError({ kind: "corrupt", message });
}

/** Brings the schema to the newest version, one process at a time. */
function migrate(database: Database, path: string, kind: FileKind): void {
  const known = migrations.length;
  const versionNow = () => Number(database.pragma("user_version", { simple: true }));
  if (versionNow() === known) return;
  database
    .transaction(() => {
      const found = versionNow();
      if (found > known) {
        const message = `${path} was written by a newer Millrace (schema ${found}; this one knows ${known}). Upgrade this process.`;
        throw new FaultError({ kind: "too_new", message, found, known });
      }
      for (const migration of migrations.slice(found)) database.exec(migration);
      if (found === 0) database.exec(kinds[kind].tables);
      database.pragma(`application_id = ${kinds[kind].applicationId}`);
      database.pragma(`user_version = ${known}`);
    })
    .immediate();
}

/** SQLite plans a statement anew whenever its limit is bound, since it plans by the value; by one that it has to compute it does not. */
const boundLimit = /\bLIMIT \?/g;

function connection(database: Database): Connection {
  const prepared = new Map<string, Prepared>();
  const prepare = ({ sql, raw }: Statement): Prepared => {
    const statement = database.prepare(sql.replace(boundLimit, "LIMIT 0 + ?"));
    if (raw) statement.raw(true);
    prepared.set(sql, statement);
    return statement;
  };
  let isSynced = true;
  let dataVersion: unknown;
  return {
    syncWithCommit: (isWanted) => {
      if (isWanted === isSynced) return;
      isSynced = isWanted;
      // SQLite carries out this pragma when it prepares it, so that it cannot be prepared once.
      database.pragma(`synchronous = ${isWanted ? kinds.store.synchronous : "NORMAL"}`);
    },
    run: (step) => {
      let rows = noRows;
      for (;;) {
        const next = step.next(rows);
        if (next.done) return next.value;
        const statement = prepared.get(next.value.sql) ?? prepare(next.value);
        if (statement.reader) {
          rows = statement.all(...next.value.values) as SqlRow[];
        } else {
          statement.run(...next.value.values);
          rows = noRows;
        }
      }
    },
    exec: (sql) => void (prepared.get(sql) ?? prepare({ sql, values: [] })).run(),
    isChangedByOthers: () => {
      const before = dataVersion;
      dataVersion = (prepared.get(readDataVersion) ?? prepare({ sql: readDataVersion, values: [] }))
        .pluck()
        .get();
      return dataVersion !== before;
    },
    close: () => void database.close(),
  };
}

/** A number that changes with each commit of another connection, and with none of one's own. */
const readDataVersion = "PRAGMA data_version";

const noRows: readonly SqlRow[] = [];
