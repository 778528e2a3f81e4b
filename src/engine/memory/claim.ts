/**
 * Claiming: hands out what may be started, in order over all lanes and within every cap.
 */
import { claimVerdict, decide, startedEvent } from "../../core/decide.js";
import { compareOrder } from "../../core/order.js";
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

/** Starts claimable jobs for a worker. A job whose deadline has come is expired instead. */
export function claimJobs(store: Store, ask: ClaimAsk): ClaimAnswer {
  freeLapsedSlots(store);
  for (const { lane } of ask.lanes) lineUpDue(store, lane);
  const open = ask.lanes
    .filter(({ service, queue }) => !isPaused(store, service, queue))
    .map((lane): OpenLane => ({ ask: lane, free: lane.free }));
  const caps = new CapCounter(store);
  const jobs: ClaimedJob[] = [];
  while (jobs.length < ask.limit) {
    const found = nextClaimable(store, open, caps);
    if (found === null) break;
    const claimed = take(store, found.entry, found.lane.ask, ask.worker);
    if (claimed === null) continue;
    jobs.push(claimed);
    found.lane.free -= 1;
    caps.take(found.lane.ask);
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

function nextClaimable(
  store: Store,
  open: readonly OpenLane[],
  caps: CapCounter,
): { readonly entry: Entry; readonly lane: OpenLane } | null {
  const now = store.now();
  let found: { readonly entry: Entry; readonly lane: OpenLane } | null = null;
  for (const lane of open) {
    if (lane.free <= 0 || !caps.hasRoom(lane.ask)) continue;
    // The clock may have gone back since a job was lined up.
    const entry = linesOf(store, lane.ask.lane).ready.entries.find(({ job }) => job.runAt <= now);
    if (entry && (found === null || compareOrder(entry.job, found.entry.job) < 0)) {
      found = { entry, lane };
    }
  }
  return found;
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
  for (const { ended, leaseUntil } of store.attempts.values()) {
    if (ended && (next === null || leaseUntil < next)) next = leaseUntil;
  }
  for (const { lane } of lanes) {
    const first = linesOf(store, lane).delayed.entries[0];
    if (first && (next === null || first.job.runAt < next)) next = first.job.runAt;
  }
  return next;
}
