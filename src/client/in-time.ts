/**
 * Ends that do not wait for ever: a process that stops gives its store and its hooks the rest of its grace time, and a little
 * more where nothing of that is left.
 */
import type { Clock } from "../engine/clock.js";
import { keepAlive } from "./keep-alive.js";

/** How long whoever stops waits for the store and for hooks once the grace time is over. */
const lastCallMs = 3_000;

/** How long there still is for what began to stop at a monotonic time. */
export function lastCall(clock: Clock, beganAt: number, graceMs: number): number {
  return Math.max(beganAt + graceMs - clock.monotonic(), lastCallMs);
}

/** Waits for work, but not longer than a time, and keeps the process alive meanwhile. Gives whether the work was done. */
export async function inTime(
  clock: Clock,
  work: Promise<unknown>,
  limitMs: number,
): Promise<boolean> {
  const release = keepAlive();
  let callOff = () => {};
  const tooLong = new Promise<false>((resolve) => {
    callOff = clock.after(limitMs, () => resolve(false));
  });
  try {
    return await Promise.race([work.then(() => true), tooLong]);
  } finally {
    callOff();
    release();
  }
}
