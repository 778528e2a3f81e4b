/**
 * The connection of creates, kept aside for the next ones. Whoever creates one job after the other would take it out of the pool and
 * put it back each time, and a pool sets timers and calls listeners for that. As long as answers come soon, one statement follows
 * the other on it without waiting: two sessions that append to the same indexes get in each other's way.
 */
import type { Pool, PoolClient } from "pg";

/** How long a connection is kept that no create has used. The pool has it then, and closes it when nobody needs it. */
const keptMs = 1_000;

/** Answers that come within this time are waited for. Where a disk or a network is slower, two connections wait at once. */
const soonMs = 4;

/** What the driver's types do not tell: whether an open connection keeps the process alive. */
type Held = PoolClient & { ref?(): void; unref?(): void };

export class CreateConnection {
  readonly #pool: Pool;
  readonly #max: number;
  #client: Held | undefined;
  /** How many statements are under way on it. */
  #users = 0;
  #isSoon = true;
  #wasUsed = false;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;
  /** Those that broke, each of which is released once. */
  readonly #lost = new WeakSet<PoolClient>();

  /** `max` is how many connections the pool may have. */
  constructor(pool: Pool, max: number) {
    this.#pool = pool;
    this.#max = max;
  }

  /** Whether a connection is kept that nobody uses. */
  get isFree(): boolean {
    return this.#client !== undefined && this.#users === 0;
  }

  /** Takes the connection: if it is free, or if whoever uses it will soon be done. */
  take(): PoolClient | undefined {
    const client = this.#client;
    if (client === undefined || (this.#users > 0 && !this.#isSoon)) return undefined;
    if (this.#users === 0) client.ref?.();
    this.#users += 1;
    return client;
  }

  /** A connection of the pool's is used for a create, and is kept from now on if there is no other. */
  adopt(client: PoolClient): PoolClient {
    if (this.#client === undefined && !this.#isClosed) {
      this.#client = client;
      this.#users = 1;
    }
    return client;
  }

  /** What was sent on a connection at a time of the monotonic clock has been answered. */
  done(client: PoolClient, since: number): void {
    if (client !== this.#client) {
      if (!this.#lost.has(client)) client.release();
      return;
    }
    this.#isSoon = performance.now() - since < soonMs;
    this.#users -= 1;
    if (this.#users > 0) return;
    if (this.#isClosed || this.#pool.waitingCount > 0) {
      this.#giveBack();
      return;
    }
    this.#client.unref?.();
    this.#wasUsed = true;
    this.#timer ??= setTimeout(this.#look, keptMs).unref();
  }

  /** What was sent on a connection failed with it. */
  lose(client: PoolClient, error: Error): void {
    if (this.#lost.has(client)) return;
    this.#lost.add(client);
    if (client === this.#client) this.#client = undefined;
    client.release(error);
  }

  /** A connection broke. Those that are used are lost by whoever uses them. */
  broke(client: PoolClient, error: Error): void {
    if (client === this.#client && this.#users === 0) this.lose(client, error);
  }

  /** Somebody asks the pool for a connection, which may have no other left. */
  makeRoom(): void {
    const { totalCount, idleCount } = this.#pool;
    if (this.isFree && idleCount === 0 && totalCount >= this.#max) this.#giveBack();
  }

  /** Keeps none any more. */
  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    if (this.isFree) this.#giveBack();
  }

  /** One timer at a time looks whether the connection has been used: one for each create would cost more than the pool. */
  readonly #look = () => {
    this.#timer = undefined;
    if (!this.isFree) return;
    if (!this.#wasUsed) this.#giveBack();
    else this.#timer = setTimeout(this.#look, keptMs).unref();
    this.#wasUsed = false;
  };

  #giveBack(): void {
    const client = this.#client;
    this.#client = undefined;
    client?.ref?.();
    client?.release();
  }
}
