/**
 * A worker's presence: a record that says which process runs what, for people to look at.
 * Nothing depends on it for correctness; leases do that.
 */
import { hostname } from "node:os";
import { presenceFreshMs, type WorkerPresence } from "../client/presence.js";
import type { Runtime } from "../client/runtime.js";
import type { Json } from "../core/json.js";
import { recordId, type SwapOutcome } from "../engine/record.js";
import type { Lanes } from "./lanes.js";

/** How often a worker says that it is there. */
const presenceIntervalMs = 30_000;

/** How often a write is tried when another process writes under the same name. */
const writesMax = 3;

/** What a presence is made of. */
export interface PresenceOptions {
  readonly runtime: Runtime;
  readonly lanes: Lanes;
  /** How many jobs of all types the worker runs at once. */
  readonly concurrency: () => number;
  readonly packageVersion: string;
}

export class Presence {
  readonly #options: PresenceOptions;
  readonly #id: string;
  #startedAt = 0;
  #version = 0;
  #isStopped = false;
  #callOff: (() => void) | undefined;
  #writing: Promise<void> = Promise.resolve();

  constructor(options: PresenceOptions) {
    this.#options = options;
    this.#id = recordId.worker(options.runtime.service, options.runtime.instance);
  }

  /** Announces the worker and keeps doing so. */
  async start(): Promise<void> {
    this.#startedAt = this.#options.runtime.engine.now();
    await this.#announce();
  }

  /** Says at once what has changed. */
  async renew(): Promise<void> {
    await this.#writing;
    this.#callOff?.();
    if (!this.#isStopped) await this.#announce();
  }

  /** Takes the record away. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#callOff?.();
    await this.#writing;
    if (this.#version > 0) await this.#write(null);
  }

  #announce(): Promise<void> {
    this.#writing = this.#write(this.#body());
    if (!this.#isStopped) {
      this.#callOff = this.#options.runtime.clock.after(presenceIntervalMs, () => {
        void this.#announce();
      });
    }
    return this.#writing;
  }

  /** A worker works without its presence, so that a fault here is only told. */
  async #write(body: Json | null): Promise<void> {
    const { logger } = this.#options.runtime;
    try {
      for (let writes = 0; writes < writesMax; writes++) {
        const outcome = await this.#swap(body);
        if (outcome?.swapped) {
          this.#version = outcome.version;
          return;
        }
        if (body === null) return;
        if (this.#version > 0 && outcome?.current) {
          const fields = { id: this.#id, found: outcome.current.body };
          logger.warn(fields, "Another worker announces itself under the same instance name.");
        }
        this.#version = outcome?.current?.version ?? 0;
      }
    } catch (error) {
      logger.warn({ error }, "The worker's presence could not be recorded.");
    }
  }

  async #swap(body: Json | null): Promise<SwapOutcome | undefined> {
    const { engine } = this.#options.runtime;
    const write = { id: this.#id, expect: this.#version, body };
    const expiresAt = engine.now() + presenceFreshMs;
    const [outcome] = await engine.swap([body === null ? write : { ...write, expiresAt }]);
    return outcome;
  }

  #body(): Json {
    const { runtime, lanes, concurrency, packageVersion } = this.#options;
    return {
      service: runtime.service,
      instance: runtime.instance,
      version: packageVersion,
      startedAt: this.#startedAt,
      heartbeatAt: runtime.engine.now(),
      concurrency: concurrency(),
      types: [...lanes].map((lane) => ({
        type: lane.bound.type,
        version: lane.settings.version,
        concurrency: lane.settings.concurrency,
        active: lane.running,
      })),
      host: hostname(),
      pid: process.pid,
    } satisfies WorkerPresence;
  }
}
