/**
 * How much a caller may ask for: requests per second, failed proofs of who they are, and open streams.
 */
import { RateLimiterMemory, RateLimiterRes } from "rate-limiter-flexible";
import { refused } from "./refusal.js";

/** How many wrong tokens an address may send per minute. */
const failuresMax = 60;
const failuresMessage = "Too many requests with wrong tokens; wait a minute.";

/** Counts requests, failures and streams in this process. */
export class Limits {
  readonly #requests: RateLimiterMemory | null;
  readonly #failures = new RateLimiterMemory({ points: failuresMax, duration: 60 });
  readonly #streamsMax: number;
  #streams = 0;

  /** `requestsPerSecond` is for each token or address; 0 sets no limit. */
  constructor({
    requestsPerSecond,
    streamsMax,
  }: { readonly requestsPerSecond: number; readonly streamsMax: number }) {
    this.#requests =
      requestsPerSecond > 0
        ? new RateLimiterMemory({ points: requestsPerSecond, duration: 1 })
        : null;
    this.#streamsMax = streamsMax;
  }

  /** Counts a request of a caller. There is nothing to wait for where there is no limit. */
  request({ id }: { readonly id: string }): Promise<unknown> | null {
    if (this.#requests === null) return null;
    const message = "Too many requests; slow down.";
    return this.#requests.consume(id).catch(tooMany("too_many_requests", message));
  }

  /** Counts a request whose token was no good. */
  async failure(address: string): Promise<void> {
    await this.#failures.consume(address).catch(tooMany("too_many_failures", failuresMessage));
  }

  /** Takes a place for a stream. Gives the way to leave it. */
  stream(): () => void {
    if (this.#streams >= this.#streamsMax) {
      const message = `The server has ${this.#streamsMax} streams open, which is its limit; close some, or come back.`;
      throw refused("rate_limited", { reason: "too_many_streams", message, retryAfterMs: 5_000 });
    }
    this.#streams++;
    let isOpen = true;
    return () => {
      if (isOpen) this.#streams--;
      isOpen = false;
    };
  }
}

function tooMany(reason: string, message: string): (limit: unknown) => never {
  return (limit) => {
    if (!(limit instanceof RateLimiterRes)) throw limit;
    throw refused("rate_limited", { reason, message, retryAfterMs: limit.msBeforeNext });
  };
}
