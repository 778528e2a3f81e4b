// Spans of what happens inside transactions of the caller's, with clients that answer at once and later.
import { SpanStatusCode } from "@opentelemetry/api";
import { expect, test } from "vitest";
import { openShop, sources } from "../transactions/charging-shop.js";
import { recordSpans } from "./recording.js";

const payload = { orderId: "o-1" };

test.each(sources)(
  "a completion and a create inside a transaction of $name belong to the trace",
  async (source) => {
    const spans = recordSpans();
    const { service, charge } = await openShop(source);
    service.jobs.charge.handle(({ complete }) =>
      complete(({ tx }) => {
        charge(tx, "o-1", 1);
        service.jobs.ship.createSync(payload, { tx, id: "ship-1" }).unwrap();
        return { paid: true };
      }),
    );
    await service.start();
    await service.jobs.charge.run(payload).orThrow();
    await service.stop();

    const send = spans.only("send charge").spanContext();
    const process = spans.only("process charge").spanContext();
    const settle = spans.only("settle charge");
    expect(settle.parentSpanContext?.spanId).toBe(send.spanId);
    expect(settle.attributes["messaging.message.id"]).toBeDefined();
    const ship = spans.only("send ship");
    expect(ship.parentSpanContext?.spanId).toBe(process.spanId);
    expect(ship.attributes["messaging.message.id"]).toBe("ship-1");
    const spanIds = [send, process, ship.spanContext()].map(({ traceId }) => traceId);
    expect(new Set(spanIds).size).toBe(1);
  },
);

test("a synchronous create that is refused has its error on the span", async () => {
  const spans = recordSpans();
  const [source] = sources;
  if (source === undefined) throw new Error("There is no source.");
  const { service } = await openShop(source);
  const create = () => service.jobs.ship.createSync(payload, { tx: {} as never });
  expect(create().isErr()).toBe(true);
  expect(spans.only("send ship").status.code).toBe(SpanStatusCode.ERROR);
});
