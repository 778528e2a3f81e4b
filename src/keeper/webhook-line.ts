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

/** How often one event is tried whose receiver takes others meanwhile. */
const triesMax = 8;

/** An event in line. */
export interface HeldEvent {
  readonly event: JobEvent;
  readonly tries: number;
  /** `done` ones were delivered or given up. */
  readonly state: "waiting" | "sending" | "done";
}

interface Held extends HeldEvent {
  cursor: string;
  state: HeldEvent["state"];
  tries: number;
  notBefore: number;
  firstFailedAt: number;
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
  #succeededAt = Number.NEGATIVE_INFINITY;
  #sending = 0;

  /** Whoever takes over a receiver that fails begins with one request at a time, too. */
  constructor(cursor: string, isFailing: boolean) {
    this.#cursor = cursor;
    this.#failures = isFailing ? 1 : 0;
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

  /** Takes an event that is to be sent. */
  take({ cursor, event }: FeedItem): void {
    const times = { notBefore: Number.NEGATIVE_INFINITY, firstFailedAt: 0 };
    this.#held.push({ cursor, event, state: "waiting", tries: 0, ...times });
  }

  /** Passes an event that need not be sent: it goes with what comes before it. */
  pass(cursor: string): void {
    const last = this.#held.at(-1);
    if (last === undefined) this.#cursor = cursor;
    else last.cursor = cursor;
  }

  /** Takes what may be sent now. While the receiver fails, that is one event at a time. */
  sendable(now: number): Sendable {
    const most = this.#failures === 0 ? sendingMax : 1;
    const events: Held[] = [];
    const busy = new Set<string>();
    let comeBackAt: number | null = null;
    for (const held of this.#held) {
      if (this.#sending >= most) return { events, comeBackAt: null };
      const isFirst = !busy.has(held.event.jobId);
      if (held.state === "done") continue;
      busy.add(held.event.jobId);
      if (!isFirst || held.state === "sending") continue;
      const at = Math.max(held.notBefore, this.#notBefore);
      if (at > now) {
        comeBackAt = Math.min(comeBackAt ?? at, at);
        continue;
      }
      held.state = "sending";
      this.#sending += 1;
      events.push(held);
    }
    return { events, comeBackAt };
  }

  /** The receiver has taken an event. */
  succeeded(event: HeldEvent, now: number): void {
    const held = this.#ended(event);
    held.state = "done";
    this.#failures = 0;
    this.#notBefore = Number.NEGATIVE_INFINITY;
    this.#succeededAt = now;
    this.#moveOn();
  }

  /** An event that fails while others succeed is given up in the end; one that fails like all others waits for better times. */
  failed(event: HeldEvent, now: number, random: number): void {
    const held = this.#ended(event);
    if (held.tries === 1) held.firstFailedAt = now;
    const takesOthers = this.#succeededAt >= held.firstFailedAt;
    held.state = held.tries >= triesMax && takesOthers ? "done" : "waiting";
    held.notBefore = now + retryDelayMs(backoff, held.tries, random);
    this.#failures += 1;
    this.#notBefore = now + retryDelayMs(backoff, this.#failures, random);
    this.#moveOn();
  }

  #ended(event: HeldEvent): Held {
    const held = this.#held.find((each) => each === event);
    if (held === undefined) throw new Error("An event was sent that is not in line.");
    this.#sending -= 1;
    held.tries += 1;
    return held;
  }

  #moveOn(): void {
    const open = this.#held.findIndex(({ state }) => state !== "done");
    const done = this.#held.splice(0, open === -1 ? this.#held.length : open);
    this.#cursor = done.at(-1)?.cursor ?? this.#cursor;
  }
}
