/**
 * Why a job is not running: one typed reason and one sentence, from the fold and a few facts around it.
 */
import { isEnded, type Job, type JobState } from "./job.js";

/** What is known around a job at the moment of asking. */
export interface WhyFacts {
  readonly now: number;
  readonly queuePaused?: boolean;
  /** How many places are held under the type's, the queue's or the key's limit, with that limit. */
  readonly typeLimit?: { readonly active: number; readonly maxActive: number };
  readonly queueLimit?: { readonly active: number; readonly maxActive: number };
  readonly keyLimit?: { readonly active: number; readonly maxActive: number };
  /** Whether its key stays blocked because the worker of another job under it was lost. */
  readonly keyBlocked?: boolean;
  /** Live workers that handle the type at this version. */
  readonly workers?: number;
  /** Jobs that come before it in its queue. */
  readonly ahead?: number;
  /** The blockers that have not ended. */
  readonly openBlockers?: readonly OpenBlocker[];
}

/** A job or a chain that another job waits for, with the state that it is in. */
export interface OpenBlocker {
  readonly id: string;
  readonly isChain: boolean;
  readonly state: JobState;
}

/** Why a job is not running. */
export type Why =
  | { readonly reason: "running"; readonly sentence: string; readonly worker: string }
  | { readonly reason: "cancelling"; readonly sentence: string; readonly since: number }
  | { readonly reason: "key_blocked"; readonly sentence: string; readonly key: string }
  | { readonly reason: "ended"; readonly sentence: string; readonly state: string }
  | {
      readonly reason: "blocked";
      readonly sentence: string;
      /** The ones that have not ended; none when the keeper is about to let the job go on. */
      readonly blockers: readonly OpenBlocker[];
    }
  | { readonly reason: "deadline_passed"; readonly sentence: string; readonly deadline: number }
  | { readonly reason: "scheduled"; readonly sentence: string; readonly runAt: number }
  | { readonly reason: "backing_off"; readonly sentence: string; readonly runAt: number }
  | { readonly reason: "queue_paused"; readonly sentence: string; readonly queue: string }
  | { readonly reason: "key_busy"; readonly sentence: string; readonly key: string }
  | {
      readonly reason: "type_limit" | "queue_limit";
      readonly sentence: string;
      readonly maxActive: number;
    }
  | { readonly reason: "no_worker"; readonly sentence: string }
  | { readonly reason: "queued"; readonly sentence: string; readonly ahead?: number };

/** The reason why a job is not running now, most telling first. */
export function why(job: Job, facts: WhyFacts): Why {
  if (isEnded(job.state))
    return { reason: "ended", state: job.state, sentence: endedSentence(job) };
  if (job.state === "active") return whyActive(job);
  if (job.deadline !== undefined && job.deadline <= facts.now) {
    const sentence = "Its deadline has passed; it is about to be marked expired.";
    return { reason: "deadline_passed", deadline: job.deadline, sentence };
  }
  if (job.state === "blocked") return whyBlocked(facts.openBlockers ?? []);
  return whyWaiting(job, facts);
}

function whyActive(job: Job): Why {
  if (job.keyBlocked && job.key) {
    const sentence = `Its worker was lost while it held the key ${job.key.key}, which stays blocked until the worker returns or service.keys.release releases the key.`;
    return { reason: "key_blocked", key: job.key.key, sentence };
  }
  if (job.cancelRequest) {
    const sentence = `It is running on ${job.worker} and was asked to stop; it ends when its handler returns.`;
    return { reason: "cancelling", since: job.cancelRequest.at, sentence };
  }
  return {
    reason: "running",
    worker: job.worker ?? "",
    sentence: `It is running on ${job.worker}, try ${job.tries} of ${job.maxTries}.`,
  };
}

function whyWaiting(job: Job, facts: WhyFacts): Why {
  if (job.runAt > facts.now) {
    const at = new Date(job.runAt).toISOString();
    return job.state === "retry"
      ? {
          reason: "backing_off",
          runAt: job.runAt,
          sentence: `Try ${job.tries} of ${job.maxTries} failed (${job.error?.message ?? "no message"}); the next is due at ${at}.`,
        }
      : { reason: "scheduled", runAt: job.runAt, sentence: `It is scheduled for ${at}.` };
  }
  if (facts.queuePaused)
    return {
      reason: "queue_paused",
      queue: job.queue,
      sentence: `Its queue ${job.queue} is paused.`,
    };
  if (job.key && facts.keyLimit && facts.keyLimit.active >= facts.keyLimit.maxActive)
    return whyKeyed(job.key.key, facts.keyLimit, facts.keyBlocked ?? false);
  if (facts.workers === 0) {
    return {
      reason: "no_worker",
      sentence: `No live worker of ${job.service} handles ${job.type} version ${job.typeVersion}.`,
    };
  }
  const limits = [
    { reason: "type_limit", name: `type ${job.type}`, limit: facts.typeLimit },
    { reason: "queue_limit", name: `queue ${job.queue}`, limit: facts.queueLimit },
  ] as const;
  for (const { reason, name, limit } of limits) {
    if (limit && limit.active >= limit.maxActive) {
      const sentence = `All ${limit.maxActive} places of its ${name} are taken.`;
      return { reason, maxActive: limit.maxActive, sentence };
    }
  }
  if (facts.ahead === undefined)
    return { reason: "queued", sentence: "It is next in line for a free worker." };
  const sentence =
    facts.ahead === 0
      ? "It is the next in line for a free worker."
      : `${facts.ahead} jobs come before it.`;
  return { reason: "queued", ahead: facts.ahead, sentence };
}

function whyKeyed(key: string, limit: WhyFacts["keyLimit"] & {}, blocked: boolean): Why {
  if (blocked) {
    const sentence = `Its key ${key} is blocked, because a worker was lost while it held the key; release it with service.keys.release.`;
    return { reason: "key_blocked", key, sentence };
  }
  const sentence = `Its key ${key} is busy: ${limit.active} of ${limit.maxActive} slots are taken.`;
  return { reason: "key_busy", key, sentence };
}

/** What an ended job says of its end: its error where that ended it, the reason otherwise. */
export function endedDetail({ state, error, reason }: Job): string | undefined {
  const isFailure = state === "failed" || state === "dead";
  return isFailure ? (error?.message ?? reason) : (reason ?? error?.message);
}

function endedSentence(job: Job): string {
  const detail = endedDetail(job);
  const opening = `It has ended as ${job.state} after ${job.tries === 1 ? "1 try" : `${job.tries} tries`}`;
  return detail ? `${opening}: ${detail}` : `${opening}.`;
}

/** How many blockers a sentence names. */
const blockersShownMax = 3;

function whyBlocked(blockers: readonly OpenBlocker[]): Why {
  if (blockers.length === 0) {
    const sentence = "What it waited for has ended; the keeper is about to let it go on or end it.";
    return { reason: "blocked", blockers, sentence };
  }
  const shown = blockers
    .slice(0, blockersShownMax)
    .map(({ id, isChain, state }) => `${isChain ? "chain" : "job"} ${id} (${state})`)
    .join(", ");
  const more = blockers.length - blockersShownMax;
  const all = more > 0 ? `${shown} and ${more} more` : shown;
  return { reason: "blocked", blockers, sentence: `It waits for ${all} to end.` };
}
