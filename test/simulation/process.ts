// A simulated process: its timers and the answers that it waits for reach it only while it lives and
// is not paused. A crash leaves no trace in it; whatever it had sent may still arrive at the store.
import type { Clock } from "#millrace/engine/clock.js";
import type { FakeClock } from "#millrace/testing/fake-clock.js";

/** The wall clock that all processes and the store share. It can jump; the monotonic clock cannot. */
export class WallClock implements Clock {
  readonly fake: FakeClock;
  #jumpedMs = 0;

  constructor(fake: FakeClock) {
    this.fake = fake;
  }

  now(): number {
    // A wall clock tells whole milliseconds.
    return Math.floor(this.fake.now()) + this.#jumpedMs;
  }

  monotonic(): number {
    return this.fake.monotonic();
  }

  after(delayMs: number, call: () => void): () => void {
    return this.fake.after(delayMs, call);
  }

  /** Moves the wall clock at once, as an operator or a time server does. */
  jump(byMs: number): void {
    this.#jumpedMs += byMs;
  }
}

export class SimulatedProcess {
  readonly name: string;
  readonly clock: Clock;
  readonly #wall: WallClock;
  readonly #onGone: (() => void)[] = [];
  #state: "alive" | "paused" | "gone" = "alive";
  #held: (() => void)[] = [];

  constructor(name: string, wall: WallClock) {
    this.name = name;
    this.#wall = wall;
    this.clock = {
      now: () => wall.now(),
      monotonic: () => wall.monotonic(),
      after: (delayMs, call) => wall.after(delayMs, () => this.deliver(call)),
    };
  }

  get state(): "alive" | "paused" | "gone" {
    return this.#state;
  }

  /** Something reaches the process: now, when it goes on, or never. */
  deliver(call: () => void): void {
    if (this.#state === "alive") call();
    else if (this.#state === "paused") this.#held.push(call);
  }

  /** A wait outside the process, such as a message on its way, that no pause stops. */
  travel(delayMs: number): Promise<void> {
    return new Promise((resolve) => this.#wall.after(delayMs, resolve));
  }

  /** The end of a wait reaches the process. */
  arrive(): Promise<void> {
    return new Promise((resolve) => this.deliver(resolve));
  }

  /** Stops the process where it is, as SIGSTOP does. Its monotonic clock goes on. */
  pause(): void {
    if (this.#state === "alive") this.#state = "paused";
  }

  /** Lets a paused process go on: first with what came meanwhile, in its order. */
  resume(): void {
    if (this.#state !== "paused") return;
    this.#state = "alive";
    const held = this.#held;
    this.#held = [];
    for (const call of held) this.#wall.after(0, () => this.deliver(call));
  }

  /** Ends the process, as SIGKILL or an exit does. */
  end(): void {
    if (this.#state === "gone") return;
    this.#state = "gone";
    this.#held = [];
    for (const call of this.#onGone) call();
  }

  onGone(call: () => void): void {
    this.#onGone.push(call);
  }
}
