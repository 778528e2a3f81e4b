/**
 * What SQLite reports, as the store's own faults with a remedy. Faults cross threads as plain data.
 */
import {
  StoreBusy,
  StoreClosed,
  StoreCorrupt,
  type StoreError,
  StoreFailed,
  StoreFull,
  StoreReadOnly,
  StoreTooNew,
  StoreUnavailable,
} from "../errors.js";

/** A fault as plain data. */
export interface Fault {
  readonly kind: keyof typeof kinds;
  readonly message: string;
  readonly code?: string;
  readonly found?: number;
  readonly known?: number;
}

const kinds = {
  busy: StoreBusy,
  closed: StoreClosed,
  corrupt: StoreCorrupt,
  failed: StoreFailed,
  full: StoreFull,
  read_only: StoreReadOnly,
  too_new: StoreTooNew,
  unavailable: StoreUnavailable,
} as const;

/** Something that the store's own code found wrong, thrown where it was found. */
export class FaultError extends Error {
  readonly fault: Fault;

  constructor(fault: Fault) {
    super(fault.message);
    this.fault = fault;
  }
}

/** The fault behind a caught value. */
export function faultOf(error: unknown, path: string): Fault {
  if (error instanceof FaultError) return error.fault;
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  const message = error instanceof Error ? error.message : String(error);
  for (const { start, kind, say } of rules) {
    if (code.startsWith(start)) return { kind, code, message: say(path) };
  }
  return { kind: "failed", code, message: `SQLite failed on ${path}: ${message}.` };
}

const rules: readonly { start: string; kind: Fault["kind"]; say: (path: string) => string }[] = [
  {
    start: "SQLITE_FULL",
    kind: "full",
    say: (path) =>
      `There is no room to write ${path}. Nothing of this call was stored; free disk space and try again.`,
  },
  {
    start: "SQLITE_IOERR_WRITE",
    kind: "full",
    say: (path) =>
      `${path} could not be written; the disk may be full. Nothing of this call was stored.`,
  },
  {
    start: "SQLITE_READONLY",
    kind: "read_only",
    say: (path) =>
      `${path} may not be written. Make the file and its folder writable for this user.`,
  },
  {
    start: "SQLITE_CORRUPT",
    kind: "corrupt",
    say: (path) =>
      `${path} is damaged. Restore it from a backup, or move it away to start with an empty store.`,
  },
  {
    start: "SQLITE_NOTADB",
    kind: "corrupt",
    say: (path) => `${path} is not a SQLite database. Name another file, or move this one away.`,
  },
  {
    start: "SQLITE_BUSY",
    kind: "busy",
    say: (path) =>
      `Another process held ${path} for too long. Try again, and look for long transactions on the file.`,
  },
  {
    start: "SQLITE_CANTOPEN",
    kind: "unavailable",
    say: (path) =>
      `${path} cannot be opened. Check that its folder exists and that this user may write there.`,
  },
  {
    start: "SQLITE_IOERR",
    kind: "failed",
    say: (path) => `Reading or writing ${path} failed. Check the disk and the file system.`,
  },
];

/** Whether a fault may lie with one item alone, so that its neighbours are worth another try. */
export function isOfOneItem({ kind, code = "" }: Fault): boolean {
  return kind === "failed" && !code.startsWith("SQLITE_IOERR");
}

/** The error that a caller sees. */
export function storeError(fault: Fault, url: string): StoreError {
  const { kind, message, code } = fault;
  if (kind === "too_new")
    return new StoreTooNew({ url, message, found: fault.found ?? 0, known: fault.known ?? 0 });
  if (kind === "failed") return new StoreFailed(code ? { url, message, code } : { url, message });
  return new kinds[kind]({ url, message });
}
