/**
 * The server's clock, told without asking it each time: this machine's own, put right by what the server last said.
 */
import type { Clock } from "../clock.js";

/** How often the server is asked again. */
const askMs = 60_000;

/** The clock of a store. */
export class ServerClock implements Clock {
  readonly #clock: Clock;
  readonly #ask: (() => Promise<number>) | null;
  #offsetMs = 0;
  #callOff = () => {};
  #isStopped = false;

  /** Without a server to ask, the clock that is given is the store's. */
  constructor(clock: Clock, ask: (() => Promise<number>) | null) {
    this.#clock = clock;
    this.#ask = ask;
  }

  now(): number {
    return this.#clock.now() + this.#offsetMs;
  }

  monotonic(): number {
    return this.#clock.monotonic();
  }

  after(delayMs: number, call: () => void): () => void {
    return this.#clock.after(delayMs, call);
  }

  /** Asks the server, and goes on doing so. A later answer that does not come leaves the clock as it was. */
  async start(): Promise<void> {
    if (this.#ask === null) return;
    const askedAt = this.#clock.now();
    const told = await this.#ask();
    this.#offsetMs = Math.round(told - (askedAt + this.#clock.now()) / 2);
    this.#again();
  }

  stop(): void {
    this.#isStopped = true;
    this.#callOff();
  }

  #again(): void {
    if (this.#isStopped) return;
    this.#callOff = this.#clock.after(askMs, () => {
      this.start().catch(() => this.#again());
    });
  }
}
