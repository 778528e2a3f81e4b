/**
 * What PostgreSQL and its driver report, as the store's own errors with a remedy.
 */
import {
  isStoreError,
  StoreBusy,
  StoreCorrupt,
  type StoreError,
  StoreFailed,
  StoreFull,
  StoreUnavailable,
} from "../errors.js";
import { Overtaken } from "../sql/overtaken.js";

/** The code of a fault of the server or the driver; empty where there is none. */
export function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "";
}

/** Faults that another run of the same transaction may not meet: a deadlock, a row that somebody else made first. */
const passing: ReadonlySet<string> = new Set(["40001", "40P01", "23505"]);

/** Whether the transaction is worth carrying out again as it is. */
export function isPassing(error: unknown): boolean {
  return error instanceof Overtaken || passing.has(codeOf(error)) || isRefused(error);
}

/** The part of the server that ends a wait which took too long. */
const endsWaits = "ProcessInterrupts";

/**
 * Whether a row was locked and nobody waited for it, unlike a wait that took too long. A client of the caller's may tell the
 * message alone, which is in the server's language.
 */
function isRefused(error: unknown): boolean {
  if (codeOf(error) !== "55P03" || !(error instanceof Error)) return false;
  const routine = routineOf(error);
  return routine === undefined ? /obtain lock/.test(error.message) : routine !== endsWaits;
}

/** Whether somebody else held a lock for longer than it was waited for. */
export function isLockTimeout(error: unknown): boolean {
  return codeOf(error) === "55P03" && !isRefused(error);
}

/** Whether a fault may lie with one item alone, so that its neighbours are worth another try. */
export function isOfOneItem(error: unknown): boolean {
  if (isPassing(error)) return true;
  const code = codeOf(error);
  // Data, constraints, lock timeouts, limits of one statement; not connections, resources or operators.
  return /^(21|22|23|54|55)/.test(code) && code !== "55000";
}

/** Whether the connection is gone, so that nobody knows what became of a commit. */
export function isConnectionLoss(error: unknown): boolean {
  if (error instanceof Overtaken || isOwnFault(error)) return false;
  const code = codeOf(error);
  return code === "" || !/^[0-9A-Z]{5}$/.test(code) || /^(08|57P)/.test(code);
}

/** Whether it is a fault of the code that asks, and neither of the server nor on the way there. */
function isOwnFault(error: unknown): boolean {
  return (error instanceof TypeError || error instanceof RangeError) && codeOf(error) === "";
}

/** Whether the server may not be written, as one is that was the primary before another took over. Nothing was stored. */
export function isReadOnly(error: unknown): boolean {
  return codeOf(error) === "25006";
}

/** What errors name: the server without secrets, the schema there, and who asks for it. */
export interface Place {
  readonly where: string;
  readonly schema: string;
  readonly database: string;
  /** Empty where the URL does not say. */
  readonly user: string;
}

/** The statements that let a user work with a schema that somebody else has made. */
export function grants(schema: string, user: string): string {
  const role = roleOf(user);
  const rights = [
    `USAGE ON SCHEMA "${schema}"`,
    `SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "${schema}"`,
    `USAGE ON ALL SEQUENCES IN SCHEMA "${schema}"`,
  ];
  return rights.map((right) => `GRANT ${right} TO ${role};`).join(" ");
}

/** A user as statements name it. */
function roleOf(user: string): string {
  return user === "" ? "the user" : quoted(user);
}

function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** The error of a schema in which somebody else has tables under names that Millrace needs. */
export function schemaTaken({ where, schema }: Place, detail: string): StoreCorrupt {
  const message = `The schema "${schema}" of ${where} is used by something else than Millrace, which needs names that are taken there (${detail}). Name a schema of its own with ?schema= in the URL, or leave that out.`;
  return new StoreCorrupt({ url: where, message });
}

/** Faults of making something whose name another thing has, and of finding that this is not what it should be. */
const takenNames: ReadonlySet<string> = new Set(["42P07", "42710", "42701", "42703", "42809"]);

/** Whether something could not be made in a schema because somebody else's things are in the way. */
export function isNameTaken(error: unknown): boolean {
  return takenNames.has(codeOf(error));
}

/** The error of a text that a database cannot hold because of how it encodes texts, with what to do. */
export function wrongEncoding({ where }: Pick<Place, "where">, detail: string): StoreUnavailable {
  const message = `The database of ${where} cannot hold all characters (${detail}), which Millrace needs. Make one with the encoding UTF8, such as CREATE DATABASE millrace ENCODING 'UTF8' TEMPLATE template0; and name it in the URL.`;
  return new StoreUnavailable({ url: where, message });
}

type Say = (where: string, detail: string, place: Place) => string;

/** The part of the server that decides who may connect to a database. */
const letsIn = "CheckMyDatabase";

const rules: readonly {
  readonly codes: RegExp;
  /** Where in the server it comes from, if the code alone does not tell. Unlike its message, that is in no language. */
  readonly routine?: string;
  readonly kind: typeof StoreUnavailable | typeof StoreBusy | typeof StoreFull;
  readonly say: Say;
}[] = [
  {
    codes: /^(28P01|28000)$/,
    kind: StoreUnavailable,
    say: (where) => `${where} refused the user or the password. Check both in the URL.`,
  },
  {
    codes: /^3D000$/,
    kind: StoreUnavailable,
    say: (where) =>
      `The database of ${where} does not exist. Create it, or name another in the URL.`,
  },
  {
    codes: /^42501$/,
    routine: letsIn,
    kind: StoreUnavailable,
    say: (where, detail, { database, user }) =>
      `The user may not connect to the database of ${where} (${detail}). Its owner grants what is needed: GRANT CONNECT ON DATABASE ${quoted(database)} TO ${roleOf(user)};`,
  },
  {
    codes: /^55000$/,
    routine: letsIn,
    kind: StoreUnavailable,
    say: (where, detail, { database }) =>
      `The database of ${where} takes no connections (${detail}). Its owner lets them in: ALTER DATABASE ${quoted(database)} ALLOW_CONNECTIONS true; or name another in the URL.`,
  },
  {
    codes: /^42501$/,
    kind: StoreUnavailable,
    say: (where, detail, { schema, user }) =>
      `The user lacks a right on the schema "${schema}" of ${where} (${detail}). Its owner grants what is needed: ${grants(schema, user)}`,
  },
  {
    codes: /^(3F000|42P01)$/,
    kind: StoreUnavailable,
    say: (where) => `${where} has no Millrace schema any more. Connect again to make it.`,
  },
  {
    codes: /^53300$/,
    kind: StoreUnavailable,
    say: (where, detail) =>
      `${where} takes no more connections (${detail}). Raise max_connections, or the limit of the user or the database; lower poolMax in the URL, or put a pooler in front.`,
  },
  {
    codes: /^53200$/,
    kind: StoreFull,
    say: (where, detail) =>
      `${where} has no memory left for this call (${detail}), of which nothing was stored. Give the server more, as its message says, and try again.`,
  },
  {
    codes: /^53100$/,
    kind: StoreFull,
    say: (where) =>
      `${where} has no room. Nothing of this call was stored; free disk space and try again.`,
  },
  {
    codes: /^25006$/,
    kind: StoreUnavailable,
    say: (where) =>
      `${where} may not be written; it may be a standby, or the primary before a failover. It is connected to anew by itself; see to it that the URL leads to the primary.`,
  },
  {
    codes: /^55P03$/,
    kind: StoreBusy,
    say: (where) =>
      `Another transaction on ${where} held what this call needs for too long. Try again.`,
  },
  {
    codes: /^(40001|40P01)$/,
    kind: StoreBusy,
    say: inEachOthersWay,
  },
  {
    codes: /^(57P0[1-5]|08)/,
    kind: StoreUnavailable,
    say: (where, detail) => `${where} is not available (${detail}). It is tried again by itself.`,
  },
];

/** What the server or the driver said, to go on with in a sentence. */
export function detailOf(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).replace(/[.\s]+$/, "");
}

function inEachOthersWay(where: string): string {
  return `Transactions on ${where} kept getting in each other's way. Try again.`;
}

function routineOf(error: unknown): unknown {
  return (error as { readonly routine?: unknown }).routine;
}

/** Whether the driver could not answer a server that asks for a password. The driver has no code for that. */
function needsPassword(detail: string): boolean {
  return /client password must be a (non-empty )?string/.test(detail);
}

/** What a caller sees of a caught value. */
export function storeError(error: unknown, place: Place): StoreError {
  if (isStoreError(error)) return error;
  const { where } = place;
  if (error instanceof Overtaken)
    return new StoreBusy({ url: where, message: inEachOthersWay(where) });
  const code = codeOf(error);
  const detail = detailOf(error);
  for (const { codes, routine, kind, say } of rules)
    if (codes.test(code) && (routine === undefined || routine === routineOf(error)))
      return new kind({ url: where, message: say(where, detail, place) });
  if (code === "22021" || code === "22P05") {
    if (!/0x00|\\u0000/.test(detail)) return wrongEncoding(place, detail);
    const message =
      "A text holds a NUL character, which PostgreSQL cannot store. Remove it from names, keys and contexts.";
    return new StoreFailed({ url: where, message, code });
  }
  if (needsPassword(detail)) {
    const message = `${where} asks for a password, and the URL names none. Name it there, as in postgres://user:password@host:5432/database, or in PGPASSWORD.`;
    return new StoreUnavailable({ url: where, message });
  }
  if (isOwnFault(error)) {
    const message = `A call to ${where} failed by a fault of Millrace's own, which is worth a report: ${detail}.`;
    return new StoreFailed({ url: where, message, code });
  }
  if (isConnectionLoss(error)) {
    const message = `${where} cannot be reached (${detail}). Check that the server runs and that the URL names it.`;
    return new StoreUnavailable({ url: where, message });
  }
  return new StoreFailed({
    url: where,
    message: `PostgreSQL failed on ${where}: ${detail}.`,
    code,
  });
}
