/**
 * Leadership: one at a time, through a record that must be renewed.
 * A leader that cannot renew stops before its record runs out, on its own monotonic clock,
 * so that a slow one never acts beside its successor for long. Who is not fit to lead lets others in first, and leads
 * where none comes.
 */
import type { Runtime } from "../client/runtime.js";
import type { Json } from "../core/json.js";
import { StoreTooNew } from "../engine/errors.js";

/** The share of the record's life for which its writer trusts it. */
const trustShare = 0.8;

/** How much later than the record's end a candidate looks at most, so that not all look at once. */
const spreadMs = 250;

/** The shortest wait between two looks at the record. */
const waitMinMs = 50;

/** For how many lives of the record one who is not fit leaves it to others, and how often it looks meanwhile. */
const unfitShare = 2;
const unfitLookMs = 500;

/** What leadership is made of. */
export interface LeadershipOptions {
  readonly runtime: Runtime;
  readonly ttlMs: number;
  readonly renewMs: number;
  /** The record that is held, and what its holder does, as in "keeps the service". */
  readonly record: string;
  readonly does: string;
  /** Whether this process can do what the leader does; everybody can where nothing is given. */
  readonly isFit?: () => Promise<boolean>;
  /** This process leads from now on. */
  readonly onGained: () => void;
}

export class Leadership {
  readonly #options: LeadershipOptions;
  readonly #id: string;
  /** Tells this leader from others under the same name. */
  readonly #holder: string;
  #version = 0;
  #trustedUntil = Number.NEGATIVE_INFINITY;
  #isStopped = true;
  /** Since when nobody leads, as far as this process has seen. */
  #freeSince: number | null = null;
  #callOff: (() => void) | undefined;
  #step: Promise<void> = Promise.resolve();

  constructor(options: LeadershipOptions) {
    this.#options = options;
    this.#id = options.record;
    this.#holder = options.runtime.ids.randomHex(8);
  }

  /** Whether this process leads now. */
  get isHeld(): boolean {
    return this.#options.runtime.clock.monotonic() < this.#trustedUntil;
  }

  /** Stands as a candidate and waits for the first look at the record. */
  start(): Promise<void> {
    this.#isStopped = false;
    return this.#look();
  }

  /** Steps down and lets the next candidate in at once. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#callOff?.();
    await this.#step;
    await this.#stepDown();
  }

  /** Lets others lead who can, and leads again where none does for a while. */
  async giveWay(): Promise<void> {
    this.#callOff?.();
    await this.#step;
    this.#callOff?.();
    if (this.#isStopped) return;
    await this.#stepDown();
    this.#freeSince = this.#options.runtime.clock.monotonic();
    this.#lookIn(unfitLookMs);
  }

  async #stepDown(): Promise<void> {
    this.#trustedUntil = Number.NEGATIVE_INFINITY;
    if (this.#version === 0) return;
    const { engine, logger } = this.#options.runtime;
    try {
      await engine.swap([{ id: this.#id, expect: this.#version, body: null }]);
    } catch (error) {
      logger.warn({ error }, "A leader could not step down; its successor waits for its end.");
    }
    this.#version = 0;
  }

  #look(): Promise<void> {
    this.#step = this.#renewOrStand().then((waitMs) => this.#lookIn(waitMs));
    return this.#step;
  }

  #lookIn(waitMs: number): void {
    if (this.#isStopped) return;
    this.#callOff = this.#options.runtime.clock.after(Math.max(waitMs, waitMinMs), () => {
      void this.#look();
    });
  }

  /** Gives how long to wait before the next look. */
  async #renewOrStand(): Promise<number> {
    const { runtime, renewMs, does } = this.#options;
    try {
      if (this.#version === 0) {
        const [found] = await runtime.engine.records([this.#id]);
        if (found) {
          this.#freeSince = null;
          return this.#untilEnd(found.expiresAt);
        }
        if (!(await this.#mayStand())) return unfitLookMs;
      }
      return await this.#write();
    } catch (error) {
      if (StoreTooNew.is(error)) {
        // No later try of this process can succeed; others stand when its time is over.
        this.#isStopped = true;
        runtime.logger.error({ error }, `${error.message} It ${does} no more.`);
      } else runtime.logger.warn({ error, does }, "Leadership could not be looked after.");
      return renewMs / 3;
    }
  }

  /** Whether this process is fit, or nobody has led for so long that nobody else seems to be. */
  async #mayStand(): Promise<boolean> {
    const { runtime, ttlMs, isFit } = this.#options;
    const now = runtime.clock.monotonic();
    this.#freeSince ??= now;
    if (isFit === undefined || now >= this.#freeSince + unfitShare * ttlMs) return true;
    return isFit();
  }

  async #write(): Promise<number> {
    const { runtime, ttlMs, renewMs, does, onGained } = this.#options;
    const { engine, clock, instance, logger } = runtime;
    const askedAt = clock.monotonic();
    const body = { instance, holder: this.#holder };
    const expiresAt = engine.now() + ttlMs;
    const [outcome] = await engine.swap([{ id: this.#id, expect: this.#version, body, expiresAt }]);
    if (outcome?.swapped) {
      const isNew = !this.isHeld;
      this.#freeSince = null;
      this.#version = outcome.version;
      this.#trustedUntil = askedAt + ttlMs * trustShare;
      if (isNew && !this.#isStopped) {
        logger.info({ instance }, `This process ${does} now.`);
        onGained();
      }
      return renewMs;
    }
    const current = outcome?.current ?? null;
    if (current && holderOf(current.body) === this.#holder) {
      // A write of ours was stored although its answer never came.
      this.#version = current.version;
      return 0;
    }
    if (this.isHeld) logger.warn({ instance }, `Another process ${does} now.`);
    this.#version = 0;
    this.#trustedUntil = Number.NEGATIVE_INFINITY;
    return this.#untilEnd(current?.expiresAt);
  }

  #untilEnd(expiresAt: number | undefined): number {
    const { runtime, ttlMs } = this.#options;
    const leftMs = (expiresAt ?? 0) - runtime.engine.now();
    return Math.min(Math.max(leftMs, 0), ttlMs) + runtime.ids.random() * spreadMs;
  }
}

function holderOf(body: Json): Json | undefined {
  return typeof body === "object" && body !== null && "holder" in body ? body.holder : undefined;
}
