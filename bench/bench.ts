// What a run of the benchmark consists of: measures, each with its rows and the systems that compete
// in it, and the surroundings that every measure gets.
import type { Sizes } from "./sizes.js";
import type { Workspace } from "./workspace.js";

/** The engines of Millrace that can be measured. */
export const engineNames = ["file", "memory", "postgres", "nats", "nats-always"] as const;
export type EngineName = (typeof engineNames)[number];

/** Everything that is measured, in the order of the table's columns. */
export const systemNames = [
  "millrace",
  "bare",
  "plainjob",
  "bullmq",
  "graphile-worker",
  "pg-boss",
] as const;
export type SystemName = (typeof systemNames)[number];

/** One cell of the table: a system's value in a row. */
export interface CellName {
  readonly system: SystemName;
  readonly row: string;
}

/** What Millrace wants to reach in a row. */
export type Target =
  /** A share of another cell's value; at lower-is-better rows of its inverse. */
  | { readonly kind: "share"; readonly of: CellName; readonly atLeast: number }
  /** The same of whichever peer is best in this row. */
  | { readonly kind: "best-peer"; readonly atLeast: number }
  | { readonly kind: "below"; readonly limit: number }
  | { readonly kind: "above"; readonly limit: number };

/** The targets by engine; on an engine that is not named there are none. */
export type Targets = Readonly<Partial<Record<EngineName, readonly Target[]>>>;

/** One line of the table. */
export interface Row {
  readonly name: string;
  readonly unit: string;
  readonly better: "higher" | "lower";
  /** What the row shows, in a few words. */
  readonly shows: string;
  /** What every system's ratio in this row refers to. */
  readonly base?: CellName;
  readonly targets: Targets;
}

/** The values of one round by the name of their row. */
export type Readings = Readonly<Record<string, number>>;

/** A system that takes part in a measure. */
export interface Contender {
  readonly system: SystemName;
  /** Runs one round. Throws `VerificationFailure` when what it did is not what the system shows. */
  run(bench: Bench): Promise<Readings>;
}

/** One experiment. Its contenders take turns, so that a noisy moment hits all of them. */
export interface Measure {
  readonly name: string;
  readonly engines: readonly EngineName[];
  readonly rounds: number;
  readonly rows: readonly Row[];
  readonly contenders: readonly Contender[];
}

/** What every measure gets. */
export interface Bench {
  readonly engine: EngineName;
  readonly sizes: Sizes;
  readonly workspace: Workspace;
  /** Says on stderr what goes on. */
  progress(text: string): void;
}

/** What a system did and what it shows afterwards differ: its numbers are worth nothing. */
export class VerificationFailure extends Error {
  override readonly name = "VerificationFailure";
}

/** Fails the run unless a claim holds. */
export function verify(holds: boolean, otherwise: () => string): void {
  if (!holds) throw new VerificationFailure(otherwise());
}
