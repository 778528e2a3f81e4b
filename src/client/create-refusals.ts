/**
 * The refusals of creates, each with the sentence that names the remedy.
 */
import { batchMax } from "../engine/engine.js";
import { TransactionRefused } from "../engine/errors.js";
import { InvalidOption, JobExists, JobNotEnqueued } from "./errors.js";
import { kindOf } from "./option-checks.js";
import type { PreparedCreate } from "./prepare.js";
import type { Submitted } from "./submit.js";

/** The most jobs that one `createMany` makes. */
export const createManyMax = batchMax;

/** The error of a create whose key let no new job in. */
export function notEnqueued(
  done: Extract<Submitted, { outcome: "rejected" | "coalesced" }>,
  { event }: PreparedCreate,
): JobNotEnqueued {
  const { key, maxActive, maxQueued } = event.key ?? { key: "", maxActive: 0, maxQueued: 0 };
  const limit = maxActive + maxQueued;
  if (done.outcome === "coalesced") {
    const message = `The key ${key} is full; job ${done.id} stands for this one.`;
    return new JobNotEnqueued({ reason: "coalesced", key, limit, existingJobId: done.id, message });
  }
  const { outcome: _, ...rejected } = done;
  const message = `The key ${key} is full: ${done.active} active and ${done.queued} queued of ${limit}; create the job later, or allow more.`;
  return new JobNotEnqueued({ ...rejected, message });
}

/** The error of a job whose id another one of the same call has. */
export function chosenTwice(id: string): JobExists {
  return new JobExists({
    id,
    message: `The id ${id} is given to two jobs of one call; give each its own.`,
  });
}

/** What is wrong with the list of a `createMany`, or `null` when nothing is. */
export function listProblem(jobs: unknown): InvalidOption | null {
  if (!Array.isArray(jobs)) {
    const message = `createMany takes a list of { payload, … }, not ${kindOf(jobs)}.`;
    return new InvalidOption({ field: "jobs", message });
  }
  return jobs.length > createManyMax ? tooMany(jobs.length) : null;
}

/** The error of a payload that cannot be checked before a synchronous call returns. */
export function checksLater(type: string, checked: Promise<unknown>): TransactionRefused {
  checked.catch(() => {});
  const message = `The schema of ${type} checks its payload asynchronously, which a synchronous create cannot wait for; begin the transaction by hand and await create.`;
  return new TransactionRefused({ reason: "not_synchronous", message });
}

/** The error of what is no job in a list of jobs. */
export function noJob(job: unknown): InvalidOption {
  const message = `A job of a createMany must be an object with a payload, not ${kindOf(job)}.`;
  return new InvalidOption({ field: "jobs", message });
}

/** The error of a job that names a transaction of its own among many. */
export function ownTransaction(): InvalidOption {
  const message = "Jobs of one createMany share a transaction: give tx to createMany itself.";
  return new InvalidOption({ field: "tx", message });
}

function tooMany(count: number): InvalidOption {
  const message = `${count} jobs are too many for one createMany; give at most ${createManyMax} and call it again.`;
  return new InvalidOption({ field: "jobs", message });
}
