/**
 * The connection of creates. As long as answers come soon, one statement follows the other on it without waiting: two sessions that
 * append to the same indexes get in each other's way.
 */
import type { PoolClient } from "pg";
import type { Connections } from "./connections.js";

/** Answers that come within this time are waited for. Where a disk or a network is slower, two connections wait at once. */
const soonMs = 4;

export class CreateConnection {
  readonly #connections: Connections;
  /** The one that is shared, and how many statements are under way on it. */
  #client: PoolClient | undefined;
  #users = 0;
  #isSoon = true;
  /** Those that broke while they were shared, each of which is given back once. */
  readonly #lost = new WeakSet<PoolClient>();

  constructor(connections: Connections) {
    this.#connections = connections;
  }

  /** The connection that others use, if they will soon be done and nobody waits for one, or another. */
  take(): PoolClient | Promise<PoolClient> {
    if (this.#client !== undefined && this.#isSoon && this.#connections.load.waitedFor === 0) {
      this.#users += 1;
      return this.#client;
    }
    const taken = this.#connections.take("create");
    return taken instanceof Promise
      ? taken.then((client) => this.#share(client))
      : this.#share(taken);
  }

  /** What was sent on a connection at a time of the monotonic clock has been answered, or has failed with it. */
  done(client: PoolClient, since: number, lost?: Error): void {
    if (this.#lost.has(client)) return;
    if (client === this.#client) {
      this.#isSoon = performance.now() - since < soonMs;
      this.#users -= 1;
      if (this.#users > 0 && lost === undefined) return;
      if (this.#users > 0) this.#lost.add(client);
      this.#client = undefined;
    }
    this.#connections.giveBack(client, "create", lost);
  }

  #share(client: PoolClient): PoolClient {
    if (this.#client !== undefined) return client;
    this.#client = client;
    this.#users = 1;
    return client;
  }
}
