/**
 * Gauges from the read model, read when somebody asks, and not again for a while: a storm of scrapes costs one reading.
 * What cannot be read is left out, so that no old number is taken for a new one.
 */
import type { Gauge } from "prom-client";
import { type WorkerRow, workerRows } from "../../client/presence.js";
import type { Clock } from "../../engine/clock.js";
import type { Engine, EngineHealth } from "../../engine/engine.js";
import type { Logger } from "../../engine/logger.js";
import type { KeyCount, StateCount } from "../../engine/query.js";
import { type QueueSettings, recordId } from "../../engine/record.js";
import type { Catalog } from "./catalog.js";
import type { LabelLimit } from "./label-limit.js";

/** How long a reading serves. */
export const freshMs = 5_000;

/** How long a scrape waits for the store; those who scrape give up after some ten seconds. */
const patienceMs = 5_000;

/** The most queues with settings that are looked at. */
const queuesMax = 1_000;

/** What gauges are read with. */
export interface StoreGaugesOptions {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly catalog: Catalog;
  readonly types: LabelLimit<"service", "type">;
  readonly queues: LabelLimit<"service", "queue">;
}

/** What the store says of itself at one time. */
interface Reading {
  readonly counts: readonly StateCount[];
  readonly keys: readonly KeyCount[];
  readonly workers: readonly WorkerRow[];
  readonly paused: readonly string[];
  readonly lag: number | null;
}

/** Keeps the gauges of the store up to date, as far as anybody looks. */
export class StoreGauges {
  readonly #options: StoreGaugesOptions;
  #readAt = Number.NEGATIVE_INFINITY;
  #reading: Promise<void> | null = null;
  #isFailing = false;

  constructor(options: StoreGaugesOptions) {
    this.#options = options;
  }

  /** Reads the store, unless that was done a moment ago or is being done. Never rejects. */
  refresh(): Promise<void> {
    this.#health();
    const { clock } = this.#options;
    if (this.#reading === null && clock.monotonic() - this.#readAt < freshMs)
      return Promise.resolve();
    this.#reading ??= this.#read().finally(() => {
      this.#reading = null;
    });
    return this.#reading;
  }

  async #read(): Promise<void> {
    const { clock, catalog, logger } = this.#options;
    this.#readAt = clock.monotonic();
    let callOff = () => {};
    const tooLong = new Promise<never>((_, reject) => {
      const late = () => reject(new Error(`The store did not answer within ${patienceMs} ms.`));
      callOff = clock.after(patienceMs, late);
    });
    try {
      this.#show(await Promise.race([this.#ask(), tooLong]));
      catalog.storeUp.set(1);
      this.#isFailing = false;
    } catch (error) {
      this.#clear();
      catalog.storeUp.set(0);
      if (!this.#isFailing) logger.warn({ error }, "The store could not be read for metrics.");
      this.#isFailing = true;
    } finally {
      callOff();
    }
  }

  async #ask(): Promise<Reading> {
    const { engine } = this.#options;
    const [counts, keys, workers, queues, view] = await Promise.all([
      engine.query("counts", {}),
      engine.query("keyCounts", {}),
      workerRows(engine),
      engine.query("records", { prefix: recordId.queues, limit: queuesMax }),
      engine.viewStatus?.(),
    ]);
    const paused = queues.flatMap(({ id, body }) => {
      const [, service = ""] = id.split("/");
      return (body as unknown as QueueSettings).paused ? [service] : [];
    });
    return { counts, keys, workers, paused, lag: view?.lag ?? null };
  }

  #show({ counts, keys, workers, paused, lag }: Reading): void {
    const { catalog, types, queues } = this.#options;
    this.#clear();
    for (const { service, queue, state, count } of counts)
      catalog.jobs.inc({ ...queues.of(service, queue), state }, count);
    for (const { service, type, waiting, blocked } of keys) {
      catalog.keyJobsWaiting.inc(types.of(service, type), waiting);
      catalog.keysBlocked.inc(types.of(service, type), blocked);
    }
    for (const { service, concurrency, fresh } of workers) {
      if (!fresh) continue;
      catalog.workers.inc({ service });
      catalog.workerPlaces.inc({ service }, concurrency);
    }
    for (const service of paused) catalog.queuesPaused.inc({ service });
    if (lag !== null) catalog.projectionLag.set(lag);
  }

  #clear(): void {
    const {
      jobs,
      keyJobsWaiting,
      keysBlocked,
      workers,
      workerPlaces,
      queuesPaused,
      projectionLag,
    } = this.#options.catalog;
    for (const gauge of [jobs, keyJobsWaiting, keysBlocked, workers, workerPlaces, queuesPaused])
      gauge.reset();
    projectionLag.remove();
  }

  /** What this process's side of the store has to do is known at once. */
  #health(): void {
    const { catalog, engine } = this.#options;
    const health: EngineHealth = engine.health?.() ?? {};
    showIfKnown(catalog.storeConnectionsOpen, health.connectionsOpen);
    showIfKnown(catalog.storeConnectionsUsed, health.connectionsUsed);
    showIfKnown(catalog.storeConnectionsWaitedFor, health.connectionsWaitedFor);
    showIfKnown(catalog.storeWritesQueued, health.writesQueued);
    showIfKnown(catalog.storeReadsQueued, health.readsQueued);
  }
}

function showIfKnown(gauge: Gauge, value: number | undefined): void {
  if (value === undefined) gauge.remove();
  else gauge.set(value);
}
