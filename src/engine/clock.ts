/**
 * Time as a thing that can be handed over: the system's own, or one that a test moves by hand.
 */

/** Tells the time and calls back later. */
export interface Clock {
  /** Whole milliseconds since 1970. */
  now(): number;
  /** Milliseconds that only ever grow, for measuring how long something took. */
  monotonic(): number;
  /** Calls back once after a delay; gives the way to call it off. A pending call does not keep a process alive. */
  after(delayMs: number, call: () => void): () => void;
}

/** The longest delay that a timer of the platform can hold. */
const timerMaxMs = 2 ** 31 - 1;

/** The machine's clock. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after: (delayMs, call) => {
    if (delayMs > timerMaxMs) return afterLong(delayMs, call);
    const timer = setTimeout(call, Math.max(delayMs, 0));
    timer.unref();
    return () => clearTimeout(timer);
  },
};

/** Takes one timer after the other for a delay that is longer than one can hold. */
function afterLong(delayMs: number, call: () => void): () => void {
  const due = systemClock.monotonic() + delayMs;
  let callOff = () => {};
  const goOn = () => {
    callOff = systemClock.after(due - systemClock.monotonic(), call);
  };
  callOff = systemClock.after(timerMaxMs, goOn);
  return () => callOff();
}
