// The ten admin calls over a real NATS server, on an embedded store and on the log itself.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { NatsConnection } from "@nats-io/transport-node";
import { connect, defineJob, defineService, terminate } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import type { Engine } from "#millrace/engine/engine.js";
import { changeCalls, readCalls } from "#millrace/engine/nats/permissions.js";
import { openEngine } from "#millrace/engine/open.js";
import { jobsCallNames } from "#millrace/server/calls.js";
import { JobsClient } from "#millrace/server/jobs-client.js";
import { JobsServer, type JobsServerOptions } from "#millrace/server/jobs-server.js";
import { freshPrefix, type NewPrefix, natsConnection } from "../support/nats.js";

const shop = defineService("shop", {
  mail: defineJob({ payload: z.object({ to: z.string() }), result: z.string() }),
  brittle: defineJob({ payload: z.object({}), retry: { maxTries: 1 } }),
  picky: defineJob({ payload: z.object({}) }),
  slow: defineJob({ payload: z.object({}) }),
  keyed: defineJob({
    payload: z.object({ tenant: z.string() }),
    keyConcurrency: { key: ["tenant", "/tenant"], maxActive: 1 },
    queue: { maxQueuedPerKey: 5 },
  }),
});

type StoreName = "SQLite" | "JetStream";

async function openStore(store: StoreName, place: NewPrefix): Promise<Engine> {
  const folder = await mkdtemp(join(tmpdir(), "millrace-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const file = `file:${join(folder, "jobs.db")}`;
  return openEngine(store === "SQLite" ? file : `${place.storeUrl}&projection=${file}`);
}

/** A store with a service on it, and the calls served and made. */
async function scene(
  store: StoreName = "SQLite",
  options: Partial<JobsServerOptions> & { readonly wrap?: (engine: Engine) => Engine } = {},
) {
  const place = await freshPrefix();
  const engine = await openStore(store, place);
  onTestFinished(() => engine.close());
  const service = await connect(shop, { engine, instance: "shop-1" });
  onTestFinished(() => service.stop());
  const { prefix } = place;
  const connection = await natsConnection(place.url);
  const { wrap = (same) => same, ...rest } = options;
  const server = new JobsServer({ connection, engine: wrap(engine), prefix, ...rest });
  onTestFinished(() => server.stop());
  await server.start();
  const caller = await natsConnection(place.url);
  const jobs = new JobsClient(caller, { prefix, actor: "anna" });
  return { service, engine, server, jobs, place, connection, caller };
}

type Scene = Awaited<ReturnType<typeof scene>>;

/** A job that has died. */
async function deadJob({ service }: Scene): Promise<string> {
  const ref = await service.jobs.brittle.create({}).orThrow();
  await ref.wait();
  return ref.id;
}

/** Lets handlers run. */
async function work({ service }: Scene): Promise<void> {
  service.jobs.mail.handle(async (job) => {
    await job.log(`to ${job.payload.to}`);
    return "sent";
  });
  service.jobs.brittle.handle(async () => {
    throw new Error("broken");
  });
  service.jobs.picky.handle(async () => {
    throw terminate("never");
  });
  await service.start();
}

/** The first answers to a question that everybody may answer. */
async function everybody(connection: NatsConnection, subject: string, count: number) {
  const answers: Record<string, unknown>[] = [];
  const found = await connection.requestMany(subject, "", {
    strategy: "count",
    maxMessages: count,
    maxWait: 5_000,
  });
  for await (const answer of found) answers.push(answer.json());
  return answers;
}

describe.each<StoreName>(["SQLite", "JetStream"])("the admin calls on %s", (store) => {
  it("list jobs in pages, narrowed by what a caller asks for", async () => {
    const { service, jobs, engine } = await scene(store);
    const ids: string[] = [];
    for (let n = 0; n < 5; n++)
      ids.unshift(
        (await service.jobs.mail.create({ to: `${n}@x` }, { tags: [`n${n}`] }).orThrow()).id,
      );
    const other = await service.jobs.slow.create({}).orThrow();
    const first = await jobs.list({ type: "mail", limit: 2 }).orThrow();
    expect(first).toMatchObject({ count: 5, offset: 0, limit: 2, nextOffset: 2 });
    expect(first.entries.map(({ id }) => id)).toEqual(ids.slice(0, 2));
    expect(first.entries[0]).toMatchObject({
      service: "shop",
      type: "mail",
      state: "pending",
      payload: { to: "4@x" },
      tries: 0,
      maxTries: 5,
      createdAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
      context: { traceparent: expect.any(String) },
    });
    const last = await jobs.list({ type: "mail", offset: 4, limit: 2 }).orThrow();
    expect(last.entries.map(({ id }) => id)).toEqual(ids.slice(4));
    expect(last).not.toHaveProperty("nextOffset");
    const idsOf = async (filter: object) =>
      (await jobs.list({ limit: 100, ...filter }).orThrow()).entries.map(({ id }) => id);
    expect(await idsOf({ tag: "n3" })).toEqual([ids[1]]);
    expect(await idsOf({ type: "slow", service: "shop", state: ["pending"] })).toEqual([other.id]);
    expect(await idsOf({ service: "bank" })).toEqual([]);
    expect(await idsOf({ state: ["completed"] })).toEqual([]);
    const later = new Date(engine.now() + 60_000).toISOString();
    expect(await idsOf({ since: later })).toEqual([]);
    expect(await idsOf({ until: later })).toHaveLength(6);
  });

  it("give one job with its result and log lines, and say that there is none", async () => {
    const set = await scene(store);
    await work(set);
    const ref = await set.service.jobs.mail.create({ to: "a@x" }).orThrow();
    await ref.wait().orThrow();
    const { job } = await set.jobs.get(ref.id).orThrow();
    expect(job).toMatchObject({
      id: ref.id,
      state: "completed",
      result: "sent",
      tries: 1,
      startedAt: expect.any(String),
      completedAt: expect.any(String),
      logs: [{ level: "info", message: "to a@x", timestamp: expect.any(String) }],
    });
    const missing = await set.jobs.get("nothing");
    expect(missing.isErr() && missing.error).toMatchObject({
      _tag: "NotFoundError",
      resource: "job",
      id: "nothing",
    });
  });

  it("retry what has failed, and replay or dismiss what is dead, as events of whoever asked", async () => {
    const set = await scene(store);
    await work(set);
    const { jobs, service } = set;
    const failed = await service.jobs.picky.create({}).orThrow();
    await failed.wait();
    const retried = await jobs.retry(failed.id).orThrow();
    expect(retried.job).toMatchObject({ id: failed.id, state: "pending", run: 2 });
    await failed.wait();
    expect(await actorsOf(set, failed.id, "retried")).toEqual(["admin:anna"]);

    const [first, second] = [await deadJob(set), await deadJob(set)];
    expect((await jobs.listDLQ({ limit: 10 }).orThrow()).entries.map(({ id }) => id)).toEqual([
      second,
      first,
    ]);
    const replayed = await jobs.replayDLQ(first).orThrow();
    expect(replayed.job).toMatchObject({ state: "pending", run: 2 });
    expect(await actorsOf(set, first, "retried")).toEqual(["admin:anna"]);
    const dismissed = await jobs.dismissDLQ(second).orThrow();
    expect(dismissed.job).toMatchObject({ state: "dismissed" });
    expect(await actorsOf(set, second, "dismissed")).toEqual(["admin:anna"]);
    expect((await jobs.get(second).orThrow()).job.state).toBe("dismissed");
    await service.ref(first).wait();
    const left = await jobs.listDLQ({ limit: 10 }).orThrow();
    expect(left.entries.map(({ id }) => id)).toEqual([first]);
    expect(left.entries[0]).toMatchObject({ state: "dead", lastError: "broken" });
  });

  it("cancel what waits at once, and what runs through its handler", async () => {
    const set = await scene(store);
    const { service, jobs } = set;
    const waiting = await service.jobs.mail.create({ to: "a@x" }).orThrow();
    expect((await jobs.cancel(waiting.id).orThrow()).job.state).toBe("cancelled");
    let running: () => void = () => {};
    const isRunning = new Promise<void>((resolve) => {
      running = resolve;
    });
    service.jobs.slow.handle(async ({ signal }) => {
      running();
      await new Promise((_, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason));
      });
    });
    await service.start();
    const active = await service.jobs.slow.create({}).orThrow();
    await isRunning;
    const asked = await jobs.cancel(active.id).orThrow();
    expect(asked.job).toMatchObject({ cancelRequested: true });
    await active.wait();
    const again = await jobs.cancel(active.id);
    expect(again.isErr() && again.error).toMatchObject({ _tag: "ValidationError", field: "id" });
    expect(await actorsOf(set, active.id, "cancelRequested")).toEqual(["admin:anna"]);
  });

  it("tell what goes on under a key", async () => {
    const set = await scene(store);
    const { service, jobs } = set;
    const refs = [];
    for (let n = 0; n < 3; n++)
      refs.push(await service.jobs.keyed.create({ tenant: "acme" }).orThrow());
    const ask = { service: "shop", type: "keyed", key: "tenant/acme" };
    const key = await jobs.getKey(ask).orThrow();
    expect(key).toMatchObject({
      ...ask,
      maxActive: 1,
      maxQueuedPerKey: 5,
      active: [{ jobId: refs[0]?.id, state: "reserved" }],
      queued: [refs[1]?.id, refs[2]?.id],
      queuedCount: 2,
      blocked: false,
      staleTakeoverCount: 0,
    });
    const [first] = refs;
    expect((await jobs.get(first?.id ?? "").orThrow()).job.concurrency).toEqual({
      key: "tenant/acme",
      keyHash: key.keyHash,
      staleTakeoverCount: 0,
    });
    const missing = await jobs.getKey({ ...ask, key: "tenant/other" });
    expect(missing.isErr() && missing.error).toMatchObject({
      _tag: "NotFoundError",
      resource: "key",
      id: "tenant/other",
    });
  });

  it("list services with their live workers", async () => {
    const set = await scene(store);
    await work(set);
    await (await set.service.jobs.mail.create({ to: "a@x" }).orThrow()).wait();
    const { entries, count } = await set.jobs.listServices({ limit: 10 }).orThrow();
    expect(count).toBe(1);
    expect(entries).toMatchObject([{ name: "shop", instances: 1, jobs: { completed: 1 } }]);
    const types = entries[0]?.workers.map(({ jobType }) => jobType);
    expect(types?.toSorted()).toEqual(["brittle", "mail", "picky"]);
    expect(entries[0]?.workers[0]).toMatchObject({ service: "shop", instanceId: "shop-1" });
    expect(await set.jobs.listServices({ limit: 10, offset: 1 }).orThrow()).toEqual({
      entries: [],
      count: 1,
      offset: 1,
      limit: 10,
    });
  });
});

/** Who caused the events of a name. */
async function actorsOf({ service }: Scene, id: string, name: string): Promise<readonly string[]> {
  const events = await service.ref(id).events().orThrow();
  return events.filter((event) => event.name === name).map(({ actor }) => actor);
}

describe("an input that cannot be used", () => {
  it("is refused with the field at fault", async () => {
    const { caller, place } = await scene();
    const refused = async (call: string, input: string) => {
      const answer = await caller.request(`${place.prefix}.rpc.Jobs.${call}`, input);
      expect(answer.headers?.get("Nats-Service-Error-Code")).toBe("400");
      const { type, field } = answer.json<{ type: string; field: string }>();
      expect(type).toBe("ValidationError");
      return field;
    };
    const limit = 10;
    for (const [call, input, field] of [
      ["List", {}, "limit"],
      ["List", { limit: 0 }, "limit"],
      ["List", { limit: 101 }, "limit"],
      ["List", { limit, offset: -1 }, "offset"],
      ["List", { limit, since: "yesterday" }, "since"],
      ["List", { limit, since: "2030-02-30" }, "since"],
      ["List", { limit, since: "2030-02-30T00:00:00Z" }, "since"],
      ["ListDLQ", { limit, until: "2030-04-31T00:00:00Z" }, "until"],
      ["List", { limit, since: 5 }, "since"],
      ["List", { limit, state: ["asleep"] }, "state"],
      ["List", { limit, state: "dead" }, "state"],
      ["List", { limit, colour: "red" }, "colour"],
      ["ListDLQ", { limit, state: ["dead"] }, "state"],
      ["ListServices", {}, "limit"],
      ["Get", {}, "id"],
      ["Get", { id: 5 }, "id"],
      ["Get", { id: "" }, "id"],
      ["Cancel", { id: "a.b" }, "id"],
      ["GetKey", { service: "shop", type: "keyed" }, "key"],
      ["Health", { deep: true }, "deep"],
    ] as const)
      expect([call, input, await refused(call, JSON.stringify(input))]).toEqual([
        call,
        input,
        field,
      ]);
    expect(await refused("Get", "{")).toBe("input");
    expect(await refused("Get", "[]")).toBe("input");
    expect(await refused("Get", JSON.stringify({ id: "x".repeat(70_000) }))).toBe("input");
  });

  it("is refused when the job is in another state", async () => {
    const { service, jobs } = await scene();
    const { id } = await service.jobs.mail.create({ to: "a@x" }).orThrow();
    for (const call of [jobs.retry(id), jobs.replayDLQ(id), jobs.dismissDLQ(id)]) {
      const refused = await call;
      expect(refused.isErr() && refused.error).toMatchObject({
        _tag: "ValidationError",
        field: "id",
        message: expect.stringContaining("pending"),
      });
    }
    for (const call of [jobs.retry("no"), jobs.cancel("no"), jobs.replayDLQ("no")]) {
      const refused = await call;
      expect(refused.isErr() && refused.error).toMatchObject({ _tag: "NotFoundError", id: "no" });
    }
  });
});

describe("the NATS service", () => {
  it("is found, tells what it serves, and counts", async () => {
    const { jobs, caller, place } = await scene("SQLite", { instance: "one" });
    const name = `${place.prefix}-jobs`;
    await jobs.get("nothing");
    await jobs.health();
    const identity = { name, id: "one", version: expect.stringMatching(/^\d+\.\d+\.\d+/) };
    expect(await everybody(caller, `$SRV.PING.${name}`, 1)).toEqual([
      { type: "io.nats.micro.v1.ping_response", metadata: {}, ...identity },
    ]);
    const [info] = await everybody(caller, `$SRV.INFO.${name}.one`, 1);
    expect(info).toMatchObject({ type: "io.nats.micro.v1.info_response", ...identity });
    expect(info?.endpoints).toContainEqual({
      name: "List",
      subject: `${place.prefix}.rpc.Jobs.List`,
      queue_group: name,
      metadata: {},
    });
    const [stats] = await everybody(caller, `$SRV.STATS.${name}`, 1);
    expect(stats).toMatchObject({
      type: "io.nats.micro.v1.stats_response",
      ...identity,
      started: expect.any(String),
    });
    const endpoints = stats?.endpoints as Record<string, unknown>[];
    expect(endpoints).toHaveLength(10);
    expect(endpoints.find((endpoint) => endpoint.name === "Get")).toMatchObject({
      num_requests: 1,
      num_errors: 1,
      last_error: "404:There is no job nothing; it may have been deleted.",
      processing_time: expect.any(Number),
      average_processing_time: expect.any(Number),
    });
    expect(endpoints.find((endpoint) => endpoint.name === "Health")).toMatchObject({
      num_requests: 1,
      num_errors: 0,
    });
  });

  it("shares its requests among instances", async () => {
    const { jobs, caller, place, engine } = await scene("SQLite", { instance: "one" });
    const { prefix } = place;
    const connection = await natsConnection(place.url);
    const second = new JobsServer({ connection, engine, prefix, instance: "two" });
    onTestFinished(() => second.stop());
    await second.start();
    await Promise.all(Array.from({ length: 40 }, () => jobs.health().orThrow()));
    const stats = await everybody(caller, `$SRV.STATS.${prefix}-jobs`, 2);
    expect(stats.map(({ id }) => id).toSorted()).toEqual(["one", "two"]);
    const counts = stats.map(({ endpoints }) => {
      const all = endpoints as { name: string; num_requests: number }[];
      return all.find(({ name }) => name === "Health")?.num_requests ?? 0;
    });
    expect(counts.reduce((sum, count) => sum + count)).toBe(40);
    expect(Math.min(...counts)).toBeGreaterThan(0);
  });

  it("says how the admin runtime is", async () => {
    const { jobs } = await scene("SQLite", { instance: "one" });
    const health = await jobs.health().orThrow();
    expect(health).toMatchObject({ status: "healthy", instance: "one" });
    expect(health.checks).toMatchObject([{ name: "store", status: "ok" }]);
    const lagging = { name: "projection", status: "failed", detail: "9 s behind" } as const;
    const ill = await scene("SQLite", { checks: async () => [lagging] });
    expect(await ill.jobs.health().orThrow()).toMatchObject({ status: "unhealthy" });
  });

  it("answers when lagging views show the change", async () => {
    let looks = 0;
    const wrap = (engine: Engine): Engine =>
      Object.assign(Object.create(engine) as Engine, {
        query: async (...ask: Parameters<Engine["query"]>) => {
          looks += ask[0] === "job" ? 1 : 0;
          return ask[0] === "job" && looks < 4 ? null : engine.query(...ask);
        },
        load: engine.load.bind(engine),
        append: engine.append.bind(engine),
        now: engine.now.bind(engine),
      });
    const { service, jobs } = await scene("SQLite", { wrap });
    const { id } = await service.jobs.mail.create({ to: "a@x" }).orThrow();
    expect((await jobs.cancel(id).orThrow()).job.state).toBe("cancelled");
    expect(looks).toBe(4);
  });

  it("ends a page early where the server takes no more at once", async () => {
    const { service, jobs } = await scene();
    const to = "x".repeat(200_000);
    const ids = [];
    for (let n = 0; n < 8; n++) ids.unshift((await service.jobs.mail.create({ to }).orThrow()).id);
    const seen: string[] = [];
    let pages = 0;
    for (let offset: number | undefined = 0; offset !== undefined; pages++) {
      const page = await jobs.list({ limit: 100, offset }).orThrow();
      expect(page.count).toBe(8);
      seen.push(...page.entries.map(({ id }) => id));
      offset = page.nextOffset;
    }
    expect(seen).toEqual(ids);
    expect(pages).toBe(2);
  });

  it("refuses what is too much at once, and answers what it has before it stops", async () => {
    let release: () => void = () => {};
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    const checks = async () => {
      await released;
      return [];
    };
    const { jobs, server } = await scene("SQLite", { checks });
    const many = Array.from({ length: 64 }, () => jobs.health());
    const over = await jobs.health();
    expect(over.isErr() && over.error).toMatchObject({ _tag: "UnavailableError" });
    const stopping = server.stop();
    release();
    await stopping;
    expect((await Promise.all(many)).every((result) => result.isOk())).toBe(true);
    const gone = await jobs.health();
    expect(gone.isErr() && gone.error).toMatchObject({ _tag: "UnavailableError" });
  });

  it("tells callers of a fault of the store, and the log of anything else", async () => {
    const errors: object[] = [];
    const logger = {
      info: () => {},
      warn: () => {},
      error: (fields: object) => void errors.push(fields),
    };
    const wrap = (engine: Engine): Engine =>
      Object.assign(Object.create(engine) as Engine, {
        load: () => Promise.reject(new Error("secret")),
        query: engine.query.bind(engine),
      });
    const { jobs, engine } = await scene("SQLite", { wrap, logger });
    const failed = await jobs.get("any");
    expect(failed.isErr() && failed.error._tag).toBe("UnavailableError");
    expect(failed.isErr() && failed.error.message).not.toContain("secret");
    expect(errors).toHaveLength(1);
    await engine.close();
    const closed = await jobs.list({ limit: 1 });
    expect(closed.isErr() && closed.error._tag).toBe("UnavailableError");
    expect(closed.isErr() && closed.error.message).toContain("closed");
    expect(errors).toHaveLength(1);
  });

  it("serves the calls that observers and operators are permitted", () => {
    expect([...readCalls, ...changeCalls].toSorted()).toEqual(jobsCallNames.toSorted());
  });
});
