/**
 * Follows the feed from where it ends at the start, and goes on where it was after a fault of the store.
 */
import type { Clock } from "../../engine/clock.js";
import type { Engine, FeedItem } from "../../engine/engine.js";
import type { Logger } from "../../engine/logger.js";

/** How long to wait before a feed that broke off is read on. */
const againMs = 1_000;

/** What a reader works with. */
export interface FeedReaderOptions {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Reads the feed after a cursor, as the engine's `tail` does. */
  readonly follow: Engine["tail"];
  readonly onItem: (item: FeedItem) => void;
}

/** Reads the feed until it is stopped. */
export class FeedReader {
  readonly #options: FeedReaderOptions;
  readonly #stop = new AbortController();
  #cursor: string | null = null;
  #starting: Promise<void> | null = null;
  #reading: Promise<void> | null = null;

  constructor(options: FeedReaderOptions) {
    this.#options = options;
  }

  /** Begins at the end of the feed: whatever is stored afterwards is told. Idempotent. */
  start(): Promise<void> {
    this.#starting ??= this.#start();
    return this.#starting;
  }

  /** Ends the reading. Idempotent. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#reading;
  }

  async #start(): Promise<void> {
    this.#cursor = await this.#options.engine.head();
    if (!this.#stop.signal.aborted) this.#reading = this.#readAll();
  }

  async #readAll(): Promise<void> {
    const { logger } = this.#options;
    const { signal } = this.#stop;
    let isFailing = false;
    while (!signal.aborted) {
      try {
        for await (const item of this.#options.follow(this.#cursor, signal)) {
          // An event that cannot be counted, perhaps of a newer version, is not met again.
          this.#cursor = item.cursor;
          this.#options.onItem(item);
          isFailing = false;
        }
      } catch (error) {
        if (!isFailing) logger.warn({ error }, "The feed broke off; metrics lag until it is back.");
        isFailing = true;
      }
      await this.#pause();
    }
  }

  #pause(): Promise<void> {
    const { signal } = this.#stop;
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const done = () => {
        callOff();
        signal.removeEventListener("abort", done);
        resolve();
      };
      const callOff = this.#options.clock.after(againMs, done);
      signal.addEventListener("abort", done);
    });
  }
}
