/**
 * Claiming: hands out what may be started, in order over all lanes and within every cap.
 */
import { claimVerdict, decide, startedEvent } from "../../core/decide.js";
import { compareOrder } from "../../core/order.js";
import { distinctLanes } from "../claim-lanes.js";
import type { ClaimAnswer, ClaimAsk, ClaimedJob, ClaimLane } from "../engine.js";
import { recordId } from "../record.js";
import { applyEvent } from "./append.js";
import { CapCounter, freeLapsedSlots } from "./attempts.js";
import { keyOf, promote } from "./keys.js";
import { bodyIsPaused, readRecord } from "./records.js";
import { copy, type Entry, enterLine, leaveLine, linesOf, type Store } from "./store.js";

/** A lane with the places that are left in it. */
interface OpenLane {
  readonly ask: ClaimLane;
  free: number;
}

/** A job at the front of its lane. */
interface Candidate {
  readonly entry: Entry;
  readonly lane: OpenLane;
}

/** Starts claimable jobs for a worker. A job whose deadline has come is expired instead. */
export function claimJobs(store: Store, ask: ClaimAsk): ClaimAnswer {
  freeLapsedSlots(store);
  for (const { lane } of ask.lanes) lineUpDue(store, lane);
  const open = distinctLanes(ask.lanes)
    .filter(({ service, queue }) => !isPaused(store, service, queue))
    .map((lane): OpenLane => ({ ask: lane, free: lane.free }));
  const caps = new CapCounter(store);
  const jobs: ClaimedJob[] = [];
  // Jobs that expire leave room for others, and so do lanes whose caps fill up on the way.
  for (;;) {
    const candidates = firstInLine(store, open, caps, ask.limit - jobs.length);
    if (candidates.length === 0) break;
    for (const { entry, lane } of candidates) {
      if (caps.room(lane.ask) <= 0) continue;
      const claimed = take(store, entry, lane.ask, ask.worker);
      if (claimed === null) continue;
      jobs.push(claimed);
      lane.free -= 1;
      caps.take(lane.ask);
    }
  }
  return { jobs, nextDueAt: nextDueAt(store, ask.lanes) };
}

/** Moves the jobs of a lane whose run time has come to where they can be claimed or wait for their key. */
export function lineUpDue(store: Store, lane: string): void {
  const { delayed } = linesOf(store, lane);
  const now = store.now();
  for (let first = delayed.entries[0]; first; first = delayed.entries[0]) {
    if (first.job.runAt > now) break;
    const key = keyOf(store, first.job);
    if (key === null) {
      enterLine(store, first, "ready");
    } else {
      leaveLine(store, first);
      promote(store, key);
    }
  }
}

function isPaused(store: Store, service: string, queue: string): boolean {
  return bodyIsPaused(readRecord(store, recordId.queue(service, queue)));
}

/** The first in line over all lanes that have places left. */
function firstInLine(
  store: Store,
  open: readonly OpenLane[],
  caps: CapCounter,
  limit: number,
): readonly Candidate[] {
  const now = store.now();
  const candidates: Candidate[] = [];
  for (const lane of open) {
    let places = Math.min(lane.free, limit, caps.room(lane.ask));
    for (const entry of linesOf(store, lane.ask.lane).ready.entries) {
      if (places <= 0) break;
      // The clock may have gone back since a job was lined up.
      if (entry.job.runAt > now) continue;
      candidates.push({ entry, lane });
      places -= 1;
    }
  }
  candidates.sort((a, b) => compareOrder(a.entry.job, b.entry.job));
  return candidates.slice(0, Math.max(limit, 0));
}

function take(store: Store, entry: Entry, lane: ClaimLane, worker: string): ClaimedJob | null {
  const now = store.now();
  const { job } = entry;
  const eventId = `${job.id}:${job.version + 1}`;
  const actor = `worker:${worker}` as const;
  if (claimVerdict(job, now) === "expire") {
    const decision = decide(job, { command: "expire", eventId, actor }, now);
    if (!decision.ok) throw new Error(decision.rejection.message);
    applyEvent(store, entry, decision.event, { by: "worker", leaseMs: 0 });
    return null;
  }
  const event = startedEvent(job, { eventId, actor }, worker, now);
  applyEvent(store, entry, event, { by: "worker", leaseMs: lane.leaseMs });
  return { job: copy(entry.job), leaseUntil: now + lane.leaseMs };
}

/** When the next job of these lanes becomes due, or the next slot of an ended job lapses. */
function nextDueAt(store: Store, lanes: readonly ClaimLane[]): number | null {
  let next: number | null = null;
  for (const { ended, leaseUntil } of store.attempts) {
    if (ended && (next === null || leaseUntil < next)) next = leaseUntil;
  }
  for (const { lane } of lanes) {
    const first = linesOf(store, lane).delayed.entries[0];
    if (first && (next === null || first.job.runAt < next)) next = first.job.runAt;
  }
  return next;
}
