/**
 * When the view is brought up to date: work goes before it. Whoever stores many events needs the processor for them, and
 * what begins and ends within one transaction of the view is written once. So events gather for a moment, and for some
 * seconds while many are stored, by this process or by others, unless somebody asks for the view; then everything is
 * applied at once. Who asks is likely to ask again, and waits less then: the view rests longest while nobody looks.
 */
import type { Clock } from "../clock.js";

/** How long events gather while nobody waits for them. */
const lingerMs = 100;

/** How far in time the view may fall behind while many events are stored: where somebody has looked at it lately, and where nobody has. */
export const restSeenMaxMs = 5_000;
export const restUnseenMaxMs = 10_000;

/** How many events this process may store meanwhile: whoever asks then waits until all of them are applied. */
export const gatheredMax = 300_000;

/** How long after a look somebody may look again. */
const seenMs = 60_000;

/** From so many events on that are stored in a second somebody is busy. They are counted over no less time than this. */
const busyPerSecond = 1_000;
const countedMs = 50;

/** What a rest depends on. */
export interface ViewRestOptions {
  readonly clock: Pick<Clock, "monotonic" | "after">;
  /** How many events this process has stored so far. */
  readonly stored: () => number;
}

/** The rests of a process that applies the log. */
export class ViewRest {
  readonly #clock: ViewRestOptions["clock"];
  readonly #stored: () => number;
  /** How many wait for the view, and whether somebody elsewhere does. */
  #waiters = 0;
  #isWanted = false;
  /** When the view was last known to have everything, what this process had stored by then, and when somebody last wanted it. */
  #freshAt: number;
  #freshStored: number;
  #seenAt = Number.NEGATIVE_INFINITY;
  #counted: { at: number; stored: number; isBusy: boolean };
  /** Where the log ended when it was last read, and whether it had grown fast until then. Nothing is known of it since. */
  #log: { at: number; head: number; isBusy: boolean } | null = null;
  #end = () => {};
  /** Aborts when a rest begins, for those who do not insist on the newest. */
  #begin = new AbortController();
  #isOn = false;
  #isBeginning = false;

  constructor({ clock, stored }: ViewRestOptions) {
    this.#clock = clock;
    this.#stored = stored;
    this.#freshAt = clock.monotonic();
    this.#freshStored = stored();
    this.#counted = { at: this.#freshAt, stored: this.#freshStored, isBusy: false };
  }

  /** Whether the view rests because many events are stored. */
  get isOn(): boolean {
    return this.#isOn;
  }

  /** Aborts when the view begins to rest because many events are stored. */
  get begins(): AbortSignal {
    return this.#begin.signal;
  }

  /** Does something that waits for the view, which does not rest meanwhile. */
  async awake<Value>(work: () => Promise<Value>): Promise<Value> {
    this.#waiters += 1;
    this.#seenAt = this.#clock.monotonic();
    this.#end();
    try {
      return await work();
    } finally {
      this.#waiters -= 1;
    }
  }

  /** Somebody elsewhere waits for the view: it does not rest until it has everything. */
  wake(): void {
    this.#isWanted = true;
    this.#seenAt = this.#clock.monotonic();
    this.#end();
  }

  /** Nobody has to wait for what gathers for a moment; a rest goes on. */
  nudge(): void {
    if (!this.#isOn && !this.#isBeginning) this.#end();
  }

  /** Waits for a moment before the log is read: a process that begins on a backlog is busy by then, and its view rests. */
  async begin(signal: AbortSignal): Promise<void> {
    this.#counted = { at: this.#clock.monotonic(), stored: this.#stored(), isBusy: false };
    this.#log = null;
    this.#isBeginning = true;
    await this.#pause(signal);
    this.#isBeginning = false;
    await this.#restWhileBusy(signal);
  }

  /** Rests after a transaction, if nothing is against it. The log held `behind` events more when the last of it came. */
  async rest(last: number, behind: number, signal: AbortSignal): Promise<void> {
    this.#noteHead(last + behind);
    if (behind === 0) {
      this.#freshAt = this.#clock.monotonic();
      this.#freshStored = this.#stored();
      this.#isWanted = false;
      await this.#pause(signal);
    }
    await this.#restWhileBusy(signal);
  }

  async #restWhileBusy(signal: AbortSignal): Promise<void> {
    while (this.#mayRest() && !signal.aborted) {
      this.#isOn = true;
      this.#begin.abort();
      await this.#pause(signal);
    }
    if (!this.#isOn) return;
    this.#isOn = false;
    this.#begin = new AbortController();
  }

  #mayRest(): boolean {
    if (this.#waiters > 0 || this.#isWanted) return false;
    const now = this.#clock.monotonic();
    const restMaxMs = now < this.#seenAt + seenMs ? restSeenMaxMs : restUnseenMaxMs;
    if (now >= this.#freshAt + restMaxMs) return false;
    if (this.#stored() >= this.#freshStored + gatheredMax) return false;
    return this.#log?.isBusy === true || this.#isBusy();
  }

  /** Others are busy where the log grows fast. Who applies it need not be who works. */
  #noteHead(head: number): void {
    const now = this.#clock.monotonic();
    const before = this.#log;
    if (before !== null && now < before.at + countedMs) return;
    const isBusy =
      before !== null && (head - before.head) * 1_000 >= busyPerSecond * (now - before.at);
    this.#log = { at: now, head, isBusy };
  }

  #isBusy(): boolean {
    const { at, stored } = this.#counted;
    const now = this.#clock.monotonic();
    if (now < at + countedMs) return this.#counted.isBusy;
    const total = this.#stored();
    const isBusy = (total - stored) * 1_000 >= busyPerSecond * (now - at);
    this.#counted = { at: now, stored: total, isBusy };
    return isBusy;
  }

  /** Waits for a moment, or until somebody wants the view. */
  #pause(signal: AbortSignal): Promise<void> {
    if (this.#waiters > 0 || this.#isWanted || signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const done = () => {
        callOff();
        signal.removeEventListener("abort", done);
        this.#end = () => {};
        resolve();
      };
      const callOff = this.#clock.after(lingerMs, done);
      signal.addEventListener("abort", done);
      this.#end = done;
    });
  }
}
