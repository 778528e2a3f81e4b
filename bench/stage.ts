// What the benchmark asks of a system that creates jobs in this process and runs them in others.
import type { JobType } from "./millrace/contract.js";
import type { Sizes } from "./sizes.js";
import type { HostName, HostOpener } from "./worker/host.js";

/** What became of jobs: they wait, or they have ended well. */
export type Fate = "waiting" | "ended";

/** A store of a system, and this process's connection to it. */
export interface Stage<Job = unknown> {
  readonly url: string;
  /** Creates one job, which is durable when the promise resolves. Peers know one type only. */
  create(number: number, type: JobType): Promise<Job>;
  /** Creates the jobs with the numbers from one up to another as one durable batch. */
  createBatch(from: number, to: number, type: JobType): Promise<readonly Job[]>;
  /** How many jobs of a type have not ended. */
  unfinished(type: JobType): Promise<number>;
  /** Throws `VerificationFailure` when what the system shows of jobs is not what became of them. */
  verify(jobs: readonly Job[], fate: Fate): Promise<void>;
  close(): Promise<void>;
  /** Runs workers in this process, for a store that no other process can reach. */
  readonly openHost?: HostOpener;
}

/** A system that can be measured with worker processes. */
export interface StagedSystem<Job = unknown> {
  readonly name: HostName;
  /** Makes what the system needs in an empty store, and connects to it. */
  open(url: string): Promise<Stage<Job>>;
  /** How much of the slow things it does in a round. */
  amounts(sizes: Sizes): {
    readonly concurrentJobs: number;
    readonly sequentialJobs: number;
    readonly pickupSamples: number;
  };
}
