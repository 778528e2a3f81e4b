/**
 * The presence of workers that speak HTTP: a record, as other workers keep, written when they ask for work.
 */
import { presenceFreshMs, type WorkerPresence } from "../../client/presence.js";
import type { Json } from "../../core/json.js";
import type { Clock } from "../../engine/clock.js";
import type { Engine } from "../../engine/engine.js";
import type { Logger } from "../../engine/logger.js";
import { recordId } from "../../engine/record.js";

/** How often the record of one worker is written. */
const intervalMs = 30_000;

/** How many workers are remembered; beyond that a record is written more often. */
const workersMax = 10_000;

/** What a worker says of itself when it asks for work. */
export interface WorkerAtWork {
  readonly service: string;
  readonly instance: string;
  readonly agent?: string;
  readonly types: readonly {
    readonly type: string;
    readonly version: number;
    readonly limit: number;
  }[];
}

/** What presences are written with. */
export interface WorkPresenceParts {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The version of Millrace. */
  readonly version: string;
}

/** Keeps the presence of workers that ask for work. */
export class WorkPresence {
  readonly #parts: WorkPresenceParts;
  readonly #written = new Map<string, number>();

  constructor(parts: WorkPresenceParts) {
    this.#parts = parts;
  }

  /** Notes that a worker is there. A fault is only told: work goes on without it. */
  async note(worker: WorkerAtWork): Promise<void> {
    const { engine, clock, logger, version } = this.#parts;
    const { service, instance, agent, types } = worker;
    const id = recordId.worker(service, instance);
    const now = clock.monotonic();
    const written = this.#written.get(id);
    if (written !== undefined && now - written < intervalMs) return;
    if (this.#written.size >= workersMax) this.#written.clear();
    this.#written.set(id, now);
    try {
      const [record] = await engine.records([id]);
      const before = record?.body as unknown as WorkerPresence | undefined;
      const heartbeatAt = engine.now();
      const body = {
        ...{ service, instance, version, heartbeatAt, ...(agent === undefined ? null : { agent }) },
        startedAt: before?.startedAt ?? heartbeatAt,
        concurrency: types.reduce((sum, { limit }) => sum + limit, 0),
        types: types.map(({ type, version: of, limit }) => {
          return { type, version: of, concurrency: limit, active: 0 };
        }),
        ...{ host: "http", pid: 0 },
      };
      const expiresAt = heartbeatAt + presenceFreshMs;
      const expect = record?.version ?? 0;
      await engine.swap([{ id, expect, body: body as unknown as Json, expiresAt }]);
    } catch (error) {
      logger.warn({ error, instance }, "The presence of a worker could not be recorded.");
    }
  }
}
