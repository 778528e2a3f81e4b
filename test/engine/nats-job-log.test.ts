// Reading a job's log on JetStream without a look at all messages of the stream, and with all that has happened to the job.
import { jetstreamManager } from "@nats-io/jetstream";
import { connect, defineJob, defineService } from "millrace";
import { Environment, MovableClock } from "millrace/conformance";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { readJobLog } from "#millrace/engine/nats/job-log.js";
import type { Port } from "#millrace/engine/nats/port.js";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import { openSimulated } from "../simulation/nats/deployment.js";
import { plainWire, SimulatedServer, simulatedPort } from "../simulation/nats/server.js";
import { freshPrefix, natsConnection, ownNats } from "../support/nats.js";

/** A simulated server, an engine on it, and a port of its own that writes down what was read. */
function deployed() {
  const clock = new MovableClock();
  const server = new SimulatedServer({ time: () => clock.monotonic() });
  const memory = new ProjectionMemory();
  const engine = openSimulated(server, {
    clock,
    session: "session",
    isOld: false,
    store: () => new MemoryProjectionStore(clock, memory),
  });
  onTestFinished(() => engine.close());
  const open = () => Promise.reject(new Error("One engine is enough here."));
  const read: string[] = [];
  /** Whether the next reading of one subject is answered by a copy that is behind. */
  const late = { isNext: false, isNow: false };
  const wire = { ...plainWire, behindMs: () => (late.isNow ? 1_000 : 0) };
  const port: Port = simulatedPort(server, { now: () => clock.now(), wire });
  const readAll = port.read;
  port.read = (stream, filter) => {
    read.push(filter);
    late.isNow = late.isNext;
    late.isNext = false;
    return readAll(stream, filter).finally(() => {
      late.isNow = false;
    });
  };
  const log = async (id: string) => {
    const filter = `millrace.*.*.*.${id}.>`;
    const messages = await readJobLog(port, filter);
    return { messages, all: await readAll("jobs", filter), filter };
  };
  return { env: new Environment(engine, clock, open), clock, read, late, log };
}

describe("the log of a job", () => {
  it("is its newest messages where nothing happened twice", async () => {
    const { env, read, log } = deployed();
    await env.create();
    const job = await env.claimOne();
    await env.complete(job);
    const { messages, all } = await log(job.id);
    expect(messages.map(({ seq }) => seq)).toEqual(all.map(({ seq }) => seq));
    expect(messages).toHaveLength(3);
    expect(read).toEqual([]);
  });

  it("has every try, from the subjects alone", async () => {
    const { env, read, log } = deployed();
    await env.create({ maxTries: 5 });
    for (let tries = 0; tries < 3; tries++) await env.fail(await env.claimOne(), env.now);
    const job = await env.claimOne();
    await env.complete(job);
    const { messages, all, filter } = await log(job.id);
    expect(messages.map(({ seq }) => seq)).toEqual(all.map(({ seq }) => seq));
    expect(messages.filter(({ subject }) => subject.includes(".started"))).toHaveLength(4);
    expect(read.length).toBeGreaterThan(0);
    expect(read).not.toContain(filter);
  });

  it("is read as a whole where one copy is behind another", async () => {
    const { env, clock, read, late, log } = deployed();
    await env.create();
    const job = await env.claimOne();
    const say = () => env.engine.note([env.event(job, { command: "heartbeat", token: job.token })]);
    await say();
    clock.advance(5_000);
    await say();
    late.isNext = true;
    const { messages, all, filter } = await log(job.id);
    expect(messages.map(({ seq }) => seq)).toEqual(all.map(({ seq }) => seq));
    expect(read).toContain(filter);
  });
});

it("tells everything that a job has said and met, on a real server", async () => {
  const { storeUrl } = await freshPrefix();
  const contract = defineService("shop", {
    pack: defineJob({
      payload: z.object({}),
      retry: { maxTries: 3, backoff: [1, 1] },
    }),
  });
  for (const scope of ["", "&service=shop"]) {
    const service = await connect(contract, { url: `${storeUrl}&projection=memory:${scope}` });
    service.jobs.pack.handle(async (job) => {
      for (let current = 1; current <= 3; current++)
        await job.progress({ step: "pack", current, total: 3 });
      if (job.tries < 3) throw new Error("not yet");
    });
    await service.start();
    const job = await service.jobs.pack.create({}).orThrow();
    await job.wait().orThrow();
    const names = (await job.events().orThrow()).map(({ name }) => name);
    const progress = ["progress", "progress", "progress"];
    expect(names).toEqual([
      "created",
      ...["started", ...progress, "retry"],
      ...["started", ...progress, "retry"],
      ...["started", ...progress, "completed"],
    ]);
    await service.stop();
  }
});

it("is removed in parts, so that a server does not drop what it is asked for", async () => {
  const server = await ownNats({ questionsMax: 150 });
  const shop = defineService("shop", { pack: defineJob({ payload: z.object({}) }) });
  const service = await connect(shop, { url: `${server.url}?projection=memory:` });
  onTestFinished(() => service.stop());
  const total = 1_000;
  service.jobs.pack.handle(async (job) => {
    for (let current = 1; current <= total; current++)
      await job.progress({ step: "pack", current, total });
  });
  await service.start();
  const job = await service.jobs.pack.create({}).orThrow();
  await job.wait().orThrow();
  expect((await job.events().orThrow()).length).toBeGreaterThan(total);
  await job.delete().orThrow();
  const { streams } = await jetstreamManager(await natsConnection(server.url));
  // The deletion is what is left.
  expect((await streams.info("MILLRACE_JOBS")).state.messages).toBe(1);
});
