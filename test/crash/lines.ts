// The ledgers as files: every process appends whole lines, which outlive it, and the test reads them.
import { openSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import type { JobState } from "#millrace/core/job.js";

/** Names the ledgers in a folder. */
export const ledgerFile = {
  callers: (folder: string) => join(folder, "callers.ndjson"),
  handlers: (folder: string) => join(folder, "handlers.ndjson"),
} as const;

/** What a caller was told. `idempotencyKey` is the one that the create had. */
export type CallerLine =
  | { readonly line: "acknowledged"; readonly id: string; readonly idempotencyKey?: string }
  | { readonly line: "refused"; readonly id: string }
  | { readonly line: "told"; readonly id: string; readonly state: JobState }
  /** A transaction of the caller's met another and was run again. */
  | { readonly line: "again" }
  | FaultLine;

/** An error that is no answer to what a caller asked for. */
export interface FaultLine {
  readonly line: "fault";
  /** What the caller asked for. */
  readonly call: string;
  readonly tag: string;
  readonly message: string;
}

/** The line about an error. */
export function faultOf(call: string, error: Error): FaultLine {
  return { line: "fault", call, tag: error.name, message: error.message };
}

/** What happened to a token in a process. `at` is the wall clock, `tick` the machine's monotonic one. */
export type HandlerLine = {
  readonly jobId: string;
  readonly token: number;
  readonly process: string;
  readonly at: number;
  readonly tick: number;
} & (
  | { readonly line: "granted"; readonly until: number }
  | { readonly line: "entered"; readonly type: string; readonly key: string }
  | { readonly line: "completing" }
  | { readonly line: "left"; readonly said: string }
);

/** Appends lines to a ledger. A line that was written is not lost with its process. */
export function openLedger<Line extends CallerLine | HandlerLine>(
  path: string,
): (line: Line) => void {
  const file = openSync(path, "a");
  return (line) => void writeSync(file, `${JSON.stringify(line)}\n`);
}

/** Reads a ledger. */
export function readLedger<Line extends CallerLine | HandlerLine>(path: string): readonly Line[] {
  const lines = readFileSync(path, "utf8").split("\n");
  return lines.filter((line) => line !== "").map((line) => JSON.parse(line) as Line);
}
