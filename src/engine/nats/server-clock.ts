/**
 * The server's clock, told without asking it each time: this machine's monotonic clock, set by what the server last said.
 * The machine's own time of day takes no part in it, because it may be set while jobs run.
 */
import type { Clock } from "../clock.js";

/** How often the server is asked again. */
const askMs = 60_000;

/**
 * How far the machine's two clocks may come apart before the server is asked at once, and how soon after an answer that did
 * not come. Somebody has set the time of day, or the machine was asleep, and some monotonic clocks stand still meanwhile.
 */
const apartMaxMs = 1_000;
const hurryMs = 1_000;

/** The clock of a store. */
export class ServerClock implements Clock {
  readonly #clock: Clock;
  readonly #ask: (() => Promise<number>) | null;
  /** What to add to the monotonic clock for the server's time, and what for the time of day when the server was asked. */
  #offsetMs: number;
  #dayOffsetMs: number;
  #isHurried = false;
  #callOff = () => {};
  #isStopped = false;

  /** Without a server to ask, the clock that is given is the store's. */
  constructor(clock: Clock, ask: (() => Promise<number>) | null) {
    this.#clock = clock;
    this.#ask = ask;
    this.#dayOffsetMs = clock.now() - clock.monotonic();
    this.#offsetMs = this.#dayOffsetMs;
  }

  now(): number {
    const day = this.#clock.now();
    if (this.#ask === null) return day;
    const monotonic = this.#clock.monotonic();
    if (Math.abs(day - monotonic - this.#dayOffsetMs) > apartMaxMs) this.#hurry();
    return Math.floor(monotonic + this.#offsetMs);
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
    const sentAt = this.#clock.monotonic();
    // A machine that falls asleep before it has read the answer asks again.
    const dayOffsetMs = this.#clock.now() - sentAt;
    const told = await this.#ask();
    this.#offsetMs = told - (sentAt + this.#clock.monotonic()) / 2;
    this.#dayOffsetMs = dayOffsetMs;
    this.#isHurried = false;
    this.#again(askMs);
  }

  stop(): void {
    this.#isStopped = true;
    this.#callOff();
  }

  /** Asks at once, and until an answer comes. */
  #hurry(): void {
    if (this.#isHurried) return;
    this.#isHurried = true;
    this.#again(0);
  }

  #again(delayMs: number): void {
    this.#callOff();
    if (this.#isStopped) return;
    this.#callOff = this.#clock.after(delayMs, () => {
      this.start().catch(() => this.#again(this.#isHurried ? hurryMs : askMs));
    });
  }
}
