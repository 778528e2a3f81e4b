/**
 * Up to where the tickets of consumers were given out for good. One that was acknowledged is. One that was given out longer ago
 * than its lease and a margin is, too, unless its job has started, which the log tells: whoever had it has died or left
 * it, or has acknowledged it behind one that is still held, which alone keeps the consumer from telling so.
 */
import type { Port } from "./port.js";

/** How much longer than a lease a ticket may be on its way. */
const marginMs = 10_000;

/** What a consumer had given out when it was looked at, and before that, longer ago than its lease and the margin. */
interface Sight {
  readonly at: number;
  readonly upTo: number;
  readonly before: number;
}

/** What this process has seen consumers give out. */
export class GivenOut {
  readonly #port: Port;
  readonly #now: () => number;
  readonly #sights = new Map<string, Sight>();

  constructor({ port, now }: { readonly port: Port; readonly now: () => number }) {
    this.#port = port;
    this.#now = now;
  }

  /** The position up to which a consumer gives out nothing any more; `null` if it is not there. */
  async upTo(consumer: string): Promise<number | null> {
    const progress = await this.#port.progressOf(consumer);
    if (progress === null) {
      this.#sights.delete(consumer);
      return null;
    }
    const { deliveredUpTo, acknowledgedUpTo, ackWaitMs } = progress;
    const { before } = this.#look(consumer, deliveredUpTo, ackWaitMs + marginMs);
    // One that was made anew begins with the first ticket again.
    return Math.max(acknowledgedUpTo, Math.min(before, deliveredUpTo));
  }

  #look(consumer: string, upTo: number, oldMs: number): Sight {
    const now = this.#now();
    const last = this.#sights.get(consumer);
    const isOld = last !== undefined && last.at + oldMs <= now;
    // A clock that has gone back must not make it seem older than it is, nor put it off.
    if (last && !isOld && last.at <= now) return last;
    const sight = { at: now, upTo, before: isOld ? last.upTo : 0 };
    this.#sights.set(consumer, sight);
    return sight;
  }
}
