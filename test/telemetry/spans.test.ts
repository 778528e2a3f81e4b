// Spans through a real SDK: one trace from whoever creates a job to its handler and what that does.
import { context, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { NodeTracerProvider, type ReadableSpan } from "@opentelemetry/sdk-trace-node";
import { connect, defineJob, defineService, terminate } from "millrace";
import { describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { stores } from "../support/stores.js";
import { recordSpans } from "./recording.js";

const shop = defineService("shop", {
  order: defineJob({ payload: z.object({ n: z.number() }), retry: { maxTries: 1 } }),
  receipt: defineJob({
    payload: z.object({}),
    queue: { name: "mail" },
    continuations: ["archive"],
  }),
  archive: defineJob({ payload: z.object({}), result: z.string() }),
  keyed: defineJob({ payload: z.object({}), keyConcurrency: { key: ["all"] } }),
});

async function openShop(freshUrl: () => Promise<string>) {
  const service = await connect(shop, { url: await freshUrl(), instance: "web-1" });
  onTestFinished(() => service.stop());
  return service;
}

const parentOf = (span: ReadableSpan) => span.parentSpanContext?.spanId;
const idOf = (span: ReadableSpan) => span.spanContext().spanId;
const traceOf = (span: ReadableSpan) => span.spanContext().traceId;

describe.each(stores)("on $name", ({ freshUrl }) => {
  test("one trace goes from the caller over the create to the handler and the jobs that it creates", async () => {
    const spans = recordSpans();
    const service = await openShop(freshUrl);
    service.jobs.order.handle(async () => {
      await trace.getTracer("test").startActiveSpan("charge", async (span) => {
        await service.jobs.archive.create({}).orThrow();
        span.end();
      });
    });
    service.jobs.archive.handle(async () => "done");
    await service.start();

    await trace.getTracer("test").startActiveSpan("request", async (span) => {
      await service.jobs.order.run({ n: 1 }, { context: { requestId: "r-1" } }).orThrow();
      span.end();
    });
    const [archive] = (await service.reads.jobs({ type: "archive" }).orThrow()).entries;
    await service
      .ref(archive?.id ?? "")
      .wait()
      .orThrow();
    await service.stop();

    const [request, send, process] = ["request", "send order", "process order"].map(spans.only);
    const [charge, sendNext, processNext] = ["charge", "send archive", "process archive"].map(
      spans.only,
    );
    if (!request || !send || !process || !charge || !sendNext || !processNext) throw new Error();
    const chain = [request, send, process, charge, sendNext, processNext];
    expect(chain.slice(1).map(parentOf)).toEqual(chain.slice(0, -1).map(idOf));
    expect(new Set(chain.map(traceOf)).size).toBe(1);
    expect([send.kind, process.kind]).toEqual([SpanKind.PRODUCER, SpanKind.CONSUMER]);
    expect(process.links.map(({ context }) => context.spanId)).toEqual([idOf(send)]);
    expect(send.attributes).toMatchObject({
      "messaging.system": "millrace",
      "messaging.operation.name": "send",
      "messaging.destination.name": "order",
      "millrace.service": "shop",
      "millrace.job.type": "order",
      "messaging.client.id": "web-1",
    });
    expect(process.attributes).toMatchObject({
      "messaging.message.id": send.attributes["messaging.message.id"],
      "messaging.message.conversation_id": "r-1",
      "millrace.job.try": 1,
      "millrace.try.outcome": "returned",
    });
    expect(process.status.code).toBe(SpanStatusCode.UNSET);
  });

  test("claims and settlements have spans that are linked to the creators of their jobs", async () => {
    const spans = recordSpans();
    const service = await openShop(freshUrl);
    service.jobs.order.handle(async () => {});
    const refs = await service.jobs.order
      .createMany([{ payload: { n: 1 } }, { payload: { n: 2 } }])
      .orThrow();
    await service.start();
    for (const ref of refs) if (ref.isOk()) await ref.value.wait().orThrow();
    await service.stop();

    const send = spans.only("send order");
    expect(send.attributes["messaging.batch.message_count"]).toBe(2);
    const receive = spans.only("receive order");
    expect(receive.kind).toBe(SpanKind.CLIENT);
    expect(receive.parentSpanContext).toBeUndefined();
    expect(receive.attributes["messaging.batch.message_count"]).toBe(2);
    expect(receive.links.map(({ context }) => context.spanId)).toEqual([idOf(send), idOf(send)]);
    expect(receive.duration[0]).toBe(0);
    const settled = spans.named("settle order").flatMap(({ links }) => links);
    expect(settled.map(({ context }) => context.traceId)).toEqual([traceOf(send), traceOf(send)]);
    expect(spans.named("process order").map(parentOf)).toEqual([idOf(send), idOf(send)]);
  });
});

const [memory] = stores;
const onMemory = () => openShop(memory?.freshUrl ?? (async () => "memory:"));

test("a failed try has its exception and its error on the span", async () => {
  const spans = recordSpans();
  const service = await onMemory();
  service.jobs.order.handle(async ({ payload }) => {
    if (payload.n === 1) throw new TypeError("no such order");
    throw terminate("never");
  });
  await service.start();
  await service.jobs.order.run({ n: 1 });
  await service.jobs.order.run({ n: 2 });
  await service.stop();

  const [threw, terminated] = spans.named("process order");
  expect(threw?.status).toEqual({ code: SpanStatusCode.ERROR, message: "no such order" });
  expect(threw?.attributes["error.type"]).toBe("TypeError");
  expect(
    threw?.events.map(({ name, attributes }) => [name, attributes?.["exception.type"]]),
  ).toEqual([["exception", "TypeError"]]);
  expect(threw?.events[0]?.attributes?.["exception.stacktrace"]).toContain("spans.test.ts");
  expect(terminated?.attributes).toMatchObject({
    "millrace.try.outcome": "terminated",
    "error.type": "terminated",
  });
});

test("a create that is refused has its error on the span, and the caller gets it as before", async () => {
  const spans = recordSpans();
  const service = await onMemory();
  const refused = await service.jobs.order.create({ n: "one" as unknown as number });
  expect(refused.isErr() && refused.error._tag).toBe("InvalidPayload");
  await service.jobs.keyed.create({}).orThrow();
  const full = await service.jobs.keyed.create({});
  expect(full.isErr() && full.error._tag).toBe("JobNotEnqueued");

  expect(spans.only("send order").attributes["error.type"]).toBe("InvalidPayload");
  const [created, notCreated] = spans.named("send keyed");
  expect(created?.status.code).toBe(SpanStatusCode.UNSET);
  expect(notCreated?.status.code).toBe(SpanStatusCode.ERROR);
  expect(notCreated?.attributes["error.type"]).toBe("JobNotEnqueued");
});

test("a trace that the caller names is the job's own, and its create belongs to it", async () => {
  const spans = recordSpans();
  const service = await onMemory();
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  service.jobs.order.handle(async () => {});
  await service.start();
  await service.jobs.order.run({ n: 1 }, { context: { traceparent, tracestate: "a=1" } }).orThrow();
  await service.stop();

  for (const name of ["send order", "process order", "settle order"]) {
    const span = spans.only(name);
    expect(traceOf(span)).toBe("0af7651916cd43dd8448eb211c80319c");
    expect(parentOf(span)).toBe("b7ad6b7169203331");
    expect(span.spanContext().traceState?.serialize()).toBe("a=1");
  }
});

test("a continuation belongs to the try that completed the job before it", async () => {
  const spans = recordSpans();
  const service = await onMemory();
  service.jobs.receipt.handle((job) =>
    job.complete(({ continueWith }) => continueWith("archive", {})),
  );
  service.jobs.archive.handle(async () => "done");
  await service.start();
  const chain = await service.chains.start("receipt", {}).orThrow();
  await service.chains.wait(chain).orThrow();
  await service.stop();

  expect(parentOf(spans.only("process mail"))).toBe(idOf(spans.only("send mail")));
  expect(parentOf(spans.only("process archive"))).toBe(idOf(spans.only("process mail")));
});

test("what an SDK throws touches no job", async () => {
  const broken = () => {
    throw new Error("The processor is broken.");
  };
  const calm = async () => {};
  const processor = { onStart: broken, onEnd: broken, forceFlush: calm, shutdown: calm };
  for (const onStart of [broken, () => {}]) {
    const provider = new NodeTracerProvider({ spanProcessors: [{ ...processor, onStart }] });
    provider.register();
    const service = await onMemory();
    let runs = 0;
    service.jobs.order.handle(async () => void runs++);
    await service.start();
    await service.jobs.order.run({ n: 1 }).orThrow();
    await service.stop();
    trace.disable();
    context.disable();
    expect(runs).toBe(1);
  }
});

test("an SDK that is registered after the service has connected is used", async () => {
  const service = await onMemory();
  await service.jobs.order.create({ n: 1 }).orThrow();
  const spans = recordSpans();
  await service.jobs.order.create({ n: 2 }).orThrow();
  expect(spans.all().map(({ name }) => name)).toEqual(["send order"]);
});

test("handlers do not inherit the span in which the service was started", async () => {
  const spans = recordSpans();
  const service = await onMemory();
  service.jobs.order.handle(async () => {});
  await trace.getTracer("test").startActiveSpan("deploy", async (span) => {
    await service.start();
    span.end();
  });
  await service.jobs.order.run({ n: 1 }).orThrow();
  await service.stop();

  const deployed = spans.all().filter((span) => traceOf(span) === traceOf(spans.only("deploy")));
  expect(deployed.map(({ name }) => name)).toEqual(["deploy"]);
});
