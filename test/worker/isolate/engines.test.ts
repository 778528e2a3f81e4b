// Isolated jobs on every engine, in tests with a clock that they move, and behind middleware.
import { connect, defineJob, defineService } from "millrace";
import { testService } from "millrace/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { freshUrl } from "../../support/fresh-url.js";
import { freshStoreUrl } from "../../support/nats.js";
import { freshSchema } from "../../support/postgres.js";
import { act, gone, logOf, pidsOf, workplace } from "./workplace.js";

const acting = new URL("./fixtures/acting.mjs", import.meta.url);

const urls = {
  "memory:": async () => "memory:",
  "file:": freshUrl,
  "postgres:": async () => (await freshSchema()).storeUrl,
  "nats:": freshStoreUrl,
};

describe.for(Object.entries(urls))("on %s", ([, fresh]) => {
  it("runs in a process of its own, speaks, and is killed when it ignores a cancel", async () => {
    const service = await workplace({ url: await fresh(), graceMs: 50 });
    const said = await act(service, "speak");
    expect(said.state).toBe("completed");
    expect(logOf(said.events)).toContain("info: printed");
    const ended = await act(service, "exit");
    expect(ended.error?.message).toBe("The process of the handler ended with exit code 3.");
    const ref = await service.jobs.act.create({ act: "ignore" }).orThrow();
    const pids = await pidsOf(service, ref);
    await ref.cancel().orThrow();
    await ref.wait();
    expect((await ref.get().orThrow()).state).toBe("cancelled");
    await Promise.all(pids.map(gone));
  });

  it("is a program that gets the payload and prints the result", async () => {
    const contract = defineService("programs", {
      count: defineJob({ payload: z.string(), isolate: true, retry: { maxTries: 1 } }),
    });
    const service = await connect(contract, { url: await fresh() });
    onTestFinished(() => service.stop());
    service.jobs.count.handle({ exec: ["sh", "-c", "grep -o a | wc -l"] });
    await service.start();
    expect(await service.jobs.count.run("banana").orThrow()).toBe(3);
  });
});

it("runs in the service of a test, whose clock stands still", async () => {
  const contract = defineService("tested", {
    act: defineJob({ payload: z.looseObject({ act: z.string() }), isolate: true }),
  });
  const test = await testService(contract);
  test.service.jobs.act.handle({ module: acting });
  const ref = await test.service.jobs.act.create({ act: "echo" }).orThrow();
  const failing = await test.service.jobs.act.create({ act: "exit" }).orThrow();
  await test.drain({ untilIdle: true });
  expect((await ref.get().orThrow()).result).toMatchObject({ id: ref.id });
  expect(await failing.get().orThrow()).toMatchObject({ state: "dead", tries: 5 });
  await test.stop();
});

it("is wrapped by middleware like every other handler", async () => {
  const contract = defineService("wrapped", {
    act: defineJob({ payload: z.looseObject({ act: z.string() }), isolate: true }),
  });
  const test = await testService(contract);
  test.service.use(async (_, next) => ({ wrapped: await next() }));
  test.service.jobs.act.handle({ module: acting });
  const ref = await test.service.jobs.act.create({ act: "echo", more: 1 }).orThrow();
  await test.drain();
  expect((await ref.get().orThrow()).result).toMatchObject({ wrapped: { id: ref.id } });
  await test.stop();
});
