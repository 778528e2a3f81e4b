/**
 * Concurrency keys: who is under a key, who holds its slots, and who gets the next one.
 */
import {
  type Admission,
  admit,
  type KeyFacts,
  mayTakeSlot,
  policyOutcome,
} from "../../core/admission.js";
import type { JobEvent } from "../../core/event.js";
import type { Job, JobKeyPolicy, PolicyOutcome } from "../../core/job.js";
import { compareOrder } from "../../core/order.js";
import { type Entry, enterLine, isWaiting, type KeyState, type Store } from "./store.js";

/** The state of a job's key, made when it is first needed; `null` for a job without one. */
export function keyOf(store: Store, job: Pick<Job, "service" | "type" | "key">): KeyState | null {
  return job.key ? stateOf(store, job, job.key) : null;
}

/** Asks the core whether a key takes a new job, and remembers the answer. */
export function admitToKey(
  store: Store,
  job: Pick<Job, "service" | "type">,
  policy: JobKeyPolicy,
): Admission {
  const admission = admit(policy, keyFacts(store, stateOf(store, job, policy)));
  recordKey(store, job, policy, policyOutcome(admission));
  return admission;
}

/** Remembers the key, its limits and what its policy last did. */
export function recordKey(
  store: Store,
  job: Pick<Job, "service" | "type">,
  policy: JobKeyPolicy,
  outcome: PolicyOutcome,
): void {
  const key = stateOf(store, job, policy);
  key.maxActive = policy.maxActive;
  key.maxQueued = policy.maxQueued;
  key.whenFull = policy.whenFull;
  key.lastOutcome = { ...outcome, at: store.now() };
}

/** Gives free slots of a key to due jobs that wait for one, in the order of claims, each by its own limit. */
export function promote(store: Store, key: KeyState): void {
  for (let next = nextForSlot(store, key); next !== null; next = nextForSlot(store, key)) {
    enterLine(store, next, "ready");
    store.hints.add("ready");
  }
}

/** The slots taken: reserved, active, and ended ones whose worker has not confirmed. */
function slotsTaken(store: Store, key: KeyState): number {
  let count = 0;
  for (const member of key.members.values()) if (member.line === "ready") count += 1;
  for (const attempt of key.attempts) {
    if (!attempt.ended || attempt.leaseUntil > store.now()) count += 1;
  }
  return count;
}

/** Counts the lapses that let another job take over a key. */
export function countTakeover(key: KeyState, event: JobEvent): void {
  if (!event.actor.startsWith("keeper:")) return;
  const orphaned =
    (event.name === "retry" || event.name === "dead") && event.error.reason === "orphaned";
  if (orphaned || event.name === "stale") key.takeovers += 1;
}

function keyFacts(store: Store, key: KeyState): KeyFacts {
  // A job that was retried by hand came back last, but is as old as it ever was.
  const members = [...key.members.values()].sort((a, b) => a.sequence - b.sequence);
  const queued = members.find(({ job }) => job.state !== "active" && job.state !== "blocked");
  const running = members.find(({ job }) => job.state === "active");
  const endedSlots = [...key.attempts].filter(
    ({ ended, leaseUntil }) => ended && leaseUntil > store.now(),
  );
  return {
    occupied: members.length + endedSlots.length,
    active: slotsTaken(store, key),
    ...(queued && { oldestQueued: queued.job.id }),
    ...(running && { running: running.job.id }),
  };
}

/** The first in line for a slot. While its own limit keeps it waiting, nobody overtakes it. */
function nextForSlot(store: Store, key: KeyState): Entry | null {
  let next: Entry | null = null;
  for (const member of key.members.values()) {
    const { job, line } = member;
    if (!isWaiting(job) || line === "ready") continue;
    // Who waits and stands in no line was due once, even if the clock has gone back since then.
    if (line === "delayed" && job.runAt > store.now()) continue;
    if (next === null || compareOrder(job, next.job) < 0) next = member;
  }
  const maxActive = next?.job.key?.maxActive ?? 0;
  return mayTakeSlot(maxActive, slotsTaken(store, key)) ? next : null;
}

function stateOf(store: Store, job: Pick<Job, "service" | "type">, policy: JobKeyPolicy): KeyState {
  let state = store.keys.get(policy.hash);
  if (state === undefined) {
    const { key, hash, maxActive, maxQueued, whenFull } = policy;
    const { service, type } = job;
    state = {
      service,
      type,
      key,
      hash,
      maxActive,
      maxQueued,
      whenFull,
      members: new Map(),
      attempts: new Set(),
      takeovers: 0,
      lastOutcome: null,
    };
    store.keys.set(hash, state);
  }
  return state;
}
