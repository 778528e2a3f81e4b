/**
 * The events of one webhook in line to be sent: which may go now, which have to wait, and up to where all are done with.
 * Events of one job go one after the other. It does nothing by itself, and times are those of a monotonic clock.
 */
import type { JobEvent } from "../core/event.js";
import { retryDelayMs } from "../core/retry.js";
import type { FeedItem } from "../engine/engine.js";

/** How many requests of one webhook are under way at once. */
const sendingMax = 8;

/** How many events are held beyond the first that could not be delivered yet. They are sent again after a failover. */
const heldMax = 1_000;

/** How long it waits after each failure in a row; the last repeats. */
const backoff = [1_000, 5_000, 30_000, 120_000, 600_000, 1_800_000, 3_600_000] as const;

/** An event in line. */
export interface HeldEvent {
  readonly event: JobEvent;
  readonly tries: number;
  /** `done` ones were delivered. */
  readonly state: "waiting" | "sending" | "done";
}

interface Held extends HeldEvent {
  cursor: string;
  state: HeldEvent["state"];
  tries: number;
  notBefore: number;
  /** Since when it has failed, on the store's clock. */
  failingSince: number | undefined;
}

/** What may be sent now, and when to ask again if nothing else happens before. */
export interface Sendable {
  readonly events: readonly HeldEvent[];
  readonly comeBackAt: number | null;
}

/** The events of one webhook. */
export class WebhookLine {
  readonly #held: Held[] = [];
  #cursor: string;
  #failures: number;
  #notBefore = Number.NEGATIVE_INFINITY;
  #sending = 0;
  #firstFailingSince: number | undefined;

  /**
   * Goes on where another has stopped, whose first event may have failed for a while. Whoever takes over a receiver that
   * fails begins with one request at a time, too.
   */
  constructor(cursor: string, failingSince: number | undefined) {
    this.#cursor = cursor;
    this.#firstFailingSince = failingSince;
    this.#failures = failingSince === undefined ? 0 : 1;
  }

  /** The place in the feed up to which everything is done with. */
  get cursor(): string {
    return this.#cursor;
  }

  get isFull(): boolean {
    return this.#held.length >= heldMax;
  }

  /** The first event that is not done with. */
  get first(): JobEvent | undefined {
    return this.#held[0]?.event;
  }

  /** Since when the event has failed that has done so for longest, on the store's clock. */
  get failingSince(): number | undefined {
    let oldest = this.#firstFailingSince;
    for (const { failingSince } of this.#held)
      if (failingSince !== undefined && failingSince < (oldest ?? Number.POSITIVE_INFINITY))
        oldest = failingSince;
    return oldest;
  }

  /** Takes an event that is to be sent. */
  take({ cursor, event }: FeedItem): void {
    const failingSince = this.#firstFailingSince;
    this.#firstFailingSince = undefined;
    const notBefore = Number.NEGATIVE_INFINITY;
    this.#held.push({ cursor, event, state: "waiting", tries: 0, notBefore, failingSince });
  }

  /** Passes an event that need not be sent: it goes with what comes before it. */
  pass(cursor: string): void {
    const last = this.#held.at(-1);
    if (last === undefined) this.#cursor = cursor;
    else last.cursor = cursor;
  }

  /**
   * Takes what may be sent now. While the receiver fails, that is one event at a time, and the one that was tried least:
   * maybe there is only one that it does not take.
   */
  sendable(now: number): Sendable {
    const isFailing = this.#failures > 0;
    const free = (isFailing ? 1 : sendingMax) - this.#sending;
    if (free <= 0) return { events: [], comeBackAt: null };
    const { ready, comeBackAt } = this.#firstOfJobs(now);
    const events = (isFailing ? ready.sort((a, b) => a.tries - b.tries) : ready).slice(0, free);
    for (const held of events) held.state = "sending";
    this.#sending += events.length;
    return { events, comeBackAt };
  }

  /** The receiver has taken an event. */
  succeeded(event: HeldEvent): void {
    const held = this.#ended(event);
    held.state = "done";
    held.failingSince = undefined;
    this.#failures = 0;
    this.#notBefore = Number.NEGATIVE_INFINITY;
    const open = this.#held.findIndex(({ state }) => state !== "done");
    const done = this.#held.splice(0, open === -1 ? this.#held.length : open);
    this.#cursor = done.at(-1)?.cursor ?? this.#cursor;
  }

  /** An event waits until it is tried again, however often it has failed. `at` is the time of the store. */
  failed(event: HeldEvent, now: number, at: number, random: number): void {
    const held = this.#ended(event);
    held.state = "waiting";
    held.failingSince ??= at;
    held.notBefore = now + retryDelayMs(backoff, held.tries, random);
    this.#failures += 1;
    this.#notBefore = now + retryDelayMs(backoff, this.#failures, random);
  }

  /** The first event of each job that is not done with, as far as it may be sent, and when the next may. */
  #firstOfJobs(now: number): { readonly ready: Held[]; readonly comeBackAt: number | null } {
    const ready: Held[] = [];
    const busy = new Set<string>();
    let comeBackAt: number | null = null;
    for (const held of this.#held) {
      const isFirst = !busy.has(held.event.jobId);
      if (held.state === "done") continue;
      busy.add(held.event.jobId);
      if (!isFirst || held.state === "sending") continue;
      const at = Math.max(held.notBefore, this.#notBefore);
      if (at <= now) ready.push(held);
      else comeBackAt = Math.min(comeBackAt ?? at, at);
    }
    return { ready, comeBackAt };
  }

  #ended(event: HeldEvent): Held {
    const held = this.#held.find((each) => each === event);
    if (held === undefined) throw new Error("An event was sent that is not in line.");
    this.#sending -= 1;
    held.tries += 1;
    return held;
  }
}
