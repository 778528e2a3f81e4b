/**
 * The announcer of a NATS deployment: publishes every lifecycle event as a CloudEvent under
 * `<prefix>.events.<service>.<type>.<event>`, for whoever happens to listen. The messages inform: they are stored nowhere,
 * and none is sent again. One admin runtime leads, so that each is published once.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { systemIds } from "../client/ids.js";
import type { Runtime } from "../client/runtime.js";
import { cloudEvent } from "../core/cloud-event.js";
import type { Clock } from "../engine/clock.js";
import type { Engine } from "../engine/engine.js";
import type { Logger } from "../engine/logger.js";
import { Subjects } from "../engine/nats/subjects.js";
import { recordId } from "../engine/record.js";
import { followFeed } from "../keeper/follow-feed.js";
import { keeperDefaults } from "../keeper/keeper.js";
import { Leadership } from "../keeper/leadership.js";

/** The length of the name of an instance that was given none. */
const instanceBytes = 6;

/** What an announcer is made of. */
export interface AnnouncerOptions {
  readonly connection: NatsConnection;
  readonly engine: Engine;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly prefix: string;
  readonly instance?: string;
}

/** Publishes lifecycle events while it leads. */
export class Announcer {
  readonly #options: AnnouncerOptions;
  readonly #subjects: Subjects;
  readonly #leadership: Leadership;
  #stop = new AbortController();
  /** Where the feed ended when this process began to lead. */
  #begin: Promise<string | null> = Promise.resolve(null);
  #following: Promise<void> = Promise.resolve();
  #isStopped = false;

  constructor(options: AnnouncerOptions) {
    this.#options = options;
    this.#subjects = new Subjects(options.prefix);
    const { engine, clock, logger, instance = systemIds.randomHex(instanceBytes) } = options;
    const runtime: Runtime = { engine, clock, logger, ids: systemIds, instance, service: "_admin" };
    this.#leadership = new Leadership({
      runtime,
      ttlMs: keeperDefaults.ttlMs,
      renewMs: keeperDefaults.renewMs,
      record: recordId.announcer,
      does: "announces events",
      onGained: () => this.#gained(),
    });
  }

  /** Stands as a candidate. If it leads at once, everything is announced that happens after this has resolved. */
  async start(): Promise<void> {
    await this.#leadership.start();
    await this.#begin;
  }

  /** Publishes no more and steps down. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#stop.abort();
    await this.#following;
    await this.#leadership.stop();
  }

  /** Begins anew, because what it followed before may have ended when it lost the lead. */
  #gained(): void {
    if (this.#isStopped) return;
    this.#stop.abort();
    this.#stop = new AbortController();
    const { signal } = this.#stop;
    this.#begin = this.#options.engine.head().catch(() => null);
    this.#following = Promise.all([this.#begin, this.#following]).then(([begin]) => {
      return this.#follow(signal, begin);
    });
  }

  #follow(signal: AbortSignal, begin: string | null): Promise<void> {
    const { engine, logger } = this.#options;
    return followFeed({
      runtime: this.#options,
      signal,
      from: async () => begin ?? engine.head(),
      take: ({ event }) => {
        if (this.#leadership.isHeld) this.#publish(event);
        else this.#stop.abort();
      },
      onFault: (error) =>
        logger.warn({ error }, "Events could not be announced; it is tried again."),
    });
  }

  #publish(event: Parameters<typeof cloudEvent>[0]): void {
    const { connection } = this.#options;
    if (connection.isClosed() || connection.isDraining()) return;
    const body = JSON.stringify(cloudEvent(event, { includePayloads: false }));
    connection.publish(this.#subjects.announcement(event), body);
  }
}
