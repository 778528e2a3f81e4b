/**
 * One feed for many listeners: the server follows the store's feed once and hands every event to all who listen, so
 * that a hundred streams cost the store what one does. A listener that comes back with a cursor goes on from the
 * events that are still in memory, or reads its own way up to them.
 */
import type { JobEvent } from "../../core/event.js";
import type { Clock } from "../../engine/clock.js";
import type { Engine, FeedItem } from "../../engine/engine.js";
import { InvalidCursor } from "../../engine/errors.js";
import type { Logger } from "../../engine/logger.js";
import { eventBody } from "./wire/job.js";

/** How many of the newest events are kept for listeners that come back. */
const keptMax = 5_000;

/** How many events a listener may be behind before it is sent away, to come back with its cursor. */
const behindMax = 3 * keptMax;

/** A listener that had fewer events than this to read is near the end. */
const nearMax = 1_000;

/** Stands for the beginning of the feed where a cursor is asked for. */
export const feedStart = "start";

/** How long to wait before the feed is followed again after a fault. */
const pauseMs = 1_000;

/** An event of the feed, with its JSON text made once for all listeners. */
export class FeedEvent {
  readonly cursor: string;
  readonly event: JobEvent;
  #text: string | undefined;

  constructor({ cursor, event }: FeedItem) {
    this.cursor = cursor;
    this.event = event;
  }

  /** The event for the wire. */
  get text(): string {
    this.#text ??= JSON.stringify(eventBody(this.event));
    return this.#text;
  }
}

/** A listener was too slow, and has to come back with the cursor of the last event that it got. */
export class ListenerBehind extends Error {}

/** What a listener has not taken yet, and how it is told that there is more. */
class Listener {
  readonly queue: FeedEvent[] = [];
  /** The events that it has read itself of late and may be told once more. */
  readonly #read = new Set<string>();
  #told = 0;
  isBehind = false;
  wake: () => void = () => {};

  push(item: FeedEvent): void {
    if (this.queue.length >= behindMax) this.isBehind = true;
    else this.queue.push(item);
    this.wake();
  }

  /** Takes the next event that it has not read itself. */
  shift(): FeedEvent | undefined {
    for (;;) {
      const item = this.queue.shift();
      if (item === undefined || this.#read.size === 0) return item;
      // What it has read itself is told first or not at all.
      if (++this.#told > keptMax) this.#read.clear();
      if (!this.#read.delete(item.event.id)) return item;
    }
  }

  /** Remembers an event that it has read itself. */
  skip(eventId: string): void {
    this.#read.add(eventId);
    const [oldest] = this.#read.size > keptMax ? this.#read : [];
    if (oldest !== undefined) this.#read.delete(oldest);
  }
}

/** Follows the feed once for all. It follows only while somebody listens. */
export class FeedHub {
  readonly #engine: Engine;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #listeners = new Set<Listener>();
  readonly #stopping = new AbortController();
  #kept: FeedEvent[] = [];
  /** Up to where the hub has followed; `null` while it follows nothing. */
  #position: string | null = null;
  #following: { readonly stop: AbortController; readonly done: Promise<void> } | null = null;

  constructor(engine: Engine, clock: Clock, logger: Logger) {
    this.#engine = engine;
    this.#clock = clock;
    this.#logger = logger;
  }

  /** How many listen now. */
  get listeners(): number {
    return this.#listeners.size;
  }

  /**
   * Every event after a cursor (`null`: from now on), until the signal aborts or the hub stops. No event is left
   * out, and those of one job come in their order. Throws `ListenerBehind` to a listener that is too slow.
   */
  async *listen(cursor: string | null, signal: AbortSignal): AsyncIterable<FeedEvent> {
    const both = AbortSignal.any([signal, this.#stopping.signal]);
    const listener = new Listener();
    const onAbort = () => listener.wake();
    both.addEventListener("abort", onAbort);
    try {
      if (cursor === null) await this.#joinNow(listener, both);
      else yield* this.#catchUp(cursor, listener, both);
      while (!both.aborted) {
        const item = listener.shift();
        if (item !== undefined) yield item;
        else if (listener.isBehind) throw new ListenerBehind("The listener was too slow.");
        else
          await new Promise<void>((resolve) => {
            listener.wake = resolve;
          });
      }
    } finally {
      both.removeEventListener("abort", onAbort);
      this.#leave(listener);
    }
  }

  /** Sends all listeners away and follows no more. Idempotent. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#following?.stop.abort();
    await this.#following?.done;
  }

  /** Takes part from now on: what is stored already is not heard, though the hub may not have come to it. */
  async #joinNow(listener: Listener, signal: AbortSignal): Promise<void> {
    const position = this.#position;
    await this.#join(listener);
    if (position === null) return;
    for await (const { event } of this.#engine.tail(position, signal, "stored"))
      listener.skip(event.id);
  }

  /** Takes part from now on: what is appended after this resolves is heard. */
  async #join(listener: Listener): Promise<void> {
    this.#listeners.add(listener);
    if (this.#following !== null) return;
    const stop = new AbortController();
    const head = await this.#engine.head();
    // Two that came first at once follow once.
    if (this.#following !== null || this.#stopping.signal.aborted) return;
    this.#position = head;
    this.#following = { stop, done: this.#follow(head, stop.signal) };
  }

  #leave(listener: Listener): void {
    this.#listeners.delete(listener);
    if (this.#listeners.size > 0) return;
    this.#following?.stop.abort();
    this.#following = null;
    this.#position = null;
    this.#kept = [];
  }

  /**
   * Gives what came after the cursor: from the kept events where it is among them, and else by a reading of its own. It
   * takes part once that has come near the end, and reads on to what is stored by then. What it has read last may be
   * told once more, in another order even, and is left out.
   */
  async *#catchUp(
    cursor: string,
    listener: Listener,
    signal: AbortSignal,
  ): AsyncIterable<FeedEvent> {
    const after = this.#after(cursor);
    if (after !== null) {
      listener.queue.push(...after);
      // Nothing can have been told between the two.
      await this.#join(listener);
      return;
    }
    let last = cursor === feedStart ? null : cursor;
    for (let isNear = false, isLast = false; !isLast && !signal.aborted; ) {
      isLast = isNear;
      if (isLast) await this.#join(listener);
      let count = 0;
      for await (const item of this.#engine.tail(last, signal, "stored")) {
        yield new FeedEvent(item);
        last = item.cursor;
        listener.skip(item.event.id);
        count++;
      }
      isNear = count < nearMax;
    }
  }

  #after(cursor: string): readonly FeedEvent[] | null {
    const index = this.#kept.findLastIndex((item) => item.cursor === cursor);
    return index < 0 ? null : this.#kept.slice(index + 1);
  }

  async #follow(head: string, signal: AbortSignal): Promise<void> {
    let cursor = head;
    while (!signal.aborted) {
      try {
        for await (const item of this.#engine.tail(cursor, signal)) {
          cursor = item.cursor;
          this.#position = cursor;
          this.#tell(new FeedEvent(item));
        }
      } catch (error) {
        if (signal.aborted) return;
        this.#logger.warn({ error }, "The feed could not be followed; the server keeps trying.");
        // A store that was restored elsewhere does not know the place any more, nor those of the listeners.
        if (InvalidCursor.is(error)) this.#sendAway();
      }
      // A feed that ends by itself is that of a store which was closed.
      if (!signal.aborted)
        await new Promise<void>((resolve) => this.#clock.after(pauseMs, resolve));
    }
  }

  /** With the last listener the hub leaves its place; the next one has it begin at the end of the feed. */
  #sendAway(): void {
    for (const listener of this.#listeners) {
      listener.isBehind = true;
      listener.wake();
    }
  }

  #tell(item: FeedEvent): void {
    this.#kept.push(item);
    if (this.#kept.length > keptMax * 2) this.#kept = this.#kept.slice(-keptMax);
    for (const listener of this.#listeners) listener.push(item);
  }
}
