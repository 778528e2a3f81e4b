/**
 * The admin runtime of a NATS deployment: it keeps the projection up to date, announces events, answers the admin calls, and
 * removes what deleted jobs have left behind. Services do without it: while none runs, jobs go on, and views catch up later.
 */
import { readByAll } from "../client/webhooks/stored-webhook.js";
import { type Clock, systemClock } from "../engine/clock.js";
import type { Engine } from "../engine/engine.js";
import { type Logger, silentLogger } from "../engine/logger.js";
import { addressOf } from "../engine/nats/address.js";
import { openConnection } from "../engine/nats/connection.js";
import type { NatsEngine } from "../engine/nats/engine.js";
import { loadNats } from "../engine/nats/libraries.js";
import { openNats } from "../engine/nats/open.js";
import type { ProjectionStatus } from "../engine/projection/projection.js";
import { Announcer } from "./announcer.js";
import { type LookOptions, looked } from "./health.js";
import { JobsServer } from "./jobs-server.js";
import type { HealthCheck } from "./wire.js";

/** How often it looks at the projection and for what is to be removed, and how long the mark of a deleted job stays. */
const roundMs = 10_000;
const tombstoneMs = 7 * 24 * 60 * 60 * 1_000;

/**
 * How long the projection may lie behind a position of the log and count as well. It rests for 10 s while many jobs are run,
 * whatever number of events that is, and then has to apply them; questions give up after 30 s.
 */
const behindMaxMs = 30_000;

/** How long a look at the projection may take. */
const projectionLookMs = 3_000;

/** What an admin runtime is started with. */
export interface AdminOptions {
  readonly clock?: Clock;
  readonly logger?: Logger;
  /** The name of this process among those that serve. */
  readonly instance?: string;
}

/** An admin runtime that was started. */
export interface AdminRuntime {
  /** The engine that it reads and writes with. */
  readonly engine: Engine;
  /** Where the projection stands, how far behind the log, and whether this process brings it up to date. */
  projection(): Promise<ProjectionStatus>;
  /** Makes the projection anew from the log, also while jobs run. Resolves when it is there again. */
  rebuild(): Promise<void>;
  /** Takes no more calls, answers those that it has, and lets go of the server. Idempotent. */
  stop(): Promise<void>;
}

/**
 * Starts an admin runtime. Several of them share the calls, and one database of theirs one projection.
 *
 * @example
 * const admin = await startAdmin("nats://admin:secret@localhost:4222?projection=file:/var/lib/millrace/jobs.sqlite");
 */
export async function startAdmin(url: string, options: AdminOptions = {}): Promise<AdminRuntime> {
  const { clock = systemClock, logger = silentLogger, instance } = options;
  const address = addressOf(url);
  /** What has to be let go of, the newest first. */
  const releases: (() => Promise<unknown>)[] = [];
  let stopped: Promise<void> | null = null;
  const stop = () => {
    stopped ??= releaseAll(releases);
    return stopped;
  };
  try {
    const engine = await openNats(url, { clock, logger });
    releases.unshift(() => engine.close());
    const nats = await loadNats(address.where);
    const connection = await openConnection(nats, address, { name: "millrace admin" });
    releases.unshift(() => connection.close());
    const parts = {
      ...{ connection, engine, clock, logger, prefix: address.prefix },
      ...(instance !== undefined && { instance }),
    };
    const watch = new ViewWatch(engine, clock);
    await watch.look();
    const server = new JobsServer({
      ...parts,
      checks: () => projectionChecks(watch, { clock, logger }),
    });
    releases.unshift(() => server.stop());
    await server.start();
    const announcer = new Announcer(parts);
    releases.unshift(() => announcer.stop());
    await announcer.start();
    const rounds = new Rounds(engine, watch, clock, logger);
    releases.unshift(() => rounds.stop());
    rounds.start();
    return {
      engine,
      projection: () => engine.viewStatus(),
      rebuild: () => engine.rebuildView(),
      stop,
    };
  } catch (error) {
    // What made the start fail is told, and not what fails because of it.
    await stop().catch(() => {});
    throw error;
  }
}

/** Lets go of everything, also where something fails at it; that is thrown in the end. */
async function releaseAll(releases: readonly (() => Promise<unknown>)[]): Promise<void> {
  const faults: unknown[] = [];
  for (const release of releases) await release().catch((fault) => faults.push(fault));
  if (faults.length > 0) throw faults[0];
}

/** Its time is shorter than that of the whole call, so that a projection that hangs is named. */
function projectionChecks(watch: ViewWatch, options: LookOptions) {
  const name = "projection";
  const look = async (): Promise<readonly HealthCheck[]> => {
    const { lag, behindMs } = await watch.look();
    const status = behindMs <= behindMaxMs ? "ok" : "failed";
    const since = behindMs > 0 ? `, and not caught up for ${Math.ceil(behindMs / 1_000)} s` : "";
    return [{ name, status, detail: `${lag} events behind the log${since}` }];
  };
  return looked(name, look, { ...options, limitMs: projectionLookMs });
}

/** How long the projection has not come to where the log was. It is looked at round after round, so that this is known at any time. */
class ViewWatch {
  readonly #engine: NatsEngine;
  readonly #clock: Clock;
  /** Where the log was at a time, and the projection was not. */
  #ahead: { readonly head: number; readonly at: number } | null = null;

  constructor(engine: NatsEngine, clock: Clock) {
    this.#engine = engine;
    this.#clock = clock;
  }

  async look(): Promise<{ readonly lag: number; readonly behindMs: number }> {
    const at = this.#clock.monotonic();
    const { position, lag } = await this.#engine.viewStatus();
    if (this.#ahead === null || position >= this.#ahead.head)
      this.#ahead = lag > 0 ? { head: position + lag, at } : null;
    return { lag, behindMs: this.#ahead === null ? 0 : at - this.#ahead.at };
  }
}

/** Removes what is old, round after round. */
class Rounds {
  readonly #engine: NatsEngine;
  readonly #watch: ViewWatch;
  readonly #clock: Clock;
  readonly #logger: Logger;
  #callOff = () => {};
  #isStopped = false;
  #round: Promise<void> = Promise.resolve();

  constructor(engine: NatsEngine, watch: ViewWatch, clock: Clock, logger: Logger) {
    this.#engine = engine;
    this.#watch = watch;
    this.#clock = clock;
    this.#logger = logger;
  }

  start(): void {
    if (this.#isStopped) return;
    this.#callOff = this.#clock.after(roundMs, () => {
      this.#round = this.#carryOut().finally(() => this.start());
    });
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#callOff();
    await this.#round;
  }

  async #carryOut(): Promise<void> {
    // Whoever asks how the projection is learns that it cannot be looked at.
    await this.#watch.look().catch(() => {});
    try {
      const readUntil = await readByAll(this.#engine);
      await this.#engine.prune(Math.min(this.#engine.now() - tombstoneMs, readUntil));
    } catch (error) {
      this.#logger.warn(
        { error },
        "What deleted jobs left behind could not be removed; it is tried again.",
      );
    }
  }
}
