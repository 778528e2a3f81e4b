/**
 * All holds of a worker, and the one timer that watches them: timeouts, deadlines, leases that
 * could not be renewed, and handlers that ignore their signal. The timer is set to the next time
 * at which one of them could need something, so that short jobs cost no timer of their own.
 */
import type { Runtime } from "../client/runtime.js";
import { jobFields } from "../engine/logger.js";
import type { AbortReason } from "./abort.js";
import type { Hold } from "./hold.js";

/** What the holds need to know and to tell. */
export interface HoldsOptions {
  readonly runtime: Runtime;
  /** How long a handler that was asked to stop keeps its place. */
  readonly graceMs: number;
  /** A handler did not stop in time: its place is to be given away. */
  readonly onAbandoned: (hold: Hold) => void;
}

export class Holds {
  readonly #options: HoldsOptions;
  readonly #holds = new Set<Hold>();
  #timerAt = Number.POSITIVE_INFINITY;
  #callOff: (() => void) | undefined;

  constructor(options: HoldsOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#holds.size;
  }

  [Symbol.iterator](): Iterator<Hold> {
    return this.#holds.values();
  }

  /** Begins to watch a hold. */
  add(hold: Hold): void {
    this.#holds.add(hold);
    this.#watchUntil(nextCheckAt(hold));
  }

  /** Forgets a hold whose outcome is stored or given up. */
  remove(hold: Hold): void {
    hold.phase = "over";
    this.#holds.delete(hold);
  }

  /** Asks a handler to stop, and abandons it if it has not after the grace time. */
  abort(hold: Hold, reason: AbortReason): void {
    if (hold.aborted || !handlerRuns(hold)) return;
    const { runtime, graceMs } = this.#options;
    hold.abandonAt = runtime.clock.monotonic() + graceMs + hold.lane.killMs;
    hold.abort(reason);
    this.#watchUntil(hold.abandonAt);
  }

  /** Stops watching. */
  stop(): void {
    this.#callOff?.();
    this.#callOff = undefined;
    this.#timerAt = Number.POSITIVE_INFINITY;
  }

  #watchUntil(at: number): void {
    if (at >= this.#timerAt) return;
    const { clock } = this.#options.runtime;
    this.#callOff?.();
    this.#timerAt = at;
    this.#callOff = clock.after(at - clock.monotonic(), () => this.#check());
  }

  /** Looks at every hold, because the one that set the timer has most likely ended long ago. */
  #check(): void {
    this.#callOff = undefined;
    this.#timerAt = Number.POSITIVE_INFINITY;
    const now = this.#options.runtime.clock.monotonic();
    let next = Number.POSITIVE_INFINITY;
    for (const hold of this.#holds) {
      if (!handlerRuns(hold)) continue;
      if (nextCheckAt(hold) <= now) this.#act(hold, now);
      next = Math.min(next, nextCheckAt(hold));
    }
    this.#watchUntil(next);
  }

  #act(hold: Hold, now: number): void {
    if (hold.aborted) this.#abandon(hold);
    else if (hold.deadlineAt <= now) this.abort(hold, "expired");
    else if (hold.timeoutAt <= now) this.abort(hold, "timeout");
    else this.#fence(hold);
  }

  /** The lease may lapse before it can be renewed: another worker could start the job. */
  #fence(hold: Hold): void {
    const reason = hold.renewalFailed ? "error" : "taken_by_another_worker";
    const fields = { ...jobFields(hold.job), reason };
    this.#options.runtime.logger.warn(
      fields,
      "A lease could not be renewed in time; its handler is asked to stop.",
    );
    hold.isLost = true;
    this.abort(hold, reason);
  }

  /** Nothing renews an abandoned hold, so that its key and cap slots come free when its lease lapses. */
  #abandon(hold: Hold): void {
    const fields = { ...jobFields(hold.job), reason: hold.aborted?.reason };
    this.#options.runtime.logger.error(
      fields,
      "A handler ignored its signal and was abandoned; its place is free, its key and limits are held until it returns or its lease lapses.",
    );
    hold.abandoned = true;
    hold.isLost = true;
    void hold.letGo?.();
    this.#holds.delete(hold);
    this.#options.onAbandoned(hold);
  }
}

/** A handler that has completed its job may have something to put away, and is watched until it returns. */
function handlerRuns({ phase }: Hold): boolean {
  return phase === "running" || phase === "settled";
}

function nextCheckAt(hold: Hold): number {
  if (hold.aborted) return hold.abandonAt;
  if (hold.phase === "settled") return hold.timeoutAt;
  return Math.min(hold.timeoutAt, hold.deadlineAt, hold.fenceAt);
}
