// A worker starts when its consumers are there, and does not start when they are refused.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AckPolicy, jetstreamManager } from "@nats-io/jetstream";
import { connect, defineJob, defineService } from "millrace";
import { Environment, MovableClock } from "millrace/conformance";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { ids } from "#millrace/conformance/environment.js";
import { manifest } from "#millrace/contract/manifest.js";
import type { Engine } from "#millrace/engine/engine.js";
import { StoreBusy, StoreFailed } from "#millrace/engine/errors.js";
import { openNats } from "#millrace/engine/nats/open.js";
import { inboxPrefix, permissionsOf, permissionsText } from "#millrace/engine/nats/permissions.js";
import { openEngine } from "#millrace/engine/open.js";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import { openSimulated } from "../simulation/nats/deployment.js";
import { SimulatedServer } from "../simulation/nats/server.js";
import { freshStoreUrl, natsConnection, ownNats } from "../support/nats.js";

const job = () => defineJob({ payload: z.object({}) });
const shop = defineService("shop", { mail: job(), print: job() });
const mailConsumers = ["high", "normal", "low"].map((priority) => `shop~mail~mail~v1-${priority}`);

/** A service that can do its job, on an engine. */
async function serviceOn(engine: Engine) {
  const service = await connect(shop, { engine, instance: "worker-1" });
  onTestFinished(() => service.stop());
  service.handle({ mail: async () => {} });
  return service;
}

/** A URL for a user, with a view of its own. */
async function urlOf(server: { readonly url: string }, user: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "millrace-start-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const projection = encodeURIComponent(`file:${join(folder, "view.db")}`);
  return `${server.url.replace("//", `//${user}:${user}@`)}?projection=${projection}`;
}

async function opened(url: string): Promise<Engine> {
  const engine = await openNats(url);
  onTestFinished(() => engine.close());
  return engine;
}

/** A server with an admin, and a user of the service who may make none of the consumers that hand out mail. */
async function guardedServer() {
  const scope = { prefix: "millrace" };
  const { publish, ...rest } = permissionsOf(scope, { kind: "service", manifest: manifest(shop) });
  const create = "$JS.API.CONSUMER.CREATE.MILLRACE_JOBS";
  const deny = [...(publish.deny ?? []), ...mailConsumers.map((name) => `${create}.${name}.>`)];
  const users = [
    `{ user: admin, password: admin, ${permissionsText(permissionsOf(scope, { kind: "admin" }))} }`,
    `{ user: shop, password: shop, ${permissionsText({ ...rest, publish: { ...publish, deny } })} }`,
  ];
  return ownNats({ config: `authorization { users: [ ${users.join(",\n")} ] }` });
}

describe("a worker on JetStream", () => {
  it("has its consumers when it has started, and runs jobs", async () => {
    const url = await freshStoreUrl();
    const service = await serviceOn(await opened(url));
    await service.start();
    const { consumers } = await jetstreamManager(
      await natsConnection(`nats://${new URL(url).host}`),
    );
    const stream = `${new URL(url).searchParams.get("prefix")?.toUpperCase()}_JOBS`;
    for (const name of mailConsumers)
      expect(await consumers.info(stream, name)).toMatchObject({ name });
    await (await service.jobs.mail.create({}).orThrow()).wait().orThrow();
  });

  it("does not start where the account has no consumers left", async () => {
    const account = "A: { jetstream: { max_consumers: 2 }, users: [ { user: a, password: a } ] }";
    const server = await ownNats({ config: `accounts { ${account} }` });
    const service = await serviceOn(await opened(await urlOf(server, "a")));
    await expect(service.start()).rejects.toMatchObject({
      _tag: "StoreFailed",
      message: expect.stringMatching(/consumer shop~mail~mail~v1-\w+ .*Raise max_consumers/),
    });
    expect(await service.reads.workers().orThrow()).toEqual([]);
  });

  it("does not start where it may not make its consumers", async () => {
    const server = await guardedServer();
    await opened(await urlOf(server, "admin"));
    const engine = await opened(`${await urlOf(server, "shop")}&service=shop`);
    const service = await serviceOn(engine);
    await expect(service.start()).rejects.toMatchObject({
      _tag: "StoreUnavailable",
      message: expect.stringMatching(/consumer shop~mail~mail~v1-\w+ .*Grant/),
    });
  });

  it("does not start where something else than its consumer has the name of one", async () => {
    const url = await freshStoreUrl();
    const engine = await opened(url);
    const first = await serviceOn(engine);
    await first.start();
    await first.stop();
    const { consumers } = await jetstreamManager(
      await natsConnection(`nats://${new URL(url).host}`),
    );
    const stream = `${new URL(url).searchParams.get("prefix")?.toUpperCase()}_JOBS`;
    const name = "shop~mail~mail~v1-low";
    const { filter_subject = "" } = (await consumers.info(stream, name)).config;
    await consumers.delete(stream, name);
    await consumers.add(stream, {
      durable_name: name,
      filter_subject,
      ack_policy: AckPolicy.Explicit,
      deliver_subject: "somewhere",
    });
    const service = await serviceOn(await opened(url));
    await expect(service.start()).rejects.toMatchObject({
      _tag: "StoreFailed",
      message: expect.stringMatching(/v1-low .*pushes to somewhere.*remove it/),
    });
  });

  it.each([
    [{ max_deliver: 5 }, /gives a job up after 5 deliveries \(max_deliver\).*1000/],
    [{ max_ack_pending: 10 }, /no more than 10 jobs run at once \(max_ack_pending\).*1000/],
  ])("does not start with a consumer of somebody else's that has %o", async (config, said) => {
    const server = await guardedServer();
    const admin = await serviceOn(await opened(await urlOf(server, "admin")));
    await admin.start();
    await admin.stop();
    const connection = await natsConnection(server.url, "admin", inboxPrefix("millrace"));
    const { consumers } = await jetstreamManager(connection, { checkAPI: false });
    await consumers.update("MILLRACE_JOBS", mailConsumers[0] ?? "", config);
    const service = await serviceOn(await opened(`${await urlOf(server, "shop")}&service=shop`));
    await expect(service.start()).rejects.toMatchObject({ message: expect.stringMatching(said) });
  });

  it("starts with consumers that somebody has made who may", async () => {
    const server = await guardedServer();
    const admin = await serviceOn(await opened(await urlOf(server, "admin")));
    await admin.start();
    await admin.stop();
    const service = await serviceOn(await opened(`${await urlOf(server, "shop")}&service=shop`));
    await service.start();
    await (await service.jobs.mail.create({}).orThrow()).wait().orThrow();
  });
});

describe("what claims need", () => {
  /** An engine that tells what it asks the server for, and hears no hints. */
  function simulation(fault: Error | null = null) {
    const clock = new MovableClock();
    const server = new SimulatedServer({ time: () => clock.monotonic() });
    const memory = new ProjectionMemory();
    const asked: string[] = [];
    const open = () =>
      openSimulated(server, {
        clock,
        session: "worker",
        store: () => new MemoryProjectionStore(clock, memory),
        isOld: false,
        wire: {
          request: async (what, work) => {
            asked.push(what);
            if (fault !== null && what.startsWith("ensure")) throw fault;
            return work();
          },
          send: (_, work) => work(),
          arrival: async () => {},
          hinted: () => {},
          behindMs: () => 0,
        },
      });
    return { env: new Environment(open(), clock, async () => open()), asked, server };
  }

  it("is made once, and the first claim asks for jobs alone", async () => {
    const { env, asked } = simulation();
    await env.engine.prepareClaims?.([env.lane()]);
    expect(asked).toEqual(mailConsumers.map((name) => `ensure consumer ${name}`));
    const job = await env.create();
    asked.length = 0;
    expect(ids(await env.claim())).toEqual([job.id]);
    expect(asked.filter((what) => what.startsWith("ensure"))).toEqual([]);
  });

  it("is made again by a claim where an operator has removed it", async () => {
    const { env, server } = simulation();
    await env.engine.prepareClaims?.([env.lane()]);
    for (const name of mailConsumers) server.removeConsumer(name);
    const job = await env.create();
    expect(ids(await env.claim())).toEqual([job.id]);
  });

  it("is left to the claims while the server does not answer", async () => {
    const { env } = simulation(new StoreBusy({ url: "nats:", message: "no answer" }));
    await env.engine.prepareClaims?.([env.lane()]);
    const refused = simulation(new StoreFailed({ url: "nats:", message: "no" })).env;
    await expect(refused.engine.prepareClaims?.([refused.lane()])).rejects.toThrow("no");
  });
});

it("a worker whose store refuses what claims need is left stopped, on any store", async () => {
  const inner = await openEngine("memory:");
  onTestFinished(() => inner.close());
  const fault = new StoreFailed({ url: "memory:", message: "no consumers" });
  const claims: unknown[] = [];
  const engine = new Proxy(inner, {
    get: (target, member) => {
      if (member === "prepareClaims") return () => Promise.reject(fault);
      if (member === "claim") claims.push(member);
      const found = Reflect.get(target, member, target) as unknown;
      return typeof found === "function" ? found.bind(target) : found;
    },
  });
  const service = await serviceOn(engine);
  await service.jobs.mail.create({}).orThrow();
  await expect(service.start()).rejects.toBe(fault);
  expect(await service.reads.workers().orThrow()).toEqual([]);
  expect(claims).toEqual([]);
});
