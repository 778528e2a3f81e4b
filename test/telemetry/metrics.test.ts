// Metrics through a real SDK: names and units of the conventions, true counts, and nothing that names a single job.
import { connect, defineJob, defineService, snooze } from "millrace";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { openTelemetry } from "#millrace/client/open-telemetry/open.js";
import { openTelemetryTrace } from "#millrace/client/trace.js";
import { systemClock } from "#millrace/engine/clock.js";
import { type RecordedPoint, recordMetrics, recordSpans } from "./recording.js";

const shop = defineService("shop", {
  order: defineJob({ payload: z.object({ ok: z.boolean() }), retry: { maxTries: 1 } }),
  keyed: defineJob({ payload: z.object({}), keyConcurrency: { key: ["customer-7"] } }),
});

const find = (points: readonly RecordedPoint[], name: string, attributes: object = {}) =>
  points.filter(
    (point) =>
      point.name === name &&
      Object.entries(attributes).every(([key, value]) => point.attributes[key] === value),
  );

test("what is created, claimed, carried out and stored is counted by queue and type", async () => {
  const read = recordMetrics();
  const service = await connect(shop, { url: "memory:" });
  onTestFinished(() => service.stop());
  service.jobs.order.handle(async ({ payload }) => {
    if (!payload.ok) throw new RangeError("no");
  });
  service.jobs.keyed.handle(async () => snooze(60_000));
  await service.jobs.order.createMany([
    { payload: { ok: true } },
    { payload: { ok: true } },
    { payload: {} as { ok: boolean } },
  ]);
  await service.jobs.keyed.create({}).orThrow();
  await service.jobs.keyed.create({});
  await service.start();
  await service.jobs.order.run({ ok: false });
  await service.stop();
  const points = await read();

  const sent = (attributes: object) =>
    find(points, "messaging.client.sent.messages", attributes).map(({ value }) => value);
  expect(sent({ "millrace.job.type": "order", "error.type": undefined })).toEqual([3]);
  expect(sent({ "error.type": "InvalidPayload" })).toEqual([1]);
  expect(sent({ "error.type": "JobNotEnqueued" })).toEqual([1]);
  const [consumed] = find(points, "messaging.client.consumed.messages", {
    "messaging.destination.name": "order",
  });
  expect(consumed?.value).toBe(3);
  const tries = find(points, "messaging.process.duration", { "millrace.job.type": "order" });
  expect(tries.map(({ attributes, value }) => [attributes["error.type"], value])).toEqual([
    [undefined, expect.objectContaining({ count: 2 })],
    ["RangeError", expect.objectContaining({ count: 1 })],
  ]);
  const waits = find(points, "millrace.job.wait", { "millrace.job.type": "order" });
  expect(waits[0]?.value).toMatchObject({ count: 3 });
  const operations = find(points, "messaging.client.operation.duration");
  expect(
    new Set(operations.map(({ attributes }) => attributes["messaging.operation.name"])),
  ).toEqual(new Set(["send", "receive", "settle"]));
  expect(new Set(points.map(({ name, unit }) => `${name} ${unit}`))).toEqual(
    new Set([
      "messaging.client.sent.messages {message}",
      "messaging.client.consumed.messages {message}",
      "messaging.client.operation.duration s",
      "messaging.process.duration s",
      "millrace.job.wait s",
    ]),
  );
  const allowed = new Set([
    "messaging.system",
    "messaging.operation.name",
    "messaging.operation.type",
    "messaging.destination.name",
    "millrace.service",
    "millrace.job.type",
    "error.type",
  ]);
  const used = points.flatMap(({ attributes }) => Object.keys(attributes));
  expect(used.filter((name) => !allowed.has(name))).toEqual([]);
});

test("there is no recorder before an SDK is registered, nor after it was taken away", async () => {
  const telemetry = await openTelemetry({ clock: systemClock, instance: "i", version: "1" });
  expect(telemetry?.recorder()).toBeNull();
  recordMetrics();
  expect(telemetry?.recorder()).not.toBeNull();
  expect(telemetry?.recorder()).toBe(telemetry?.recorder());
});

test("a request is served in the trace that it names, and what fails on our side is an error", async () => {
  const spans = recordSpans();
  const telemetry = await openTelemetry({ clock: systemClock, instance: "i", version: "1" });
  const activeTrace = await openTelemetryTrace();
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const request = { method: "POST", path: "/v1/jobs/j-1/cancel", traceparent };
  const seen = await telemetry?.recorder()?.serve(
    request,
    async () => activeTrace()?.traceparent,
    () => ({ status: 503, route: "/v1/jobs/:id/cancel" }),
  );
  const span = spans.only("POST /v1/jobs/:id/cancel");
  expect(seen).toContain(span.spanContext().spanId);
  expect(span.parentSpanContext?.spanId).toBe("b7ad6b7169203331");
  expect(span.attributes).toMatchObject({ "http.response.status_code": 503, "error.type": "503" });
});
