/**
 * Processes that are ready before their job comes. Each runs one job; the next takes its place in the background.
 */
import { availableParallelism } from "node:os";
import type { Clock } from "../../engine/clock.js";
import type { Logger } from "../../engine/logger.js";

/** How many processes of a pool start at the same time: more would only take the processors from each other. */
const startingMax = availableParallelism();

/** How long no job may have come before processes are started that nobody waits for: jobs of a burst come first. */
const quietMs = 100;

/** A process that can wait for a job. */
export interface WaitingProcess {
  readonly ended: Promise<unknown>;
  /** Ends it, because nobody needs it any more. */
  discard(): void;
}

/** What a pool is made of. */
export interface PoolOptions<Process extends WaitingProcess> {
  /** How many processes wait for jobs. */
  readonly warm: number;
  /** Starts a process and waits until it is ready. */
  readonly start: () => Promise<Process>;
  readonly logger: Logger;
  readonly clock: Clock;
}

interface Taker<Process> {
  readonly take: (process: Process) => void;
  readonly fail: (error: unknown) => void;
}

export class WarmPool<Process extends WaitingProcess> {
  readonly #options: PoolOptions<Process>;
  readonly #ready: Process[] = [];
  readonly #takers = new Set<Taker<Process>>();
  #starting = 0;
  #quietAt = Number.NEGATIVE_INFINITY;
  #callOff = () => {};
  #isStopped = false;

  constructor(options: PoolOptions<Process>) {
    this.#options = options;
  }

  /** Starts the first process and, once it is ready, fills up in the background. Throws when it cannot become ready. */
  async start(): Promise<void> {
    this.#put(await this.#options.start());
  }

  /** A process that is ready, as soon as there is one. Rejects with the signal's reason once that is aborted. */
  async take(signal: AbortSignal): Promise<Process> {
    signal.throwIfAborted();
    const { clock } = this.#options;
    this.#quietAt = clock.monotonic() + quietMs;
    this.#callOff();
    this.#callOff = clock.after(quietMs, () => this.#fill());
    const ready = this.#ready.shift();
    if (ready !== undefined) {
      this.#fill();
      return ready;
    }
    return new Promise((resolve, reject) => {
      const leave = () => taker.fail(signal.reason);
      const settle = <Value>(end: (value: Value) => void) => {
        return (value: Value) => {
          signal.removeEventListener("abort", leave);
          this.#takers.delete(taker);
          end(value);
        };
      };
      const taker: Taker<Process> = { take: settle(resolve), fail: settle(reject) };
      signal.addEventListener("abort", leave, { once: true });
      this.#takers.add(taker);
      this.#fill();
    });
  }

  /** Ends what waits. Idempotent. */
  stop(): void {
    this.#isStopped = true;
    this.#callOff();
    for (const process of this.#ready.splice(0)) process.discard();
  }

  /** Starts what those who wait need and one to spare; in quiet times everything that should be ready. */
  #fill(): void {
    const { warm, clock } = this.#options;
    const isQuiet = clock.monotonic() >= this.#quietAt;
    const missing = Math.max((isQuiet ? warm : Math.min(warm, 1)) - this.#ready.length, 0);
    const wanted = Math.min(this.#takers.size + missing, startingMax);
    while (this.#starting < wanted && !this.#isStopped) void this.#startOne();
  }

  /** A process that cannot start fails one taker; the next is started when somebody needs it, not at once. */
  async #startOne(): Promise<void> {
    this.#starting++;
    try {
      const process = await this.#options.start();
      this.#starting--;
      this.#put(process);
    } catch (error) {
      this.#starting--;
      if (this.#isStopped) return;
      this.#options.logger.error({ error }, "A process for isolated jobs could not be started.");
      const [taker] = this.#takers;
      taker?.fail(error);
      if (this.#takers.size > 0) this.#fill();
    }
  }

  #put(process: Process): void {
    if (this.#isStopped) {
      process.discard();
      return;
    }
    const [taker] = this.#takers;
    if (taker !== undefined) taker.take(process);
    else {
      this.#ready.push(process);
      void process.ended.then(() => this.#remove(process));
    }
    this.#fill();
  }

  /** A process that ends while it waits is not replaced until a job comes, because the next might end as well. */
  #remove(process: Process): void {
    const place = this.#ready.indexOf(process);
    if (place < 0) return;
    this.#ready.splice(place, 1);
    this.#options.logger.warn({}, "A process for isolated jobs has ended while it waited.");
  }
}
