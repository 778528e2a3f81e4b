/**
 * Appending: the one way in which a job changes. Compare, fold, store, and move the job
 * to where its new state belongs.
 */
import { policyOutcome } from "../../core/admission.js";
import { endsAtOnce, refusedContinuation } from "../../core/chains.js";
import { decide } from "../../core/decide.js";
import type { EventOf, JobEvent } from "../../core/event.js";
import { evolve } from "../../core/evolve.js";
import { isEnded, type Job, type PolicyOutcome } from "../../core/job.js";
import { transitions } from "../../core/transitions.js";
import type { AppendOutcome, Change } from "../engine.js";
import { beginAttempt, confirmEnd, endAttempt, isStillHeld } from "./attempts.js";
import { addDependent, blockerRefusal, forgetBlockers } from "./blockers.js";
import { currentOfChain } from "./chains.js";
import { admitToKey, countTakeover, keyOf, promote, recordKey } from "./keys.js";
import { type StagedWrites, stageWrites, storeStaged } from "./records.js";
import { copy, type Entry, enterLine, isWaiting, leaveLine, type Store } from "./store.js";

/** Who moves a job on: the worker that holds it, or anybody else. */
export type ChangedBy = "worker" | "outside";

const conflict: AppendOutcome = { outcome: "conflict" };

/** Appends one change at its expectation, together with its records. */
export function appendChange(store: Store, change: Change, by: ChangedBy): AppendOutcome {
  const { before = [], after = [] } = change.records ?? {};
  const staged = stageWrites(store, [...before, ...after]);
  if (!staged.ok) return { outcome: "record_conflict", current: staged.current };

  const event = copy(change.event);
  const entry = store.jobs.get(change.job.id) ?? null;
  for (const { event: create } of [change, ...(change.follow ?? [])]) {
    if (create.name !== "created") continue;
    if (isTaken(store, create.jobId)) return { outcome: "exists" };
    const refusal = blockerRefusal(store, create);
    if (refusal) return refusal;
  }
  if (event.jobId !== change.job.id || !meets(entry?.job ?? null, change)) return conflict;
  if (evolve(entry?.job ?? null, event).ignored !== null) return conflict;
  if (entry !== null && speaksOfLapse(event) && !hasLapsed(store, entry)) return conflict;
  if (event.name === "created") {
    const outcome = appendCreated(store, event, staged);
    if (outcome.outcome === "appended") appendFollow(store, change.follow ?? []);
    return outcome;
  }
  storeStaged(store, staged.records);
  applyEvent(store, entry, event, { by, leaseMs: 0 });
  appendFollow(store, change.follow ?? []);
  return { outcome: "appended" };
}

function isTaken(store: Store, id: string): boolean {
  return store.jobs.has(id) || isStillHeld(store, id);
}

/** Stores what follows from a stored change. */
function appendFollow(store: Store, follow: readonly Change[]): void {
  const events = follow.map(({ event }) => event);
  for (const change of follow) {
    const event = copy(change.event);
    if (event.name !== "created") {
      const { outcome } = appendChange(store, change, "outside");
      if (outcome !== "appended") throw new Error(`What follows on ${event.jobId} met ${outcome}.`);
    } else if (endsAtOnce(events, event.jobId)) {
      if (event.key) recordKey(store, event, event.key, { outcome: "accepted" });
      applyEvent(store, null, event, fromOutside);
    } else {
      appendContinuation(store, event);
    }
  }
}

/** Creates the continuation of a job; one that its key refuses is skipped at once. */
function appendContinuation(store: Store, event: EventOf<"created">): void {
  const outcome = appendCreated(store, event, { ok: true, records: new Map() });
  if (outcome.outcome !== "not_admitted") return;
  const { created, skipped } = refusedContinuation(event, outcome.admission);
  applyEvent(store, applyEvent(store, null, created, fromOutside), skipped, fromOutside);
}

const fromOutside = { by: "outside", leaseMs: 0 } as const;

/** Appends one note, unless the fold ignores it. */
export function appendNote(store: Store, note: JobEvent): boolean {
  const event = copy(note);
  if (event.name === "staleCompletionIgnored") confirmEnd(store, event.jobId, event.token);
  const entry = store.jobs.get(event.jobId);
  if (entry === undefined || transitions[event.name]?.kind === "change") return false;
  const { job, ignored } = evolve(entry.job, event);
  if (ignored !== null || job === null) return false;
  entry.job = job;
  entry.positions.push(store.feed.push(event));
  return true;
}

/** Folds an accepted event into its job and moves the job to where it belongs now. */
export function applyEvent(
  store: Store,
  entry: Entry | null,
  event: JobEvent,
  cause: { readonly by: ChangedBy; readonly leaseMs: number },
): Entry | null {
  const { job } = evolve(entry?.job ?? null, event);
  const position = store.feed.push(event);
  const before = entry?.job ?? null;
  if (entry !== null) leaveLine(store, entry);
  if (before?.state === "blocked" && entry !== null) store.blocked.delete(entry);
  const wasActive = before?.state === "active";
  if (entry !== null && wasActive && job?.state !== "active") endAttempt(store, entry, cause.by);

  const changed = job === null ? null : (entry ?? newEntry(store, job));
  if (changed === null || job === null) {
    forget(store, entry);
  } else {
    changed.job = job;
    changed.positions.push(position);
    if (job.state === "active" && !wasActive) beginAttempt(store, changed, cause.leaseMs);
    if (isWaiting(job)) line(store, changed);
    if (job.state === "blocked") store.blocked.add(changed);
  }
  tendKey(store, changed, before, event);
  hint(store, before, job, event, cause.by);
  return changed;
}

function meets(job: Job | null, { expect, job: key }: Change): boolean {
  if (job === null) return expect.version === 0;
  if (job.service !== key.service || job.type !== key.type) return false;
  return job.version === expect.version && (expect.token ?? job.token) === job.token;
}

/** The keeper speaks under a token only when it has seen that token's lease lapse. */
function speaksOfLapse(event: JobEvent): boolean {
  return event.actor.startsWith("keeper:") && "token" in event && event.token !== undefined;
}

/** A lapse that the keeper saw may be over by now: the worker has renewed. */
function hasLapsed(store: Store, { attempt, job }: Entry): boolean {
  return attempt !== null && attempt.leaseUntil <= store.now() && !job.keyBlocked;
}

/** A create goes through its key's policy. A job that it replaces is skipped first, which frees its place. */
function appendCreated(
  store: Store,
  event: EventOf<"created">,
  staged: Extract<StagedWrites, { ok: true }>,
): AppendOutcome {
  const admission = event.key ? admitToKey(store, event, event.key) : null;
  if (admission?.outcome === "rejected" || admission?.outcome === "coalesced") {
    return { outcome: "not_admitted", admission };
  }
  storeStaged(store, staged.records);
  if (admission?.outcome === "replaced") skipReplaced(store, admission.replacedJobId, event);
  const policy: PolicyOutcome | null = admission && policyOutcome(admission);
  applyEvent(store, null, policy ? { ...event, policy } : event, { by: "outside", leaseMs: 0 });
  return policy ? { outcome: "appended", policy } : { outcome: "appended" };
}

function skipReplaced(store: Store, replacedJobId: string, created: EventOf<"created">): void {
  const entry = store.jobs.get(replacedJobId);
  const decision = decide(
    entry?.job ?? null,
    {
      command: "skip",
      eventId: `${created.id}:skipped`,
      actor: created.actor,
      reason: "replaced",
      replacedBy: created.jobId,
    },
    created.at,
  );
  if (!decision.ok || entry === undefined) {
    throw new Error(`Job ${replacedJobId} was chosen for replacement but cannot be skipped.`);
  }
  applyEvent(store, entry, decision.event, { by: "outside", leaseMs: 0 });
}

function newEntry(store: Store, job: Job): Entry {
  store.createdCount += 1;
  const entry: Entry = {
    sequence: store.createdCount,
    job,
    positions: [],
    removedBlockers: new Map(),
    line: null,
    attempt: null,
  };
  store.jobs.set(job.id, entry);
  addDependent(store, entry);
  if (job.chainId !== undefined)
    store.chains.set(job.chainId, (store.chains.get(job.chainId) ?? new Set()).add(entry));
  return entry;
}

/** Removes a deleted job and its log; the `deleted` event itself stays in the feed. */
function forget(store: Store, entry: Entry | null): void {
  if (entry === null) return;
  for (const position of entry.positions) store.feed.forget(position);
  const { chainId } = entry.job;
  const isCurrent = chainId !== undefined && currentOfChain(store, chainId) === entry;
  forgetBlockers(store, entry, isCurrent);
  store.jobs.delete(entry.job.id);
  const chain = chainId === undefined ? undefined : store.chains.get(chainId);
  chain?.delete(entry);
  if (chainId !== undefined && chain?.size === 0) store.chains.delete(chainId);
}

/** Lines up a waiting job. A keyed one that is due enters `ready` only when its key gives it a slot. */
function line(store: Store, entry: Entry): void {
  if (entry.job.runAt > store.now()) enterLine(store, entry, "delayed");
  else if (!entry.job.key) enterLine(store, entry, "ready");
}

function tendKey(store: Store, entry: Entry | null, before: Job | null, event: JobEvent): void {
  const job = entry?.job ?? before;
  const key = job && keyOf(store, job);
  if (!job || !key) return;
  if (entry !== null && !isEnded(entry.job.state)) key.members.set(job.id, entry);
  else key.members.delete(job.id);
  countTakeover(key, event);
  // Slots are given out when one may be free or somebody new has come, and otherwise by claims.
  const movedOn = before !== null && !isEnded(before.state) && entry?.job.state !== "active";
  const hasCome = key.members.has(job.id) && (before === null || isEnded(before.state));
  if (movedOn || (hasCome && job.runAt <= store.now())) promote(store, key);
}

function hint(
  store: Store,
  before: Job | null,
  after: Job | null,
  event: JobEvent,
  by: ChangedBy,
): void {
  const leftActive = before?.state === "active" && after?.state !== "active";
  // A delayed job is a hint, too: whoever waits for the next due time has to learn of it.
  // A job that leaves `active` may make room under a cap.
  if ((after && isWaiting(after)) || leftActive) store.hints.add("ready");
  if ((before === null || !isEnded(before.state)) && (after === null || isEnded(after.state))) {
    store.hints.add("ended");
  }
  // What a blocked job waits for may have ended already, and then nothing else tells the keeper to look.
  if (after?.state === "blocked") store.hints.add("ended");
  if (event.name === "cancelRequested" || (leftActive && by === "outside")) {
    store.hints.add("cancel");
  }
}
