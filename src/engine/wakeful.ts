/**
 * Staying awake while an answer is due. To wake a thread that sleeps takes up to a third of the time in which a single write is stored,
 * and whoever writes one thing after the other would pay that each time. So the event loop goes on turning, for about
 * a millisecond at most. It is never blocked: whatever else comes is served in between.
 */

/** How soon after an answer a request comes from somebody who writes one thing after the other. */
const followsMs = 0.5;

export class Wakeful {
  /** How long an answer is waited for in that way. */
  readonly #waitMaxMs: number;
  #isTurning = false;
  /** When the last answer came, and when the one that is due was asked for; `null` when none is. */
  #answeredAt = Number.NEGATIVE_INFINITY;
  #askedAt: number | null = null;
  /** Whether the last answer came so soon that waiting for the next one pays. */
  #isSoon = false;

  constructor(waitMaxMs: number) {
    this.#waitMaxMs = waitMaxMs;
  }

  /** A request was sent. Its answer is waited for if it follows another one closely and the last answer came soon. */
  asked(): void {
    const now = performance.now();
    this.#askedAt = now;
    if (this.#isTurning || !this.#isSoon || now - this.#answeredAt > followsMs) return;
    this.#isTurning = true;
    setImmediate(this.#turn);
  }

  /** The answer has come. */
  answered(): void {
    this.#answeredAt = performance.now();
    this.#isSoon = this.#askedAt !== null && this.#answeredAt - this.#askedAt < this.#waitMaxMs;
    this.#askedAt = null;
  }

  readonly #turn = (): void => {
    this.#isTurning = this.#askedAt !== null && performance.now() - this.#askedAt < this.#waitMaxMs;
    if (this.#isTurning) setImmediate(this.#turn);
  };
}
