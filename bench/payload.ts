// The payload of every job of every system, so that all of them store the same.
import { keyCount } from "./sizes.js";

/** What a job carries: its number, and the concurrency key that keyed jobs use. */
export interface Payload {
  readonly number: number;
  readonly key: string;
}

/** The payload of the job with a number. */
export function payloadOf(number: number): Payload {
  return { number, key: `key-${number % keyCount}` };
}

/** The payloads of the jobs from one number up to another. */
export function payloadsBetween(from: number, to: number): Payload[] {
  return Array.from({ length: to - from }, (_, index) => payloadOf(from + index));
}
