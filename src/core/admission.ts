/**
 * Admission: whether a create may add a job to its key, and what happens when the key is full.
 */
import type { JobKeyPolicy, PolicyOutcome } from "./job.js";

/** What an engine knows of a key at the moment of a create. */
export interface KeyFacts {
  /** Jobs of the key that have not ended, plus the slots that ended ones still hold. */
  readonly occupied: number;
  /** The slots taken: by jobs that run or may be claimed, and by ended ones whose worker has not confirmed. */
  readonly active: number;
  /** The oldest job of the key that waits and has not started, if any. */
  readonly oldestQueued?: string;
  /** A job of the key that is running, if any. */
  readonly running?: string;
}

/** What becomes of a create. */
export type Admission =
  | { readonly outcome: "accepted" }
  | { readonly outcome: "replaced"; readonly replacedJobId: string }
  | { readonly outcome: "coalesced"; readonly existingJobId: string }
  | {
      readonly outcome: "rejected";
      readonly reason: "active_limit" | "queue_full";
      readonly existingJobId?: string;
      readonly active: number;
      readonly queued: number;
      readonly limit: number;
    };

/** Decides a create under its key's policy. Only queued jobs are ever replaced, never running ones. */
export function admit(policy: JobKeyPolicy, facts: KeyFacts): Admission {
  const limit = policy.maxActive + policy.maxQueued;
  if (facts.occupied < limit) return { outcome: "accepted" };
  const existing = facts.oldestQueued ?? facts.running;
  if (policy.whenFull === "coalesce" && existing !== undefined)
    return { outcome: "coalesced", existingJobId: existing };
  if (policy.whenFull === "replace-oldest" && facts.oldestQueued !== undefined) {
    return { outcome: "replaced", replacedJobId: facts.oldestQueued };
  }
  return {
    outcome: "rejected",
    reason: policy.maxQueued === 0 ? "active_limit" : "queue_full",
    ...(existing === undefined ? null : { existingJobId: existing }),
    active: facts.active,
    queued: facts.occupied - facts.active,
    limit,
  };
}

/** What a `created` event and a key's row say of an admission. */
export function policyOutcome(admission: Admission): PolicyOutcome {
  switch (admission.outcome) {
    case "accepted":
      return { outcome: "accepted" };
    case "replaced":
      return { outcome: "replaced", replacedJobId: admission.replacedJobId };
    case "coalesced":
      return { outcome: "coalesced", existingJobId: admission.existingJobId };
    case "rejected": {
      const { reason, existingJobId } = admission;
      return existingJobId === undefined
        ? { outcome: "rejected", reason }
        : { outcome: "rejected", reason, existingJobId };
    }
  }
}

/** Whether a waiting job of a key may take a slot now. */
export function mayTakeSlot(maxActive: number, slotsTaken: number): boolean {
  return slotsTaken < maxActive;
}
