/**
 * What PostgreSQL and its driver report, as the store's own errors with a remedy.
 */
import {
  isStoreError,
  StoreBusy,
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

/** Whether a row was locked and nobody waited for it, unlike a wait that took too long. */
function isRefused(error: unknown): boolean {
  return codeOf(error) === "55P03" && error instanceof Error && /obtain lock/.test(error.message);
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
  if (error instanceof Overtaken) return false;
  const code = codeOf(error);
  return code === "" || !/^[0-9A-Z]{5}$/.test(code) || /^(08|57P)/.test(code);
}

/** Whether the server may not be written, as one is that was the primary before another took over. Nothing was stored. */
export function isReadOnly(error: unknown): boolean {
  return codeOf(error) === "25006";
}

/** What errors name: the server without secrets, the schema there, and who asks for it. */
export interface Place {
  readonly where: string;
  readonly schema: string;
  /** Empty where the URL does not say. */
  readonly user: string;
}

/** The statements that let a user work with a schema that somebody else has made. */
export function grants(schema: string, user: string): string {
  const role = user === "" ? "the user" : `"${user.replaceAll('"', '""')}"`;
  const rights = [
    `USAGE ON SCHEMA "${schema}"`,
    `SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "${schema}"`,
    `USAGE ON ALL SEQUENCES IN SCHEMA "${schema}"`,
  ];
  return rights.map((right) => `GRANT ${right} TO ${role};`).join(" ");
}

type Say = (where: string, detail: string, place: Place) => string;

const rules: readonly {
  readonly codes: RegExp;
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
    say: (where) =>
      `${where} takes no more connections. Raise max_connections, lower poolMax in the URL, or put a pooler in front.`,
  },
  {
    codes: /^53[12]00$/,
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

/** What a caller sees of a caught value. */
export function storeError(error: unknown, place: Place): StoreError {
  if (isStoreError(error)) return error;
  const { where } = place;
  if (error instanceof Overtaken)
    return new StoreBusy({ url: where, message: inEachOthersWay(where) });
  const code = codeOf(error);
  const detail = detailOf(error);
  for (const { codes, kind, say } of rules)
    if (codes.test(code)) return new kind({ url: where, message: say(where, detail, place) });
  if (code === "22021" || code === "22P05") {
    const message =
      "A text holds a NUL character, which PostgreSQL cannot store. Remove it from names, keys and contexts.";
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
