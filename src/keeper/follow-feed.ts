/**
 * Following the feed: every item from a place on, one after the other, through all faults of the store.
 */
import type { Runtime } from "../client/runtime.js";
import type { Clock } from "../engine/clock.js";
import type { FeedItem } from "../engine/engine.js";
import { InvalidCursor } from "../engine/errors.js";

/** How long it waits when the feed fails. */
const faultMs = 1_000;

/** Who follows, from where, and what it does. */
export interface FeedFollower {
  readonly runtime: Pick<Runtime, "engine" | "clock">;
  readonly signal: AbortSignal;
  /** Gives the place to begin at. */
  readonly from: () => Promise<string | null>;
  /** Takes the next item; nothing more is read before it has. To end it aborts the signal. */
  readonly take: (item: FeedItem) => void | Promise<void>;
  /** Is told when the feed fails; it is read again after a second. */
  readonly onFault: (error: unknown) => void;
}

/**
 * Follows until the signal is aborted. After a fault it goes on with the item that it was at, or, where a store that was restored
 * elsewhere does not know that any more, with the place that it is given anew.
 */
export async function followFeed(follower: FeedFollower): Promise<void> {
  const { runtime, signal, from, onFault } = follower;
  const { engine, clock } = runtime;
  let place: string | null | undefined;
  while (!signal.aborted) {
    try {
      if (place === undefined) place = await from();
      for await (const item of engine.tail(place, signal)) {
        if (signal.aborted) return;
        await follower.take(item);
        place = item.cursor;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (InvalidCursor.is(error)) place = undefined;
      onFault(error);
    }
    await pause(clock, faultMs, signal);
  }
}

/** Resolves after a while, or as soon as the signal is aborted. */
function pause(clock: Clock, delayMs: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const over = () => {
      callOff();
      signal.removeEventListener("abort", over);
      resolve();
    };
    const callOff = clock.after(delayMs, over);
    if (signal.aborted) over();
    else signal.addEventListener("abort", over);
  });
}
