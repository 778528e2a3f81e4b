/**
 * Applying events: the log has decided, and the rows follow. What the fold would ignore changes nothing.
 */
import type { EventName, JobEvent } from "../../core/event.js";
import { ignoredReason } from "../../core/evolve.js";
import { isEnded, type JobState } from "../../core/job.js";
import { changeEnd, confirmEnd, removeJob } from "../sql/append.js";
import type { FlatChange } from "../sql/change.js";
import { recordKey, storeJob } from "../sql/create.js";
import { moveOn, waitingAgain } from "../sql/place.js";
import {
  freeSlot,
  insertLease,
  keyScope,
  placeSlim,
  promoteKey,
  type Slim,
  takeSlot,
} from "../sql/slim.js";
import type { Step } from "../sql/statement.js";
import { eventIn, type FlatEntry, flatEntry, type LoggedEvent } from "./entry.js";
import { countTakeovers, deleteReady, forgetOfKey, readyPlace, withdrawSlots } from "./keys.js";
import {
  deleteLease,
  isDelayed,
  isOpen,
  type Known,
  type KnownJobs,
  readKnown,
  standing,
} from "./known.js";
import { type Entries, lastOf, portions } from "./packed.js";
import { plainChange } from "./plain.js";
import { expect, lookAhead, passTime } from "./time.js";
import type { ProjectionTransaction } from "./transaction.js";

/** How many entries are read at once: what they say is needed no longer than until they are applied. */
const readMax = 250;

/** Applies entries that follow on a position, in order. Gives how many of them changed nothing. */
export function* applyEntries(
  tx: ProjectionTransaction,
  position: number,
  entries: Entries,
): Step<number> {
  tx.memory.begin(position);
  const { jobs } = tx.memory;
  const seen = new Set<string>();
  yield* lookAhead(tx);
  let ignored = 0;
  for (const portion of portions(entries, position, readMax)) {
    const read = portion.map(eventIn);
    const unseen = new Set<string>();
    for (const { event } of read) {
      if (seen.has(event.jobId)) continue;
      seen.add(event.jobId);
      if (!jobs.has(event.jobId)) unseen.add(event.jobId);
    }
    yield* readKnown(unseen, jobs);
    ignored += yield* applyRead(tx, jobs, read);
  }
  tx.memory.end(lastOf(entries), seen);
  return ignored;
}

function* applyRead(
  tx: ProjectionTransaction,
  jobs: KnownJobs,
  entries: readonly LoggedEvent<JobEvent>[],
): Step<number> {
  let ignored = 0;
  for (const logged of entries) {
    const { event } = logged;
    tx.seq = logged.seq;
    const plain =
      event.at < tx.nextAt
        ? plainChange(tx, jobs.get(event.jobId), event, logged.leaseUntil)
        : null;
    if (plain) {
      for (const statement of plain.statements) yield statement;
      jobs.set(event.jobId, plain.known);
      continue;
    }
    const entry = flatEntry(logged);
    const { change } = entry;
    if (!change) {
      ignored += 1;
      continue;
    }
    tx.now = change.at;
    if (tx.nextAt <= tx.now) yield* passTime(tx);
    const known = jobs.get(change.id);
    // The slots of a job that is gone are still held by its worker, which confirms like this, too.
    if (change.name === "staleCompletionIgnored" && isOwn(known, entry))
      yield* confirmEnd(tx, change.id, change.expectToken ?? 0);
    if (isIgnored(known, entry, change)) ignored += 1;
    else yield* apply(tx, jobs, entry, change);
  }
  return ignored;
}

function isIgnored(known: Known | undefined, entry: FlatEntry, change: FlatChange): boolean {
  const { id: jobId, version, expectToken } = change;
  // The log of a removed job is gone but for this event, perhaps before the projection has seen all of it.
  const isNewer = known !== undefined && version > known.slim.version;
  if (change.name === "deleted" && isNewer && isOwn(known, entry)) return false;
  const event = { jobId, service: entry.service, name: change.name as EventName, version };
  const told = expectToken === null ? event : { ...event, token: expectToken };
  return ignoredReason(known ? standing(known) : null, told) !== null;
}

/** Whether an event is of the service that has the job. Another may write under the same id, and means nothing to it. */
function isOwn(known: Known | undefined, { service }: FlatEntry): boolean {
  return known === undefined || known.service === service;
}

/** Applies an event that the fold accepts. */
function* apply(
  tx: ProjectionTransaction,
  jobs: KnownJobs,
  entry: FlatEntry,
  change: FlatChange,
): Step<void> {
  const name = change.name as EventName;
  const known = jobs.get(change.id);
  if (name === "created") {
    const created = yield* create(tx, entry, change);
    if (created) jobs.set(change.id, created);
  } else if (name === "deleted") {
    yield* remove(tx, known, change);
    jobs.delete(change.id);
  } else if (known) {
    const next = yield* changeKnown(tx, known, name, entry, change);
    jobs.set(change.id, next);
  }
}

/** Applies an event to a job that exists. Gives the job after it. */
function* changeKnown(
  tx: ProjectionTransaction,
  known: Known,
  name: Exclude<EventName, "created" | "deleted">,
  entry: FlatEntry,
  change: FlatChange,
): Step<Known> {
  yield* tx.dialect.appendEvent(tx, known.slim.n, change.values);
  switch (name) {
    case "started":
      return yield* start(tx, known, entry, change);
    case "cancelRequested":
    case "keyBlocked":
      return yield* mark(known, change);
    case "retried":
    case "dismissed":
      return yield* changeEnded(tx, known, change);
    case "ready":
      if (isDelayed(known.slim) && change.at >= known.slim.runAt) yield dropDelayed(known.slim);
      return known;
    case "acknowledged":
    case "progress":
    case "logged":
    case "emitted":
    case "heartbeat":
    case "staleCompletionIgnored":
    case "hookFailed":
      return known;
    case "unblocked":
    case "unreachable":
    case "retry":
    case "released":
    case "completed":
    case "failed":
    case "cancelled":
    case "expired":
    case "skipped":
    case "stale":
    case "dead":
      return yield* move(tx, known, change);
  }
}

/** A new job. Its key's policy is not asked: the event tells what it did. */
function* create(
  tx: ProjectionTransaction,
  { service, policy }: FlatEntry,
  change: FlatChange,
): Step<Known | null> {
  const job = change.create;
  if (!job) return null;
  if (job.key) yield* recordKey(tx, job, job.key, policy ?? { outcome: "accepted" });
  const slim = yield* storeJob(tx, change, job, null);
  yield* delay(tx, slim);
  return { service, slim, lease: null, worker: null, chainId: job.chainId };
}

/** A job starts, whether it had the slot of its key reserved or not. */
function* start(
  tx: ProjectionTransaction,
  known: Known,
  { worker, leaseUntil }: FlatEntry,
  { version, run, tries, expectToken, at }: FlatChange,
): Step<Known> {
  const { slim } = known;
  const { n, id, lane, rank, runAt, deadline, key, keyMax } = slim;
  const token = expectToken ?? slim.token + 1;
  const until = leaseUntil ?? at;
  const hadSlot = yield* leaveLine(slim, token);
  if (key !== null && !hadSlot) yield takeSlot(keyScope(key), id, token);
  const lease = [id, n, lane, rank, runAt, version, run, tries, token, deadline, key, keyMax];
  yield { sql: insertLease, values: [...lease, worker, at, at, at, until, 0] };
  if (key !== null && !hadSlot) yield* withdrawSlots(tx, key, keyMax ?? 1);
  return {
    ...known,
    slim: {
      ...slim,
      ...{ state: "active", version, run, tries, token, startedAt: at, updatedAt: at },
      detail: null,
      noted: 1,
    },
    lease: { until, blocked: false },
    worker,
  };
}

/** An active job stays active: it is asked to stop, or its key stays blocked. */
function* mark(known: Known, { name, version, at, id }: FlatChange): Step<Known> {
  const blocks = name === "keyBlocked";
  yield {
    sql: `UPDATE leases SET version = ?, updated_at = ?, ${blocks ? "blocked = 1" : "cancel = 1"} WHERE id = ?`,
    values: [version, at, id],
  };
  const lease = known.lease && { ...known.lease, blocked: known.lease.blocked || blocks };
  return { ...known, slim: { ...known.slim, version, updatedAt: at }, lease };
}

/** An ended job is dismissed, or opens another run. */
function* changeEnded(tx: ProjectionTransaction, known: Known, change: FlatChange): Step<Known> {
  const { slim } = known;
  yield* changeEnd(tx, change, slim.n);
  if (change.name === "dismissed") return { ...known, slim: ended(slim, change) };
  const next = { ...waitingAgain(slim, change), deadline: null, noted: 1 };
  yield* placeSlim(tx, next);
  yield* delay(tx, next);
  return { ...known, slim: next };
}

/** A job moves on: to its end, or back among those that wait. */
function* move(tx: ProjectionTransaction, known: Known, change: FlatChange): Step<Known> {
  const { slim } = known;
  const lease = leaseAt(known, change);
  if (lease) yield dropLease(slim);
  else yield* leaveLine(slim, null);
  const confirmed = isOwnOutcome(known, change);
  if (lease && !confirmed) expect(tx, lease.until);
  yield* moveOn(tx, { slim, lease }, change, confirmed);
  const next = isEnded(change.state) ? ended(slim, change) : waitingAgain(slim, change);
  if (!isEnded(change.state)) yield* delay(tx, next);
  return { ...known, slim: next, lease: null, worker: null };
}

/** Whether the worker of a job has moved it on itself, and so lets go of what it held. */
function isOwnOutcome(
  { worker }: Known,
  { name, lapse, expectToken, values }: FlatChange,
): boolean {
  const [, , , , , , , , actor] = values;
  // Not every outcome names its token, and a key that is released by hand names that of another.
  return !lapse && name !== "stale" && (expectToken !== null || actor === `worker:${worker}`);
}

/** The lease of a job at an event. A lapse was decided on the newest renewal, which may not have come here yet. */
function leaseAt({ lease }: Known, { lapse, at }: FlatChange): Known["lease"] {
  return lease && lapse ? { ...lease, until: Math.min(lease.until, at) } : lease;
}

/** A job is removed with everything that is known from it alone. */
function* remove(
  tx: ProjectionTransaction,
  known: Known | undefined,
  change: FlatChange,
): Step<void> {
  if (!known) return yield* tellDependents(change);
  const { slim, lease, chainId } = known;
  const { n, id, key } = slim;
  if (lease) {
    yield dropLease(slim);
    expect(tx, lease.until);
    yield* moveOn(tx, { slim, lease }, { ...change, state: "cancelled" }, false);
  } else if (isOpen(known)) yield* leaveLine(slim, null);
  const takeovers = key === null ? 0 : yield* countTakeovers(n);
  yield* removeJob(tx, { n, id, chain_id: chainId, state: endBefore(change) });
  if (key === null) return;
  yield* forgetOfKey(tx, { n, key }, takeovers);
  if (isOpen(known)) yield* promoteKey(tx, key);
}

/** Where the rest of a removed job's log is gone, its last event still tells those who waited for it how it ended. */
function* tellDependents(change: FlatChange): Step<void> {
  const [, , , , , previous] = change.values;
  if (previous === null) return;
  yield {
    sql: `UPDATE blockers SET state = ? WHERE blocker = ? AND state IS NULL
      AND (chain = 0 OR NOT EXISTS (SELECT 1 FROM jobs m WHERE m.chain_id = blockers.blocker))`,
    values: [endBefore(change) ?? "cancelled", change.id],
  };
}

/** How a removed job had ended, as its last event tells; `null` if it had not. */
function endBefore({ values }: FlatChange): JobState | null {
  const [, , , , , previous] = values;
  const last = previous as JobState | null;
  return last !== null && isEnded(last) ? last : null;
}

function ended(slim: Slim, change: FlatChange): Slim {
  const { state, version, run, tries, at } = change;
  const detail = change.name === "dismissed" ? (change.detail ?? slim.detail) : change.detail;
  return { ...slim, state, version, run, tries, updatedAt: at, detail };
}

/** Takes a job that is not active out of its line. Gives whether it had a slot of its key, which it keeps under this token. */
function* leaveLine(slim: Slim, token: number | null): Step<boolean> {
  const { n, id, key } = slim;
  if (isDelayed(slim)) yield dropDelayed(slim);
  const leaveWaiting = { sql: "DELETE FROM waiting WHERE n = ?", values: [n] };
  if (key === null) {
    yield { sql: deleteReady, values: readyPlace(slim) };
    if (slim.state === "blocked" || isDelayed(slim)) yield leaveWaiting;
    return false;
  }
  const [reserved] = yield { sql: `${deleteReady} RETURNING n`, values: readyPlace(slim) };
  if (!reserved) yield leaveWaiting;
  else if (token === slim.token + 1) return true;
  else yield freeSlot(keyScope(key), id, slim.token + 1);
  return false;
}

/** A job that waits for its time needs a ticket when that comes. */
function* delay(tx: ProjectionTransaction, slim: Slim): Step<void> {
  if (slim.state === "blocked" || !isDelayed(slim)) return;
  const { n, lane, runAt, id, version } = slim;
  yield {
    sql: "INSERT INTO delayed (n, lane, run_at, id, version) VALUES (?,?,?,?,?)",
    values: [n, lane, runAt, id, version],
  };
  expect(tx, runAt);
}

function dropDelayed({ n }: Slim) {
  return { sql: "DELETE FROM delayed WHERE n = ?", values: [n] };
}

function dropLease({ id }: Slim) {
  return { sql: deleteLease, values: [id] };
}
