/**
 * Keepers for every service that the store knows: a server tends also those of which no process in TypeScript runs, so
 * that delays, deadlines and lost workers are dealt with for workers of any language. One keeper leads a service,
 * whichever process it is in.
 */
import { createKeeper, type Keeper } from "../../keeper/keeper.js";
import type { Backend } from "./backend.js";
import { serviceNames } from "./routes/services.js";

/** How often services are looked for. */
const lookMs = 5_000;
const soonMs = 100;

/** How many services a server tends. */
const keepersMax = 200;

interface Kept {
  readonly keeper: Keeper;
  readonly signature: string | null;
}

/** Starts a keeper for each service, and another when its contract has changed. */
export class Keepers {
  readonly #backend: Backend;
  readonly #kept = new Map<string, Kept>();
  #isStopped = false;
  #callOff: (() => void) | undefined;
  #looking: Promise<void> = Promise.resolve();

  constructor(backend: Backend) {
    this.#backend = backend;
  }

  /** Looks for services, now and again. Resolves after the first look. */
  start(): Promise<void> {
    this.#look();
    this.#backend.services.onNamed = () => this.#lookSoon();
    return this.#looking;
  }

  /** Stops all keepers. Idempotent. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#callOff?.();
    await this.#looking;
    await Promise.all([...this.#kept.values()].map(({ keeper }) => keeper.stop()));
  }

  /** A service was named; what the request makes of it is there in a moment. */
  #lookSoon(): void {
    if (this.#callOff === undefined) return;
    this.#callOff();
    this.#callOff = this.#backend.clock.after(soonMs, () => this.#look());
  }

  #look(): void {
    this.#callOff = undefined;
    this.#looking = this.#keepAll().finally(() => {
      if (!this.#isStopped) this.#callOff = this.#backend.clock.after(lookMs, () => this.#look());
    });
  }

  async #keepAll(): Promise<void> {
    const { logger, services } = this.#backend;
    try {
      for (const service of (await serviceNames(this.#backend)).slice(0, keepersMax)) {
        if (this.#isStopped) return;
        const accepted = await services.accepted(service);
        const signature = accepted?.manifest.signature ?? null;
        const before = this.#kept.get(service);
        if (before?.signature === signature) continue;
        await before?.keeper.stop();
        const keeper = createKeeper({
          runtime: await services.runtime(service),
          contract: await services.contract(service),
        });
        this.#kept.set(service, { keeper, signature });
        await keeper.start();
      }
    } catch (error) {
      if (!this.#isStopped)
        logger.warn({ error }, "Services could not be looked for; the server keeps trying.");
    }
  }
}
