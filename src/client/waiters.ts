/**
 * Waiting for jobs to end. All who wait share one watcher, which asks for every awaited job at once
 * when the store hints that some job ended, and now and then without a hint, because hints may be lost.
 */
import { isEnded, type Job } from "../core/job.js";
import { batchMax } from "../engine/engine.js";
import { isStoreError, type StoreError } from "../engine/errors.js";
import { keepAlive } from "./keep-alive.js";
import type { Runtime } from "./runtime.js";

/** How long the watcher sleeps without a hint: it doubles from the first to the second. */
const pollMinMs = 250;
const pollMaxMs = 1_000;

/**
 * How much asking the hints may cause. A round costs its jobs and a share of its own; what is spent
 * comes back with time and with every job that was found ended, so that a few who wait are told at once
 * and a crowd whose jobs run on is asked for less often.
 */
const creditMax = 2_000;
const creditPerMs = 10;
const creditPerEnd = 5;
const roundCost = 20;

/** How waiting for a job ended: the ended job, `null` when there is none, or a fault of the store. */
export type WaitEnd = Job | null | StoreError;

/** Faults that pass: the watcher asks again at its next round. */
const passing: ReadonlySet<string> = new Set(["StoreBusy", "StoreUnavailable"]);

/** The shared watcher of a client. It runs only while somebody waits. */
export class Waiters {
  readonly #runtime: Runtime;
  readonly #waiting = new Map<string, Set<(end: WaitEnd) => void>>();
  /** Ids that were not asked for yet: they are asked for at once. */
  readonly #fresh = new Set<string>();
  /** Ids that the running sweep has still to ask for. */
  readonly #due = new Set<string>();
  /** A hint or the poll asks for a sweep over all. */
  #sweep = false;
  #asking = false;
  #pollMs = pollMinMs;
  #credit = creditMax;
  #creditAt = 0;
  #cancelPoll: (() => void) | null = null;
  #cancelRound: (() => void) | null = null;
  #release: (() => void) | null = null;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  /** Calls back once when the job has ended or cannot be asked for. Gives the way to stop waiting. */
  add(id: string, on: (end: WaitEnd) => void): () => void {
    if (this.#waiting.size === 0) this.#open();
    const waiters = this.#waiting.get(id) ?? new Set();
    this.#waiting.set(id, waiters.add(on));
    this.#fresh.add(id);
    this.#schedulePoll(pollMinMs);
    // Those who begin to wait in the same turn are asked for together.
    queueMicrotask(() => this.#ask());
    return () => {
      waiters.delete(on);
      if (waiters.size === 0 && this.#waiting.get(id) === waiters) this.#forget(id);
    };
  }

  #open(): void {
    const stopHints = this.#runtime.engine.wake("ended", () => {
      this.#pollMs = pollMinMs;
      this.#sweep = true;
      this.#ask();
    });
    const letGo = keepAlive();
    this.#release = () => {
      stopHints();
      letGo();
    };
  }

  #forget(id: string): void {
    this.#waiting.delete(id);
    this.#fresh.delete(id);
    this.#due.delete(id);
    if (this.#waiting.size > 0) return;
    this.#release?.();
    this.#cancelPoll?.();
    this.#cancelRound?.();
    this.#release = this.#cancelPoll = this.#cancelRound = null;
    this.#sweep = false;
  }

  #schedulePoll(pollMs: number): void {
    if (this.#cancelPoll !== null && pollMs === this.#pollMs) return;
    this.#cancelPoll?.();
    this.#pollMs = pollMs;
    this.#cancelPoll = this.#runtime.clock.after(pollMs, () => {
      this.#cancelPoll = null;
      this.#sweep = true;
      this.#ask();
      this.#schedulePoll(Math.min(this.#pollMs * 2, pollMaxMs));
    });
  }

  /** Starts a round if none runs and there is something to ask. */
  #ask(): void {
    if (this.#asking) return;
    const ids = this.#nextIds();
    if (ids.length === 0) return;
    this.#credit -= ids.length + roundCost;
    this.#asking = true;
    void this.#round(ids).finally(() => {
      this.#asking = false;
      this.#ask();
    });
  }

  /** Newcomers go first, but never fill a round while a sweep that has credit waits for its turn. */
  #nextIds(): readonly string[] {
    if (this.#sweep && this.#due.size === 0) {
      for (const id of this.#waiting.keys()) this.#due.add(id);
      this.#sweep = false;
    }
    const sweeps = this.#due.size > 0 && this.#hasCredit();
    const ids: string[] = [];
    for (const id of this.#fresh) {
      if (ids.length >= (sweeps ? batchMax / 2 : batchMax)) break;
      this.#fresh.delete(id);
      this.#due.delete(id);
      ids.push(id);
    }
    if (!sweeps) return ids;
    for (const id of this.#due) {
      if (ids.length >= batchMax) break;
      this.#due.delete(id);
      ids.push(id);
    }
    return ids;
  }

  #hasCredit(): boolean {
    const { clock } = this.#runtime;
    const now = clock.monotonic();
    this.#credit = Math.min(this.#credit + (now - this.#creditAt) * creditPerMs, creditMax);
    this.#creditAt = now;
    if (this.#credit > 0) return true;
    this.#cancelRound ??= clock.after(1 - this.#credit / creditPerMs, () => {
      this.#cancelRound = null;
      this.#ask();
    });
    return false;
  }

  async #round(ids: readonly string[]): Promise<void> {
    const { engine, logger } = this.#runtime;
    try {
      const loaded = await engine.load(ids);
      for (const [index, id] of ids.entries()) {
        const job = loaded[index]?.job ?? null;
        if (job === null || isEnded(job.state)) this.#tell(id, job);
      }
    } catch (fault) {
      if (!isStoreError(fault)) throw fault;
      logger.warn({ fault: fault._tag, waiting: ids.length }, fault.message);
      if (!passing.has(fault._tag)) for (const id of ids) this.#tell(id, fault);
    }
  }

  #tell(id: string, end: WaitEnd): void {
    const waiters = this.#waiting.get(id);
    if (waiters === undefined) return;
    this.#forget(id);
    this.#credit += creditPerEnd;
    for (const on of waiters) this.#callBack(on, end);
  }

  /** One who waits must not keep the others from being told, nor end the process. */
  #callBack(on: (end: WaitEnd) => void, end: WaitEnd): void {
    try {
      on(end);
    } catch (fault) {
      this.#runtime.logger.error({ fault }, "Telling one who waits that a job has ended failed.");
    }
  }
}
