/**
 * The feed: every event in the order in which it was stored, and readers that follow it live.
 */
import type { JobEvent } from "../../core/event.js";
import type { FeedExtent, FeedItem } from "../engine.js";
import { feedPosition } from "../feed-position.js";

/** All events by their position, counted from 1. Forgotten ones leave a hole. */
export class Feed {
  readonly #events: (JobEvent | null)[] = [];
  readonly #waiting = new Set<() => void>();
  #closed = false;

  /** The position of the newest event; 0 before the first. */
  get head(): number {
    return this.#events.length;
  }

  /** Stores an event and gives its position. */
  push(event: JobEvent): number {
    this.#events.push(event);
    this.#wakeReaders();
    return this.#events.length;
  }

  at(position: number): JobEvent | null {
    return this.#events[position - 1] ?? null;
  }

  forget(position: number): void {
    this.#events[position - 1] = null;
  }

  /** Forgets `deleted` events older than a time and gives their number. */
  forgetDeleted(before: number): number {
    let count = 0;
    for (const [index, event] of this.#events.entries()) {
      if (event?.name !== "deleted" || event.at >= before) continue;
      this.forget(index + 1);
      count += 1;
    }
    return count;
  }

  /** Every event after a cursor, then live ones if they are asked for, until the signal aborts or the feed is closed. */
  async *read(
    cursor: string | null,
    signal: AbortSignal,
    extent: FeedExtent,
  ): AsyncGenerator<FeedItem, void, undefined> {
    let position = feedPosition(cursor);
    const end = extent === "live" ? Number.POSITIVE_INFINITY : this.head;
    while (!signal.aborted && !this.#closed && position < end) {
      if (position >= this.head) {
        await this.#news(signal);
        continue;
      }
      position += 1;
      const event = this.at(position);
      if (event !== null) yield { cursor: String(position), event: structuredClone(event) };
    }
  }

  /** Ends all readers. */
  close(): void {
    this.#closed = true;
    this.#wakeReaders();
  }

  #news(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        this.#waiting.delete(wake);
        signal.removeEventListener("abort", wake);
        resolve();
      };
      this.#waiting.add(wake);
      signal.addEventListener("abort", wake, { once: true });
    });
  }

  #wakeReaders(): void {
    for (const wake of [...this.#waiting]) wake();
  }
}
