/**
 * Chains and blockers: what follows from the end of a job, under ids derived from the cause,
 * so that deriving it twice gives the same thing once.
 */
import { createHash } from "node:crypto";
import { type Admission, policyOutcome } from "./admission.js";
import { decide } from "./decide.js";
import type { EventOf, JobEvent } from "./event.js";
import { evolve } from "./evolve.js";
import { type Blocker, isEnded, type Job, type JobState } from "./job.js";

/** The id of a job that follows from another: the same cause always gives the same id. */
export function derivedId(cause: string, purpose: string): string {
  return createHash("sha256").update(`${cause}\n${purpose}`).digest("hex").slice(0, 26);
}

/** The chain that a job belongs to: its own, unless it continues one. */
export function chainOf(job: Pick<Job, "id" | "chainId">): string {
  return job.chainId ?? job.id;
}

/** The id of the job that continues this run of a job, also where its own id is used again after it was deleted. */
export function continuationId(job: Pick<Job, "id" | "run" | "createdAt">): string {
  return derivedId(`${job.id}@${job.createdAt}#${job.run}`, "continuation");
}

/**
 * The events of a continuation that its key does not let in: it is created and skipped at once, because what
 * it follows from has happened, and so that its chain has an end.
 */
export function refusedContinuation(
  event: EventOf<"created">,
  admission: Extract<Admission, { outcome: "rejected" | "coalesced" }>,
): { readonly created: EventOf<"created">; readonly skipped: JobEvent } {
  const created = { ...event, policy: policyOutcome(admission) };
  return { created, skipped: skippedAtOnce(created, `${admission.outcome} late`) };
}

/** The event that skips a job right after its creation. */
export function skippedAtOnce(created: EventOf<"created">, reason: string): JobEvent {
  const { id, actor, at } = created;
  const decision = decide(
    evolve(null, created).job,
    { command: "skip", eventId: `${id}:skipped`, actor, reason },
    at,
  );
  if (!decision.ok)
    throw new Error(`A new job could not be skipped: ${decision.rejection.message}`);
  return decision.event;
}

/**
 * Whether what follows ends a job that it creates, as when a chain is completed over several steps. Such a job never runs, so that
 * it takes no place of its key, and the key's policy is not asked.
 */
export function endsAtOnce(
  follow: readonly Pick<JobEvent, "jobId" | "state">[],
  id: string,
): boolean {
  return follow.some(({ jobId, state }) => jobId === id && isEnded(state));
}

/**
 * Whether the job that a chain has come to continues in one that is not there: the end of the chain was removed, and nobody can tell
 * any more how it ended.
 */
export function continuesElsewhere(current: Pick<Job, "state" | "continuedBy">): boolean {
  return current.state === "completed" && current.continuedBy !== undefined;
}

/** What the blockers of a job mean for it now. */
export type BlockerVerdict =
  | { readonly verdict: "wait" }
  | { readonly verdict: "unblock" }
  | { readonly verdict: "unreachable"; readonly blockerId: string };

/** Whether a blocked job may go on. A blocker that is missing (`undefined`) has ended badly. */
export function blockerVerdict(
  blockers: readonly Blocker[],
  stateOf: (blocker: Blocker, place: number) => JobState | undefined,
): BlockerVerdict {
  let waiting = false;
  for (const [place, blocker] of blockers.entries()) {
    const state = stateOf(blocker, place);
    if (state === "completed") continue;
    if (state !== undefined && !isEnded(state)) waiting = true;
    else if (blocker.onBadEnd === "unreachable")
      return { verdict: "unreachable", blockerId: blocker.jobId };
  }
  return waiting ? { verdict: "wait" } : { verdict: "unblock" };
}
