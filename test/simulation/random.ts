// All randomness of a simulation, from one seed: the same seed gives the same numbers and the same ids.
import type { IdSource } from "#millrace/client/ids.js";

/** A small generator of random numbers with a state of 32 bits (mulberry32). */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
    // Neighbouring seeds start far apart after a few numbers.
    for (let warmUp = 0; warmUp < 4; warmUp++) this.next();
  }

  /** A number from 0 up to, but not including, 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  /** A whole number from `least` to `most`, both included. */
  whole(least: number, most: number): number {
    return least + Math.floor(this.next() * (most - least + 1));
  }

  pick<Item>(items: readonly Item[]): Item {
    const item = items[this.whole(0, items.length - 1)];
    if (item === undefined) throw new Error("There is nothing to pick from.");
    return item;
  }

  /** A generator of its own, so that more draws on one side leave the other side as it was. */
  fork(): Random {
    return new Random(Math.floor(this.next() * 2 ** 32));
  }
}

/** Ids that count up behind a prefix, which names the process, and randomness from the seed. */
export function seededIds(prefix: string, random: Random): IdSource {
  let count = 0;
  const nextId = () => `${prefix}-${String(++count).padStart(5, "0")}`;
  return {
    jobId: nextId,
    eventId: nextId,
    randomHex: (bytes) => {
      const digits = Array.from({ length: bytes * 2 }, () => random.whole(0, 15).toString(16));
      return digits.join("");
    },
    random: () => random.next(),
  };
}
