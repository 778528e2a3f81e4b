/**
 * What a server tells Prometheus: counters and durations of the whole cluster from the feed, gauges from the read model,
 * and the health of this process and of its side of the store.
 */
import { collectDefaultMetrics, Registry } from "prom-client";
import { type Clock, systemClock } from "../../engine/clock.js";
import type { Engine } from "../../engine/engine.js";
import { type Logger, silentLogger } from "../../engine/logger.js";
import { type Catalog, createCatalog } from "./catalog.js";
import { FeedCounts } from "./feed-counts.js";
import { FeedReader } from "./feed-reader.js";
import { LabelLimit } from "./label-limit.js";
import { StoreGauges } from "./store-gauges.js";

/** What metrics are made of. */
export interface MetricsOptions {
  /** The store that is watched; whoever opened it closes it. */
  readonly engine: Engine;
  /** Reads the feed in place of the engine, where a server follows it once for all who want it. */
  readonly follow?: Engine["tail"];
  readonly clock?: Clock;
  readonly logger?: Logger;
}

/** A request that was answered. `route` is the pattern, such as `/v1/jobs/:id`, never the path. */
export interface ObservedRequest {
  readonly method: string;
  readonly route: string;
  readonly status: number;
  readonly durationMs: number;
}

/**
 * The metrics of one server. Every server of a cluster counts all of its jobs, so that one of them is looked at, or the
 * largest number of all.
 *
 * @example
 * const metrics = new Metrics({ engine });
 * await metrics.start();
 * const text = await metrics.text();
 */
export class Metrics {
  readonly #registry = new Registry();
  readonly #catalog: Catalog = createCatalog(this.#registry);
  readonly #routes = new LabelLimit("method", "route");
  /** How many requests of each route were answered with each status, until somebody asks: counting here costs less. */
  readonly #answered = new Map<Record<"method" | "route", string>, Map<number, number>>();
  readonly #reader: FeedReader;
  readonly #gauges: StoreGauges;
  /** How old the newest event was when it was counted. */
  #delayMs = 0;

  constructor(options: MetricsOptions) {
    const { engine, clock = systemClock, logger = silentLogger } = options;
    collectDefaultMetrics({ register: this.#registry, prefix: "millrace_" });
    const types = new LabelLimit("service", "type");
    const queues = new LabelLimit("service", "queue");
    const counts = new FeedCounts(this.#catalog, types);
    this.#gauges = new StoreGauges({
      engine,
      clock,
      logger,
      catalog: this.#catalog,
      types,
      queues,
    });
    this.#reader = new FeedReader({
      engine,
      clock,
      logger,
      follow: options.follow ?? ((cursor, signal) => engine.tail(cursor, signal)),
      onItem: ({ event }) => {
        counts.count(event);
        this.#delayMs = Math.max(engine.now() - event.at, 0);
      },
    });
  }

  /** Counts from now on. */
  start(): Promise<void> {
    return this.#reader.start();
  }

  /** Counts no more. Idempotent. */
  stop(): Promise<void> {
    return this.#reader.stop();
  }

  /** The media type of the text. */
  get contentType(): string {
    return this.#registry.contentType;
  }

  /** All metrics as Prometheus reads them. Answers also while the store does not. */
  async text(): Promise<string> {
    this.#catalog.feedDelay.set(this.#delayMs / 1_000);
    this.#countAnswered();
    await this.#gauges.refresh();
    return this.#registry.metrics();
  }

  /** Counts a request that was answered. */
  observeRequest({ method, route, status, durationMs }: ObservedRequest): void {
    const labels = this.#routes.of(method, route);
    const counts = this.#answered.get(labels) ?? new Map<number, number>();
    if (counts.size === 0) this.#answered.set(labels, counts);
    counts.set(status, (counts.get(status) ?? 0) + 1);
    this.#catalog.requestDuration.observe(labels, durationMs / 1_000);
  }

  /** Adds what was answered since the last time. */
  #countAnswered(): void {
    for (const [labels, counts] of this.#answered)
      for (const [status, count] of counts)
        this.#catalog.requests.inc({ ...labels, status: String(status) }, count);
    this.#answered.clear();
  }
}
