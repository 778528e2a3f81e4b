// Prometheus metrics against what really happened, on stores that keep a feed of their own kind.
import { connect, defineJob, defineService, snooze, terminate } from "millrace";
import { describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import type { Engine } from "#millrace/engine/engine.js";
import { Metrics } from "#millrace/server/metrics/metrics.js";
import { freshStoreUrl } from "../../support/nats.js";
import { freshSchema } from "../../support/postgres.js";
import { type Store, stores } from "../../support/stores.js";
import { expectSums, type Family, parse, sum } from "./exposition.js";

const shop = defineService("shop", {
  order: defineJob({
    payload: z.object({ does: z.enum(["work", "fail once", "fail", "terminate", "snooze"]) }),
    retry: { maxTries: 2, backoff: () => 1 },
  }),
  mail: defineJob({
    payload: z.object({}),
    queue: { name: "post", maxQueuedPerKey: 10 },
    keyConcurrency: { key: ["all"] },
  }),
  ping: defineJob({ payload: z.object({}), retention: { completed: 0 } }),
});

const onPostgres: Store = {
  name: "postgres",
  freshUrl: async () => (await freshSchema()).storeUrl,
};
const onNats: Store = { name: "nats", freshUrl: freshStoreUrl };
const metricStores = [...stores, onPostgres, onNats];

/** How often the text is read until the feed has told everything. */
const readingsMax = 10_000;

/** Reads metrics until one of them has come to a number. Each reading waits for an answer of the store. */
async function readUntil(metrics: Metrics, engine: Engine, name: string, value: number) {
  for (let readings = 0; readings < readingsMax; readings++) {
    const families = parse(await metrics.text());
    if ((sum(families, name) ?? 0) >= value) return families;
    await engine.head();
    await new Promise<void>((resolve) => setImmediate(resolve));
  }
  throw new Error(`${name} never came to ${value}:\n${await metrics.text()}`);
}

async function watch(engine: Engine): Promise<Metrics> {
  const metrics = new Metrics({ engine });
  await metrics.start();
  onTestFinished(() => metrics.stop());
  return metrics;
}

describe.each(metricStores)("on $name", ({ freshUrl }) => {
  test("counters and histograms tell what became of jobs", async () => {
    const service = await connect(shop, { url: await freshUrl() });
    onTestFinished(() => service.stop());
    await service.jobs.order.create({ does: "work" }, { id: "before" }).orThrow();
    const metrics = await watch(service.engine);
    const snoozed = new Set<string>();
    service.jobs.order.handle(async ({ id, tries, payload: { does } }) => {
      if (does === "fail" || (does === "fail once" && tries === 1)) throw new Error("no");
      if (does === "terminate") throw terminate("never");
      if (does === "snooze" && !snoozed.has(id)) {
        snoozed.add(id);
        throw snooze(1);
      }
    });
    service.jobs.mail.handle(async () => {});
    service.jobs.ping.handle(async () => {});
    await service.start();
    const kinds = ["work", "work", "fail once", "fail", "terminate", "snooze"] as const;
    await Promise.all([
      ...kinds.map((does) => service.jobs.order.run({ does })),
      ...Array.from({ length: 3 }, () => service.jobs.mail.run({})),
      service.ref("before").wait(),
    ]);
    const pinged = await service.jobs.ping.create({}).orThrow();
    await pinged.wait();
    const cancelled = await service.jobs.order.create({ does: "work" }, { delayMs: 60_000 });
    if (cancelled.isOk()) await cancelled.value.cancel();

    const families = await readUntil(metrics, service.engine, "millrace_jobs_ended_total", 12);
    const type = 'type="order"';
    expectSums(families, {
      [`millrace_jobs_created_total{service="shop",${type}}`]: 7,
      [`millrace_jobs_ended_total{${type},state="completed"}`]: 5,
      [`millrace_jobs_ended_total{${type},state="dead"}`]: 1,
      [`millrace_jobs_ended_total{${type},state="failed"}`]: 1,
      [`millrace_jobs_ended_total{${type},state="cancelled"}`]: 1,
      [`millrace_retries_total{${type},reason="error"}`]: 2,
      [`millrace_tries_started_total{${type}}`]: 10,
      [`millrace_try_duration_seconds_count{${type},outcome="completed"}`]: 5,
      [`millrace_try_duration_seconds_count{${type},outcome="retry"}`]: 2,
      [`millrace_try_duration_seconds_count{${type},outcome="released"}`]: 1,
      [`millrace_try_duration_seconds_count{${type},outcome="dead"}`]: 1,
      [`millrace_try_duration_seconds_count{${type},outcome="cancelled"}`]: undefined,
      // The wait of the job that was there before the server is not known.
      [`millrace_job_wait_seconds_count{${type}}`]: 9,
      [`millrace_key_wait_seconds_count{${type}}`]: undefined,
      'millrace_key_wait_seconds_count{type="mail"}': 3,
      'millrace_jobs_ended_total{type="mail",state="completed"}': 3,
      'millrace_jobs_created_total{type="ping"}': 1,
      'millrace_jobs_ended_total{type="ping",state="completed"}': 1,
      millrace_leases_lapsed_total: undefined,
      millrace_jobs_untracked_total: 0,
    });
    expect(sum(families, "millrace_try_duration_seconds_sum", { type: "order" })).toBeLessThan(30);
  });

  test("gauges tell what is in the store, who works and what is paused", async () => {
    const service = await connect(shop, { url: await freshUrl(), concurrency: 7 });
    onTestFinished(() => service.stop());
    const metrics = await watch(service.engine);
    service.jobs.ping.handle(async () => {});
    await service.start();
    await service.jobs.order.createMany([
      { payload: { does: "work" } },
      { payload: { does: "work" }, delayMs: 60_000 },
    ]);
    for (let n = 0; n < 3; n++) await service.jobs.mail.create({}).orThrow();
    await service.queues.pause("post").orThrow();

    const families = parse(await metrics.text());
    expectSums(families, {
      'millrace_jobs{service="shop",queue="order",state="pending"}': 2,
      'millrace_jobs{service="shop",queue="post",state="pending"}': 3,
      'millrace_jobs{state="active"}': undefined,
      'millrace_workers{service="shop"}': 1,
      'millrace_worker_places{service="shop"}': 7,
      'millrace_queues_paused{service="shop"}': 1,
      'millrace_key_jobs_waiting{service="shop",type="mail"}': 2,
      'millrace_keys_blocked{service="shop",type="mail"}': 0,
      millrace_store_up: 1,
    });
  });
});

test.each(metricStores)(
  "the health of the store's own side is told as $name has it",
  async (store) => {
    const service = await connect(shop, { url: await store.freshUrl() });
    onTestFinished(() => service.stop());
    const metrics = await watch(service.engine);
    const families = parse(await metrics.text());
    const told = [...families.values()]
      .filter(({ name, samples }) => /_store_|_projection_/.test(name) && samples.length > 0)
      .map(({ name }) => name);
    const expected: Readonly<Record<string, readonly string[]>> = {
      memory: [],
      sqlite: ["millrace_store_reads_queued", "millrace_store_writes_queued"],
      postgres: [
        "millrace_store_connections_open",
        "millrace_store_connections_used",
        "millrace_store_connections_waited_for",
        "millrace_store_writes_queued",
      ],
      nats: ["millrace_projection_lag_events", "millrace_store_writes_queued"],
    };
    expect(told.sort()).toEqual([...(expected[store.name] ?? []), "millrace_store_up"].sort());
  },
);

test("the text is of the format, in base units, with few labels and only our names", async () => {
  const service = await connect(shop, { url: "memory:" });
  onTestFinished(() => service.stop());
  const metrics = await watch(service.engine);
  metrics.observeRequest({ method: "GET", route: "/v1/jobs/:id", status: 200, durationMs: 20 });
  await service.jobs.mail.create({}, { id: "job-1" }).orThrow();
  const families = await readUntil(metrics, service.engine, "millrace_jobs_created_total", 1);

  expect(metrics.contentType).toContain("text/plain");
  const all = [...families.values()];
  expect(all.filter(({ name }) => !name.startsWith("millrace_"))).toEqual([]);
  expect(all.filter(({ help }) => help === "")).toEqual([]);
  const counters = all.filter(({ type }) => type === "counter");
  expect(counters.filter(({ name }) => !name.endsWith("_total"))).toEqual([]);
  const histograms = all.filter(({ type }) => type === "histogram");
  expect(histograms.filter(({ name }) => !name.endsWith("_seconds"))).toEqual([]);
  expect(all.filter(({ name }) => /_(ms|milliseconds|kb|percent)(_|$)/.test(name))).toEqual([]);
  const values = all.flatMap(({ samples }) =>
    samples.flatMap(({ labels }) => Object.values(labels)),
  );
  expect(values.filter((value) => value.includes("job-1"))).toEqual([]);
  expectSums(families, {
    'millrace_http_requests_total{method="GET",route="/v1/jobs/:id",status="200"}': 1,
    'millrace_http_request_duration_seconds_sum{route="/v1/jobs/:id"}': 0.02,
  });
  const lag = families.get("millrace_nodejs_eventloop_lag_seconds") as Family;
  expect(lag.samples).toHaveLength(1);
});
