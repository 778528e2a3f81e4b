/**
 * The relay: publishes what callers put into the outbox of their own database, within milliseconds of their commit.
 * A row is removed once it is published, and never skipped by position, so that one whose transaction commits late is
 * found like any other. Whoever publishes it a second time meets the job that is there, so that a relay may be killed at
 * any moment, and two at once do no harm; one of them leads only to spare the others the work.
 */
import { createOf, type Published, publishCreates } from "../client/outbox.js";
import type { PreparedCreate } from "../client/prepare.js";
import type { Runtime } from "../client/runtime.js";
import { canonicalHash } from "../core/json.js";
import { jobFields } from "../engine/logger.js";
import type { Outbox, OutboxRow } from "../engine/outbox.js";
import { recordId } from "../engine/record.js";
import { type KeeperTimings, keeperDefaults } from "./keeper.js";
import { Leadership } from "./leadership.js";

/** How many rows are taken at a time. */
const rowsMax = 250;

/** The length of the name of an outbox in the record of who leads. */
const placeLength = 16;

/** What a relay is made of. Its timings are the keeper's; it polls as often as the keeper looks around. */
export interface RelayOptions {
  readonly runtime: Runtime;
  readonly outbox: Outbox;
  readonly timings: KeeperTimings;
}

/** A row with the create that it holds. */
interface Held {
  readonly row: OutboxRow;
  readonly create: PreparedCreate;
}

export class Relay {
  readonly #runtime: Runtime;
  readonly #outbox: Outbox;
  readonly #pollMs: number;
  readonly #leadership: Leadership;
  #stopHints: (() => void) | undefined;
  #callOff: (() => void) | undefined;
  #isStopped = false;
  #isFailing = false;
  /** Something may have been put down since the last look began. */
  #isCalled = false;
  #looking: Promise<void> | null = null;

  constructor({ runtime, outbox, timings }: RelayOptions) {
    const { ttlMs, renewMs, tickMs } = { ...keeperDefaults, ...timings };
    this.#runtime = runtime;
    this.#outbox = outbox;
    this.#pollMs = tickMs;
    const place = canonicalHash(outbox.url).slice(0, placeLength);
    this.#leadership = new Leadership({
      runtime,
      ttlMs,
      renewMs,
      record: recordId.relay(runtime.service, place),
      does: "relays the outbox",
      onGained: () => this.#call(),
    });
  }

  /** Whether this relay leads now. */
  get isLeader(): boolean {
    return this.#leadership.isHeld;
  }

  /** Stands as a candidate; resolves after the first look at who leads. */
  async start(): Promise<void> {
    this.#stopHints ??= this.#outbox.wake(() => this.#call());
    await this.#leadership.start();
  }

  /** Ends the look under way and steps down. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#stopHints?.();
    this.#callOff?.();
    await this.#looking;
    await this.#leadership.stop();
  }

  readonly #mayGoOn = () => !this.#isStopped && this.#leadership.isHeld;

  /** Looks now, or again after the look under way. */
  #call(): void {
    this.#isCalled = true;
    if (this.#looking !== null || !this.#mayGoOn()) return;
    this.#callOff?.();
    this.#looking = this.#look().finally(() => {
      this.#looking = null;
      if (this.#isStopped) return;
      this.#callOff = this.#runtime.clock.after(this.#pollMs, () => this.#call());
    });
  }

  async #look(): Promise<void> {
    const { logger } = this.#runtime;
    while (this.#isCalled && this.#mayGoOn()) {
      this.#isCalled = false;
      try {
        const stuck = await this.#publishAll();
        if (stuck !== null) throw stuck;
        this.#isFailing = false;
      } catch (error) {
        if (!this.#isFailing) logger.error({ error }, "The relay failed; it keeps trying.");
        this.#isFailing = true;
        return;
      }
    }
  }

  /** Publishes everything that is in the outbox. Gives why something is left, if it is. */
  async #publishAll(): Promise<Error | null> {
    // Keys and jobs of rows that are left: what comes after them under the same key, or waits for them, is left, too.
    const left = new Set<string>();
    let why: Error | null = null;
    let after = 0;
    while (this.#mayGoOn()) {
      const rows = await this.#outbox.take(this.#runtime.service, after, rowsMax);
      const held: Held[] = [];
      for (const row of rows) {
        const create = createOf(row.body);
        if (create === null) why = unreadable(row);
        else held.push({ row, create });
      }
      for (const wave of wavesOf(held)) why = (await this.#publish(wave, left)) ?? why;
      after = rows.at(-1)?.n ?? after;
      if (rows.length < rowsMax) return why;
    }
    return why;
  }

  /** Publishes rows that do not depend on one another, and removes them. */
  async #publish(wave: readonly Held[], left: Set<string>): Promise<Error | null> {
    const isLeft = (name: string) => left.has(name);
    const free = wave.filter(({ create }) => !dependencies(create).some(isLeft));
    for (const each of wave) if (!free.includes(each)) leave(each, left);
    if (free.length === 0 || !this.#mayGoOn()) return null;
    const { engine } = this.#runtime;
    const outcomes = await publishCreates(
      engine,
      free.map(({ create }) => create),
    );
    let why: Error | null = null;
    const done: number[] = [];
    for (const [index, each] of free.entries()) {
      const outcome = outcomes[index] as Published;
      if (outcome.outcome === "later") {
        leave(each, left);
        why = outcome.error;
        continue;
      }
      if (outcome.outcome === "exists") await this.#checkOwn(each.create);
      done.push(each.row.n);
    }
    if (done.length > 0) await this.#outbox.remove(done);
    return why;
  }

  /** A job with the id is there: this one, whose publishing went unnoticed, or one that somebody else gave the same id. */
  async #checkOwn({ event }: PreparedCreate): Promise<void> {
    const { engine, logger } = this.#runtime;
    const [loaded] = await engine.load([event.jobId], { history: true });
    const first = loaded?.events?.[0];
    if (first === undefined || first.id === event.id) return;
    const message = "A job with this id existed already; the one in the outbox is dropped.";
    logger.warn(jobFields({ ...event, id: event.jobId }), message);
  }
}

/** Another version of Millrace has put it down, and will have to publish it. */
function unreadable({ n }: OutboxRow): Error {
  return new Error(`This version of Millrace cannot read row ${n} of the outbox.`);
}

/** The names that a create has to wait for: its key, and its blockers. */
function dependencies({ event }: PreparedCreate): readonly string[] {
  const blockers = event.blockers.map(({ jobId }) => `job ${jobId}`);
  return event.key === undefined ? blockers : [`key ${event.key.hash}`, ...blockers];
}

/** The names that others may have to wait for. */
function namesOf({ event }: PreparedCreate): readonly string[] {
  const job = `job ${event.jobId}`;
  return event.key === undefined ? [job] : [`key ${event.key.hash}`, job];
}

function leave({ create }: Held, left: Set<string>): void {
  for (const name of namesOf(create)) left.add(name);
}

/** Rows in as few groups as keep the order of each key, and blockers before those who wait for them. */
function wavesOf(held: readonly Held[]): readonly (readonly Held[])[] {
  const waves: Held[][] = [];
  const last = new Map<string, number>();
  for (const each of held) {
    const before = dependencies(each.create).map((name) => last.get(name) ?? -1);
    const wave = Math.max(-1, ...before) + 1;
    for (const name of namesOf(each.create)) last.set(name, wave);
    const group = waves[wave];
    if (group === undefined) waves[wave] = [each];
    else group.push(each);
  }
  return waves;
}
