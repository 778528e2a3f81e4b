/**
 * The server's clock as this process knows it: its own monotonic clock, set by what the server said.
 */

/** How long a good reading is trusted before a worse one may replace it: clocks drift apart slowly. */
const trustMs = 60_000;

/** How long nobody has to ask again. */
const freshMs = 5_000;

/** By how much more than they may be off two readings differ where a clock was set, or stood still with its machine. */
const jumpMs = 100;

export class ServerClock {
  /** What to add to the monotonic clock. */
  #offset = Date.now() - performance.now();
  /** How far off the reading may be, and when it was taken. */
  #uncertainty = Number.POSITIVE_INFINITY;
  #takenAt = Number.NEGATIVE_INFINITY;
  #latest = 0;
  #askedAt = Number.NEGATIVE_INFINITY;
  /** When somebody was told to ask. */
  #toldAt = Number.NEGATIVE_INFINITY;

  monotonic(): number {
    return performance.now();
  }

  /** The server's time; it never goes back by little steps of adjustment. */
  now(): number {
    this.#latest = Math.max(this.#latest, Math.floor(performance.now() + this.#offset));
    return this.#latest;
  }

  /** Whether the server was asked not long ago. */
  get isFresh(): boolean {
    return performance.now() - this.#askedAt < freshMs;
  }

  /** Whether the one who is told so should ask, because nobody has for a while and nobody is about to. */
  isTimeToAsk(): boolean {
    const now = performance.now();
    if (this.isFresh || now - this.#toldAt < freshMs) return false;
    this.#toldAt = now;
    return true;
  }

  /** Takes a reading: what the server said to a question that was sent at a time of the monotonic clock. */
  learn(server: number, sentAt: number): void {
    const receivedAt = performance.now();
    this.#askedAt = receivedAt;
    const uncertainty = (receivedAt - sentAt) / 2;
    const offset = server - (sentAt + receivedAt) / 2;
    const hasJumped = Math.abs(offset - this.#offset) > uncertainty + this.#uncertainty + jumpMs;
    const isOld = hasJumped || receivedAt - this.#takenAt > trustMs;
    if (uncertainty >= this.#uncertainty && !isOld) return;
    // A clock that was set back is believed.
    if (isOld && offset < this.#offset) this.#latest = 0;
    this.#offset = offset;
    this.#uncertainty = uncertainty;
    this.#takenAt = receivedAt;
  }
}
