/**
 * Waiting for the next commit: of this process, which is told at once, or of another, which is looked for now and then.
 */
import type { Clock } from "../clock.js";

/** How often a reader of the feed looks for what other processes have stored. */
const pollMs = 100;

/** A wait that can be called off. */
export interface CommitWait {
  readonly wait: Promise<void>;
  readonly cancel: () => void;
}

export class Commits {
  readonly #clock: Clock;
  readonly #waiting = new Set<() => void>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Something was committed, or nothing will be any more. */
  ring(): void {
    for (const call of this.#waiting) call();
  }

  /** Resolves at the next commit of this process, after a while (for those of others), or when it is called off. */
  next(signal: AbortSignal): CommitWait {
    let finish = () => {};
    const wait = new Promise<void>((done) => {
      finish = done;
    });
    const stopTimer = this.#clock.after(pollMs, finish);
    this.#waiting.add(finish);
    signal.addEventListener("abort", finish);
    const cancel = () => {
      stopTimer();
      this.#waiting.delete(finish);
      signal.removeEventListener("abort", finish);
    };
    return { wait, cancel };
  }
}
