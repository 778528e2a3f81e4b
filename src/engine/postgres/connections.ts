/**
 * The connections of one process. One of each purpose is kept at hand where nobody else needs it: a pool sets timers, calls
 * listeners and waits for a turn whenever a connection comes and goes.
 */
import type { Pool, PoolClient } from "pg";
import { keepAlive } from "./socket.js";

/** Calls whose statements take a server milliseconds to plan. Each session plans them anew. */
export type Purpose = "claim" | "create" | "end";

/** How long an unused connection is kept. */
export const idleTimeoutMs = 30_000;

/** A connection that is kept, and since when. */
interface Kept {
  readonly client: PoolClient;
  readonly since: number;
}

export class Connections {
  readonly #pool: Pool;
  readonly #max: number;
  /** What each connection has served first, if that was one of the purposes. */
  readonly #purposes = new WeakMap<PoolClient, Purpose>();
  readonly #kept = new Map<Purpose, Kept>();
  /** All that there are, and those of them that are not used again. */
  readonly #open = new Set<PoolClient>();
  readonly #broken = new WeakSet<PoolClient>();
  #sweep: NodeJS.Timeout | undefined;
  #isClosed = false;

  /** `max` is how many connections the pool makes. */
  constructor(pool: Pool, max: number) {
    this.#pool = pool;
    this.#max = max;
    pool.on("connect", (client) => {
      this.#open.add(client as PoolClient);
      client.on("error", (error) => this.#onBroken(client as PoolClient, error));
    });
    pool.on("remove", (client) => this.#open.delete(client as PoolClient));
    // One that the pool lent itself is not given back here.
    pool.on("release", (_, client) => {
      if (this.#broken.has(client as PoolClient)) process.nextTick(() => this.#dropBroken());
    });
  }

  /** All that there are. */
  get all(): Iterable<PoolClient> {
    return this.#open;
  }

  /** How many connections there are, are in use and are waited for. */
  get load(): { readonly open: number; readonly used: number; readonly waitedFor: number } {
    const { totalCount, idleCount, waitingCount } = this.#pool;
    const used = totalCount - idleCount - this.#kept.size;
    return { open: totalCount, used, waitedFor: waitingCount };
  }

  /**
   * A connection, at once if one is kept for the purpose. Otherwise one that has served it before, if one is free, and else one
   * that has served none.
   */
  take(purpose?: Purpose): PoolClient | Promise<PoolClient> {
    const kept = purpose && this.#kept.get(purpose);
    if (!kept) return this.#connect(purpose);
    this.#kept.delete(purpose);
    keepAlive(kept.client, true);
    return kept.client;
  }

  /** Gives a connection back. A broken one is not used again. */
  giveBack(client: PoolClient, purpose?: Purpose, lost?: Error): void {
    const isLost = lost !== undefined || this.#broken.has(client);
    const isWanted = this.#pool.waitingCount > 0 || this.#isClosed;
    if (purpose === undefined || this.#kept.has(purpose) || isLost || isWanted)
      client.release(lost ?? (isLost || undefined));
    else this.#keep(client, purpose);
  }

  /** Lets the pool give a connection that fits a purpose to whoever asks it next. */
  makeReady(purpose?: Purpose): void {
    const { idleCount, waitingCount, totalCount } = this.#pool;
    if (idleCount <= waitingCount && totalCount >= this.#max) this.#release();
    this.#giveNext(purpose);
  }

  /** Uses none of the connections again that there are. What is under way on them comes to its end. */
  replaceAll(): void {
    for (const client of this.#open) this.#broken.add(client);
    for (const [purpose, { client }] of this.#kept) {
      this.#kept.delete(purpose);
      client.release(true);
    }
    this.#dropBroken();
  }

  /** Waits for what is under way, then lets go of all connections. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#sweep);
    this.#release();
    await this.#pool.end();
  }

  async #connect(purpose: Purpose | undefined): Promise<PoolClient> {
    this.makeReady(purpose);
    const client = await this.#pool.connect();
    if (purpose !== undefined && !this.#purposes.has(client)) this.#purposes.set(client, purpose);
    return client;
  }

  /** Lets a pool that gives the connection which was freed last give the one that fits a purpose. */
  #giveNext(purpose: Purpose | undefined): void {
    const { _idle: idle } = this.#pool as unknown as { _idle?: { readonly client: PoolClient }[] };
    if (idle === undefined) return;
    const servedAs = (wanted: Purpose | undefined) =>
      idle.findLastIndex(({ client }) => this.#purposes.get(client) === wanted);
    let place = servedAs(purpose);
    if (place < 0) place = servedAs(undefined);
    if (place >= 0 && place < idle.length - 1) idle.push(...idle.splice(place, 1));
  }

  /** Keeps a connection, which keeps no process alive. */
  #keep(client: PoolClient, purpose: Purpose): void {
    keepAlive(client, false);
    this.#kept.set(purpose, { client, since: performance.now() });
    this.#sweep ??= setTimeout(() => this.#sweepUnused(), idleTimeoutMs).unref();
  }

  /** Gives the pool what nobody has used for long. It closes what stays unused. */
  #sweepUnused(): void {
    this.#sweep = undefined;
    const until = performance.now() - idleTimeoutMs;
    this.#release(({ since }) => since <= until);
    if (this.#kept.size > 0)
      this.#sweep = setTimeout(() => this.#sweepUnused(), idleTimeoutMs).unref();
  }

  /** Takes what rests in the pool out of it, and gives back what may be used again. */
  #dropBroken(): void {
    for (let idle = this.#isClosed ? 0 : this.#pool.idleCount; idle > 0; idle--)
      this.#pool.connect().then(
        (client) => client.release(this.#broken.has(client)),
        () => {},
      );
  }

  #release(isMeant: (kept: Kept) => boolean = () => true): void {
    for (const [purpose, kept] of this.#kept) {
      if (!isMeant(kept)) continue;
      this.#kept.delete(purpose);
      kept.client.release();
    }
  }

  /** One that breaks while it is kept is replaced when the next one is needed. One in use fails what it is used for. */
  #onBroken(client: PoolClient, error: Error): void {
    this.#broken.add(client);
    for (const [purpose, kept] of this.#kept) {
      if (kept.client !== client) continue;
      this.#kept.delete(purpose);
      client.release(error);
    }
  }
}
