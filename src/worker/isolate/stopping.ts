/**
 * How a process is stopped: it is asked to, has the grace time to obey, and is killed then.
 */
import type { Clock } from "../../engine/clock.js";

/** The ways to stop a process. */
export interface Stopping {
  readonly clock: Clock;
  readonly graceMs: number;
  readonly ask: () => void;
  readonly kill: () => void;
}

/** Stops a process once a signal is aborted. Gives the way to call that off. */
export function stopWhenAborted(signal: AbortSignal, stopping: Stopping): () => void {
  const { clock, graceMs, ask, kill } = stopping;
  let callOff = () => {};
  const stop = () => {
    ask();
    callOff = clock.after(graceMs, kill);
  };
  if (signal.aborted) stop();
  else signal.addEventListener("abort", stop, { once: true });
  return () => {
    signal.removeEventListener("abort", stop);
    callOff();
  };
}
