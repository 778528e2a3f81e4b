/**
 * Where ids and randomness come from: the system, or a seed that a test or the simulator gives.
 */
import { randomFillSync } from "node:crypto";
import { systemClock } from "../engine/clock.js";
import { createUlids } from "./ulid.js";

/** Makes ids and random values. Ids sort by the time at which they were made. */
export interface IdSource {
  jobId(): string;
  eventId(): string;
  /** So many random bytes in hexadecimal. */
  randomHex(bytes: number): string;
  /** A number from 0 up to, but not including, 1. */
  random(): number;
}

/** How many random bytes are fetched at once, because one call per id would cost more than the id. */
const poolBytes = 8 * 1024;

/** Ids that are ULIDs at the given time, with randomness from the operating system. */
export function createIds(now: () => number): IdSource {
  const pool = Buffer.allocUnsafe(poolBytes);
  let used = poolBytes;

  function take(bytes: number): number {
    if (used + bytes > poolBytes) {
      randomFillSync(pool);
      used = 0;
    }
    const start = used;
    used += bytes;
    return start;
  }

  const random = () => pool.readUInt32LE(take(4)) / 2 ** 32;
  const ulid = createUlids(random);
  const nextId = () => ulid(now());
  return {
    jobId: nextId,
    eventId: nextId,
    randomHex: (bytes) => {
      const start = take(bytes);
      return pool.toString("hex", start, start + bytes);
    },
    random,
  };
}

/** Ids on the machine's clock. */
export const systemIds: IdSource = createIds(systemClock.now);
