/**
 * Attempts: leases under a token, and the slots of keys and caps that go with them.
 */
import { isEnded } from "../../core/job.js";
import type { ClaimLane, HeldLease, RenewOutcome } from "../engine.js";
import type { Queries } from "../query.js";
import { keyOf, promote } from "./keys.js";
import type { Attempt, Entry, Store } from "./store.js";

/** Begins the attempt of a job that has just become active. */
export function beginAttempt(store: Store, entry: Entry, leaseMs: number): void {
  const { job } = entry;
  const now = store.now();
  const attempt: Attempt = {
    job,
    token: job.token,
    worker: job.worker ?? "",
    leaseUntil: now + leaseMs,
    heartbeatAt: now,
    ended: false,
  };
  entry.attempt = attempt;
  store.attempts.add(attempt);
  keyOf(store, job)?.attempts.add(attempt);
}

/**
 * Ends the attempt of a job that is active no more. Its own worker has let go; when somebody else
 * moved the job on while the lease stands, the worker may still run, so the slots stay taken.
 */
export function endAttempt(store: Store, entry: Entry, by: "worker" | "outside"): void {
  const { attempt } = entry;
  if (attempt === null) return;
  entry.attempt = null;
  if (by === "outside" && attempt.leaseUntil > store.now()) attempt.ended = true;
  else dropAttempt(store, attempt);
}

/** Frees what an ended token still holds: its worker has confirmed. */
export function confirmEnd(store: Store, jobId: string, token: number): void {
  const attempt = endedAttempt(store, jobId, token);
  if (attempt !== null) freeSlots(store, attempt);
}

/** Frees the slots of ended attempts whose lease has lapsed. */
export function freeLapsedSlots(store: Store): void {
  const now = store.now();
  for (const attempt of [...store.attempts]) {
    if (attempt.ended && attempt.leaseUntil <= now) freeSlots(store, attempt);
  }
}

/** Extends a lease and the slots that go with it. */
export function renewLease(store: Store, held: HeldLease): RenewOutcome {
  const now = store.now();
  const entry = store.jobs.get(held.job.id);
  const active = entry?.attempt?.token === held.token ? entry.attempt : null;
  const attempt = active ?? endedAttempt(store, held.job.id, held.token);
  // A slot that has lapsed may have been given away and must not come back.
  if (attempt && (!attempt.ended || attempt.leaseUntil > now)) {
    attempt.leaseUntil = now + held.leaseMs;
    attempt.heartbeatAt = now;
  }
  const job = entry?.job ?? null;
  if (job === null || job.token !== held.token) {
    return { outcome: "lost", state: job?.state ?? null };
  }
  if (isEnded(job.state)) return { outcome: "ended", state: job.state };
  if (job.state !== "active") return { outcome: "lost", state: job.state };
  const cancelRequested = job.cancelRequest !== undefined;
  return { outcome: "held", leaseUntil: now + held.leaseMs, cancelRequested };
}

/** Counts the places that are left under the caps of lanes. */
export class CapCounter {
  readonly #taken = new Map<string, number>();

  constructor(store: Store) {
    const now = store.now();
    for (const { job, ended, leaseUntil } of store.attempts) {
      if (!ended || leaseUntil > now) this.take(job);
    }
  }

  take(job: { readonly service: string; readonly type: string; readonly queue: string }): void {
    for (const cap of [typeCap(job), queueCap(job)]) {
      this.#taken.set(cap, (this.#taken.get(cap) ?? 0) + 1);
    }
  }

  /** How many places are held under the caps of a type and of a queue. */
  held(names: Queries["held"]["ask"]): Queries["held"]["answer"] {
    return {
      type: this.#taken.get(typeCap(names)) ?? 0,
      queue: this.#taken.get(queueCap(names)) ?? 0,
    };
  }

  /** How many more jobs of a lane its caps let in. */
  room(lane: ClaimLane): number {
    const { typeMaxActive = Number.POSITIVE_INFINITY, queueMaxActive = Number.POSITIVE_INFINITY } =
      lane;
    return Math.min(
      typeMaxActive - (this.#taken.get(typeCap(lane)) ?? 0),
      queueMaxActive - (this.#taken.get(queueCap(lane)) ?? 0),
    );
  }
}

function freeSlots(store: Store, attempt: Attempt): void {
  dropAttempt(store, attempt);
  const key = keyOf(store, attempt.job);
  if (key !== null) promote(store, key);
  // A place under a cap is free again, even where no key is.
  store.hints.add("ready");
}

function dropAttempt(store: Store, attempt: Attempt): void {
  store.attempts.delete(attempt);
  keyOf(store, attempt.job)?.attempts.delete(attempt);
}

/** Whether a worker has not let go of a job that was deleted: a new job of that id would use its token again. */
export function isStillHeld(store: Store, jobId: string): boolean {
  const now = store.now();
  for (const { job, ended, leaseUntil } of store.attempts) {
    if (ended && job.id === jobId && leaseUntil > now) return true;
  }
  return false;
}

/** The attempt of a token that was ended from outside and still holds its slots. */
function endedAttempt(store: Store, jobId: string, token: number): Attempt | null {
  for (const attempt of store.attempts) {
    if (attempt.ended && attempt.job.id === jobId && attempt.token === token) return attempt;
  }
  return null;
}

function typeCap(job: { readonly service: string; readonly type: string }): string {
  return `type/${job.service}/${job.type}`;
}

function queueCap(job: { readonly service: string; readonly queue: string }): string {
  return `queue/${job.service}/${job.queue}`;
}
