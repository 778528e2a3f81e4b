// One trace from a request over HTTP to the handler, and the metrics of both, over a real socket.
import { connect, defineJob, defineService, openEngine } from "millrace";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { startServer } from "#millrace/server/http/server.js";
import { stores } from "../support/stores.js";
import { recordSpans } from "./recording.js";

const shop = defineService("shop", { order: defineJob({ payload: z.object({ n: z.number() }) }) });

test.each(stores)(
  "a request and the handler of its job are of one trace on $name",
  async ({ freshUrl }) => {
    const spans = recordSpans();
    const engine = await openEngine(await freshUrl());
    onTestFinished(() => engine.close());
    const service = await connect(shop, { engine });
    const ran = new Promise<void>((resolve) => {
      service.jobs.order.handle(async () => resolve());
    });
    await service.start();
    const server = await startServer({ engine, bind: "127.0.0.1:0", keeper: false });
    onTestFinished(() => server.stop());
    onTestFinished(() => service.stop());

    const traceId = "0af7651916cd43dd8448eb211c80319c";
    const answer = await fetch(`${server.url}/v1/jobs`, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        traceparent: `00-${traceId}-b7ad6b7169203331-01`,
      },
      body: JSON.stringify({ service: "shop", type: "order", payload: { n: 1 } }),
    });
    expect(answer.status).toBe(201);
    await ran;
    await service.stop();

    const names = ["POST /v1/jobs", "send order", "process order", "settle order"];
    expect(names.map((name) => spans.only(name).spanContext().traceId)).toEqual(
      names.map(() => traceId),
    );
    const text = await (await fetch(`${server.url}/metrics`)).text();
    expect(text).toContain(
      'millrace_http_requests_total{method="POST",route="/v1/jobs",status="201"} 1',
    );
  },
);
