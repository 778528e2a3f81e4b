/**
 * Whether payloads and results of a service may be stored encrypted only. The process's own contract says so for good; else
 * the accepted one does, which may change while the process runs. So that is looked at again before something is stored, but
 * not for every job.
 */
import type { Clock } from "../engine/clock.js";
import type { Logger } from "../engine/logger.js";

/** How long an answer holds, and from when on the next is asked for, so that a busy process never waits for one. */
const freshMs = 5_000;
const aheadMs = 2_500;

/** How much later the next is asked for, so that the job that shows the age of the last one is not held up by it. */
const behindMs = 10;

/** What is known of the demand. */
export interface EncryptionDemand {
  /** Whether there is one, as far as is known. */
  readonly isMade: boolean;
  /** Looks again, if what is known is old; gives nothing to wait for otherwise. Never rejects. */
  look(): Promise<void> | undefined;
}

/** A demand that nobody takes back. */
export const encryptionDemanded: EncryptionDemand = { isMade: true, look: () => undefined };

/** What a demand is found out with. */
interface DemandParts {
  readonly clock: Clock;
  readonly logger: Logger;
  /** Looks into the store. */
  readonly ask: () => Promise<boolean>;
}

/** Looks for the first time. Throws if the store cannot be read. */
export async function openDemand(parts: DemandParts): Promise<EncryptionDemand> {
  const lookedAt = parts.clock.monotonic();
  return new AcceptedDemand(parts, await parts.ask(), lookedAt);
}

class AcceptedDemand implements EncryptionDemand {
  readonly #parts: DemandParts;
  #lookedAt: number;
  #looking: Promise<void> | undefined;
  #isPlanned = false;
  isMade: boolean;

  constructor(parts: DemandParts, isMade: boolean, lookedAt: number) {
    this.#parts = parts;
    this.isMade = isMade;
    this.#lookedAt = lookedAt;
  }

  look(): Promise<void> | undefined {
    const ageMs = this.#parts.clock.monotonic() - this.#lookedAt;
    if (ageMs < aheadMs) return undefined;
    if (ageMs >= freshMs) return this.#lookOnce();
    if (!this.#isPlanned) this.#plan();
    return undefined;
  }

  #plan(): void {
    this.#isPlanned = true;
    this.#parts.clock.after(behindMs, () => {
      this.#isPlanned = false;
      void this.#lookOnce();
    });
  }

  #lookOnce(): Promise<void> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined;
    });
    return this.#looking;
  }

  async #look(): Promise<void> {
    const { clock, logger, ask } = this.#parts;
    try {
      const lookedAt = clock.monotonic();
      this.isMade = await ask();
      this.#lookedAt = lookedAt;
    } catch (error) {
      logger.warn({ error }, "It could not be seen whether the service is encrypted by now.");
    }
  }
}
