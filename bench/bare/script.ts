// What the benchmark asks of a bare script: what a database itself gives to one fixed and fair program.
import type { Round } from "../rounds.js";

/** What the bare script of a database can be measured in. */
export interface BareScript {
  /** What the settings are called in the table's notes. */
  readonly settings: string;
  /** Single-row durable commits per second, one after the other. */
  readonly createSequential: Round;
  /** Rows per second, inserted in durable batches. */
  readonly createMany: Round;
  /** Rows per second, claimed and completed in durable batches. */
  readonly drain: Round;
}
