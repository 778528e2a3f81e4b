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

/** How many services a server tends at once. */
const keepersMax = 200;

/** Where there are more, how often some make way for those whose turn it is next, and how many. */
const turnMs = 10_000;
const turnSize = 50;

interface Kept {
  readonly keeper: Keeper;
  readonly signature: string | null;
}

/** Starts a keeper for each service, and another when its contract has changed. */
export class Keepers {
  readonly #backend: Backend;
  readonly #kept = new Map<string, Kept>();
  /** The services that could not be tended, each with what was said of it. */
  readonly #unkept = new Map<string, string>();
  /** The first service of those whose turn it is, and when the next turn comes. */
  #turnFrom = "";
  #turnAt: number;
  #takesTurns = false;
  #isStopped = false;
  #callOff: (() => void) | undefined;
  #looking: Promise<void> = Promise.resolve();

  constructor(backend: Backend) {
    this.#backend = backend;
    this.#turnAt = backend.clock.monotonic() + turnMs;
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
    try {
      const names = this.#inTurn(await serviceNames(this.#backend));
      await this.#leaveOthers(new Set(names));
      for (const service of names) {
        if (this.#isStopped) return;
        await this.#keepOrSay(service);
      }
    } catch (error) {
      if (!this.#isStopped)
        this.#backend.logger.warn(
          { error },
          "Services could not be looked for; the server keeps trying.",
        );
    }
  }

  /** The services to tend now: all, or as many as can be, each in its turn. */
  #inTurn(names: readonly string[]): readonly string[] {
    const takesTurns = names.length > keepersMax;
    const { clock, logger } = this.#backend;
    if (takesTurns && !this.#takesTurns) {
      const message = `There are more than ${keepersMax} services: the server tends them in turn, so that what is due may be late.`;
      logger.warn({ services: names.length }, message);
    }
    this.#takesTurns = takesTurns;
    if (!takesTurns) return names;
    const last = names.findIndex((name) => name >= this.#turnFrom);
    const isNext = clock.monotonic() >= this.#turnAt;
    const from = (Math.max(last, 0) + (isNext ? turnSize : 0)) % names.length;
    if (isNext) this.#turnAt = clock.monotonic() + turnMs;
    this.#turnFrom = names[from] ?? "";
    return [...names.slice(from), ...names.slice(0, from)].slice(0, keepersMax);
  }

  /** Stops the keepers of services that are gone, or whose turn is over. */
  async #leaveOthers(kept: ReadonlySet<string>): Promise<void> {
    for (const service of this.#unkept.keys()) if (!kept.has(service)) this.#unkept.delete(service);
    const others = [...this.#kept.keys()].filter((service) => !kept.has(service));
    await Promise.all(others.map((service) => this.#leave(service)));
  }

  /** What is wrong with one service must not reach the others. It is tried again at every look, and said once. */
  async #keepOrSay(service: string): Promise<void> {
    try {
      await this.#keep(service);
      this.#unkept.delete(service);
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      if (this.#isStopped || this.#unkept.get(service) === message) return;
      this.#unkept.set(service, message);
      const said = "A service could not be tended; the server keeps trying.";
      this.#backend.logger.warn({ service, error }, said);
    }
  }

  async #keep(service: string): Promise<void> {
    const { services } = this.#backend;
    const accepted = await services.accepted(service);
    const signature = accepted?.manifest.signature ?? null;
    if (this.#kept.get(service)?.signature === signature) return;
    await this.#leave(service);
    const keeper = createKeeper({
      runtime: await services.runtime(service),
      contract: await services.contract(service),
    });
    this.#kept.set(service, { keeper, signature });
    await keeper.start().catch(async (error: unknown) => {
      await this.#leave(service);
      throw error;
    });
  }

  async #leave(service: string): Promise<void> {
    const kept = this.#kept.get(service);
    this.#kept.delete(service);
    await kept?.keeper.stop();
  }
}
