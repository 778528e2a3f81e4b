// What goes wrong with a JetStream deployment outside Millrace: each fault is a typed error with a sentence that names
// the remedy and no secret, nothing is half stored, and what returns is used again.
import { mkdtemp, rename, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { jetstreamManager } from "@nats-io/jetstream";
import { createInbox } from "@nats-io/transport-node";
import { connect, defineJob, defineService, openEngine, type StoreError } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { startNats } from "../../scripts/nats-server.js";
import { contract, noWork } from "../crash/contract.js";
import { freshPrefix, natsConnection, ownNats } from "../support/nats.js";
import { Deployment } from "../support/nats-engine.js";
import { passingNats } from "../support/nats-proxy.js";
import { gate } from "../worker/workshop.js";

/** A password that no message may hold. */
const secret = "not-to-be-told";

describe("a server that takes small messages only", () => {
  it("names the limit and the remedy when too many jobs are under a key, and takes others", async () => {
    const server = await ownNats({ config: "max_payload: 8192" });
    const keyed = defineJob({
      payload: z.object({ k: z.number() }),
      keyConcurrency: { key: ["/k"] },
      queue: { maxQueuedPerKey: 1_000_000 },
    });
    const url = `${server.url}?projection=memory:`;
    const service = await connect(defineService("shop", { keyed }), { url });
    onTestFinished(() => service.stop());
    const creates = [];
    for (let n = 0; n < 60; n++) creates.push(await service.jobs.keyed.create({ k: 1 }));
    const stored = creates.filter((created) => created.isOk()).length;
    expect(stored).toBeGreaterThan(30);
    expect(creates.at(-1)).toMatchObject({
      error: {
        _tag: "StoreFailed",
        code: "max_payload",
        message: expect.stringMatching(
          /too many jobs are under one concurrency key.*maxQueuedPerKey.*raise max_payload/,
        ),
      },
    });
    expect((await service.reads.jobs().orThrow()).count).toBe(stored);
    await service.jobs.keyed.create({ k: 2 }).orThrow();
  });
});

describe("a server that lets nobody in", () => {
  it("is told apart when the password is wrong", async () => {
    const server = await ownNats({
      config: 'authorization { user: "shop", password: "right" }',
    });
    const fault = await faultOfOpening(server.url.replace("//", `//shop:${secret}@`));
    expect(fault._tag).toBe("StoreUnavailable");
    expect(fault.message).toMatch(/does not permit this.*use another user/);
  });

  it("is told apart when it is down", async () => {
    const fault = await faultOfOpening(`nats://shop:${secret}@127.0.0.1:1`);
    expect(fault._tag).toBe("StoreUnavailable");
    expect(fault.message).toMatch(/cannot be reached.*Check that it runs/);
  });

  it("is told apart when JetStream is not enabled for the account", async () => {
    const server = await ownNats({
      config: `accounts { PLAIN { users: [{ user: "shop", password: "${secret}" }] }, $SYS {} }`,
    });
    const fault = await faultOfOpening(server.url.replace("//", `//shop:${secret}@`));
    expect(fault._tag).toBe("StoreUnavailable");
    expect(fault.message).toMatch(/JetStream.*[Ee]nable/);
  });
});

describe("a server that goes away and returns", () => {
  it("is waited for: what was acknowledged is there, what runs goes on, and new jobs run", {
    timeout: 90_000,
  }, async () => {
    const server = await ownNats();
    const service = await openService(server.url);
    const [running, finish] = [gate(), gate()];
    service.jobs.quick.handle(async ({ payload }) => {
      if (payload.key !== "long") return {};
      running.open();
      await finish.opened;
      return { isLong: true };
    });
    service.jobs.flaky.handle(async () => ({}));
    await service.start();
    const long = await service.jobs.quick.create({ ...noWork, key: "long" }).orThrow();
    await running.opened;
    await server.kill("SIGKILL");
    const meanwhile = service.jobs.flaky.create(noWork);
    await server.restart();
    finish.open();
    await long.wait().orThrow();
    // Whether it was stored before the server went is not known; the caller is told either way.
    const outcome = await meanwhile;
    if (outcome.isErr()) expect(outcome.error._tag).toBe("StoreUnavailable");
    const next = await service.jobs.flaky.create(noWork).orThrow();
    await next.wait().orThrow();
    expect((await long.events().orThrow()).filter(({ name }) => name === "completed")).toHaveLength(
      1,
    );
  });

  it("says so to callers while it is away", { timeout: 60_000 }, async () => {
    const server = await startNats();
    onTestFinished(() => server.stop());
    const service = await openService(server.url);
    await server.kill("SIGKILL");
    const refused = await service.jobs.quick.create(noWork);
    expect(refused.isErr() && refused.error).toMatchObject({
      _tag: "StoreUnavailable",
      message: expect.stringMatching(/did not answer|cannot be reached/),
    });
    await server.restart();
    await service.jobs.quick.create(noWork).orThrow();
  });

  it("keeps nobody from stopping, and is looked for no more", async () => {
    const server = await ownNats();
    const service = await openService(server.url);
    await service.jobs.quick.create(noWork).orThrow();
    await server.kill("SIGKILL");
    await service.stop();
    const refused = await service.jobs.quick.create(noWork);
    expect(refused.isErr() && refused.error._tag).toBe("StoreClosed");
  });
});

describe("a started service whose server is away", () => {
  // With the patience of each of its parts in turn, stopping would take longer than the test may.
  it("stops a few seconds after its grace time, and what was acknowledged is done later", {
    timeout: 20_000,
  }, async () => {
    const server = await ownNats();
    const job = defineJob({ payload: z.object({}), leaseMs: 1_000 });
    const shop = defineService("shop", { work: job });
    const open = async () => {
      const service = await connect(shop, {
        url: `${server.url}?projection=memory:`,
        graceMs: 500,
      });
      onTestFinished(() => service.stop());
      return service;
    };
    const service = await open();
    const running = gate();
    service.jobs.work.handle(async ({ signal }) => {
      running.open();
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
    });
    await service.start();
    const [first, second] = [await service.jobs.work.create({}).orThrow(), gate()];
    await running.opened;
    await server.kill("SIGKILL");
    await service.stop();
    await server.restart();
    const next = await open();
    next.jobs.work.handle(async () => second.open());
    await next.start();
    await second.opened;
    await next.ref(first.id).wait().orThrow();
  });
});

describe("connections that are cut again and again", () => {
  it("cost no job and double none", { timeout: 60_000 }, async () => {
    const { url, prefix } = await freshPrefix();
    const passing = await passingNats(url);
    const service = await openService(`${passing.url}?prefix=${prefix}`);
    let entered = 0;
    service.jobs.quick.handle(async () => {
      entered += 1;
      if (entered % 20 === 0) passing.cut();
      return {};
    });
    await service.start();
    const ids = Array.from({ length: 100 }, (_, index) => `job-${index}`);
    for (const id of ids) {
      // A create whose answer was lost is sent again under its id, which makes it one job.
      for (;;) {
        const outcome = await service.jobs.quick.create(noWork, { id });
        if (outcome.isOk() || outcome.error._tag === "JobExists") break;
        expect(outcome.error._tag).toBe("StoreUnavailable");
      }
    }
    for (const id of ids) await service.ref(id).wait().orThrow();
    expect(passing.cuts).toBeGreaterThan(3);
    const loaded = await service.engine.load(ids, { history: true });
    for (const entry of loaded) {
      const names = entry?.events?.map(({ name }) => name) ?? [];
      expect(names.filter((name) => name === "completed")).toHaveLength(1);
    }
  });
});

describe("what an operator removes", () => {
  it("is made anew when it is a consumer, and what was not carried out is", async () => {
    const { env, prefix, url } = await Deployment.make();
    const jobs = await env.createMany(3);
    const held = await env.claimOne();
    const { consumers } = await jetstreamManager(await natsConnection(url));
    const name = `${prefix.toUpperCase()}_JOBS`;
    for await (const { name: consumer, config } of consumers.list(name))
      if (config.durable_name) await consumers.delete(name, consumer);
    const rest = await env.claim();
    expect([held, ...rest].map(({ id }) => id).sort()).toEqual(jobs.map(({ id }) => id).sort());
    for (const job of [held, ...rest]) await env.complete(job);
    await env.nothingClaimable();
  });

  it("is told of when it is the log itself", { timeout: 60_000 }, async () => {
    const { url, prefix, storeUrl } = await freshPrefix();
    const service = await openService(storeUrl);
    await service.jobs.quick.create(noWork).orThrow();
    const { streams } = await jetstreamManager(await natsConnection(url));
    await streams.delete(`${prefix.toUpperCase()}_JOBS`);
    const refused = await service.jobs.quick.create(noWork);
    expect(refused.isErr() && refused.error).toMatchObject({
      _tag: "StoreUnavailable",
      message: expect.stringMatching(/streams exist|stream.*gone/),
    });
    // A new start makes it anew.
    const next = await openService(storeUrl);
    await next.jobs.quick.create(noWork).orThrow();
  });
});

describe("a ticket that the server has offered too often", () => {
  it("ends its job as dead, once somebody keeps the service, and frees its key", async () => {
    const { env, prefix, url } = await Deployment.make();
    const key = env.key("k");
    const job = await env.create({ key });
    const released = { command: "release", token: 1, cause: "shutdown", runAt: env.now } as const;
    await env.settle(await env.claimOne(), released);
    const next = await env.create({ key });
    // Somebody makes the consumer give up early, and takes a ticket that is never acknowledged.
    const connection = await natsConnection(url);
    const { consumers, streams } = await jetstreamManager(connection);
    const name = `${prefix.toUpperCase()}_JOBS`;
    const consumer = "shop~mail~mail~v1-normal";
    await consumers.update(name, consumer, { max_deliver: 1, ack_wait: 1e8 });
    const told = connection.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>", { max: 1 });
    const take = `$JS.API.CONSUMER.MSG.NEXT.${name}.${consumer}`;
    const inbox = createInbox();
    const taken = connection.subscribe(inbox, { max: 1 });
    connection.publish(take, JSON.stringify({ batch: 1, no_wait: true }), { reply: inbox });
    for await (const { subject } of taken) expect(subject).toContain(job.id);
    for await (const _ of told) break;
    const advisories = `${prefix.toUpperCase()}_ADVISORIES`;
    expect((await streams.info(advisories)).state.messages).toBe(1);

    env.clock.advance(31_000);
    await env.engine.tend?.("shop");
    expect(await env.load(job.id)).toMatchObject({
      state: "dead",
      error: { reason: "deliveries", message: expect.stringContaining("1 times") },
    });
    expect((await streams.info(advisories)).state.messages).toBe(0);
    await consumers.update(name, consumer, { max_deliver: 1_000, ack_wait: 30e9 });
    expect((await env.claimOne()).id).toBe(next.id);
  });
});

describe("a clock that jumps", () => {
  it("starts nothing before its time when it goes back, and ends nothing twice when it goes on", async () => {
    const { env } = await Deployment.make();
    const soon = await env.create({ runAt: env.now + 1_000 });
    env.clock.advance(2_000);
    await env.engine.tend?.("shop");
    env.clock.advance(-3_600_000);
    const [early] = await env.claim();
    if (early) expect(early.startedAt).toBeGreaterThanOrEqual(soon.runAt);
    env.clock.advance(7_200_000);
    for (const { id } of await env.engine.due({ kind: "lapsed", service: "shop" }, 10))
      await env.lapse(id);
    const again = await env.claimOne();
    await env.complete(again);
    const names = await env.historyNames(soon.id);
    expect(names.filter((name) => name === "completed")).toHaveLength(1);
    await env.nothingClaimable();
  });
});

describe("a read model that is away", () => {
  it("stops no job, says so to those who ask, and catches up", { timeout: 60_000 }, async () => {
    const { storeUrl } = await freshPrefix();
    const folder = await freshFolder();
    const away = join(folder, "away");
    const url = `${storeUrl}&projection=file:${join(away, "view.db")}`;
    // The folder of the read model is not there yet, as a disk that is not mounted.
    const service = await connect(contract, { url });
    onTestFinished(() => service.stop());
    service.jobs.quick.handle(async () => ({}));
    await service.start();
    const job = await service.jobs.quick.create(noWork).orThrow();
    await job.wait().orThrow();
    const refused = await service.reads.counts();
    expect(refused.isErr() && refused.error._tag).toBe("StoreUnavailable");
    await rename(await freshFolder(), away);
    expect(await service.reads.counts().orThrow()).toMatchObject([
      { state: "completed", count: 1 },
    ]);
  });
});

async function freshFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "millrace-faults-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** A service whose read model is gone after the test. */
async function openService(url: string) {
  const view = `projection=file:${join(await freshFolder(), "view.db")}`;
  const service = await connect(contract, { url: `${url}${url.includes("?") ? "&" : "?"}${view}` });
  onTestFinished(() => service.stop());
  return service;
}

async function faultOfOpening(url: string): Promise<StoreError> {
  try {
    const engine = await openEngine(url);
    onTestFinished(() => engine.close());
  } catch (error) {
    const fault = error as StoreError;
    expect(fault.message).not.toMatch(/\n|\bat .*:\d+:\d+/);
    expect(JSON.stringify([fault.message, fault.url])).not.toContain(secret);
    return fault;
  }
  throw new Error("Nothing went wrong.");
}
