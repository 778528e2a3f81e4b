// Records on JetStream: what has expired or was deleted does not stay on the server for ever.
import { connect, defineJob, defineService } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { ids } from "#millrace/conformance/environment.js";
import type { Job } from "#millrace/core/job.js";
import { laneOf } from "#millrace/core/order.js";
import { deploymentNames } from "#millrace/engine/nats/streams.js";
import { natsConnection, ownNats } from "../support/nats.js";
import { Deployment } from "../support/nats-engine.js";

/** For how long the server keeps the newest word on a record, by the message itself. */
async function lifetimeOf({ url, prefix }: Deployment, key: string): Promise<string | undefined> {
  const connection = await natsConnection(url);
  const { recordsStream, recordsBucket } = deploymentNames(prefix);
  const subject = `$KV.${recordsBucket}.${key}`;
  const answer = await connection.request(`$JS.API.DIRECT.GET.${recordsStream}.${subject}`);
  return answer.headers?.get("Nats-TTL") || undefined;
}

describe("a record on the server", () => {
  it("is forgotten a while after it has expired", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const record = { id: "note/shop/a", body: { text: "soon over" } };
    await env.engine.swap([{ ...record, expect: 0, expiresAt: env.now + 5_000 }]);
    expect(await lifetimeOf(deployment, "shop.note.a")).toBe("65s");
    await env.engine.swap([{ ...record, expect: 1, expiresAt: env.now - 5_000 }]);
    expect(await lifetimeOf(deployment, "shop.note.a")).toBe("60s");
  });

  it("stays where it does not expire, and its deletion is forgotten after a day", async () => {
    const deployment = await Deployment.make();
    const { engine } = deployment.env;
    await engine.swap([{ id: "note/shop/b", expect: 0, body: { text: "stays" } }]);
    expect(await lifetimeOf(deployment, "shop.note.b")).toBeUndefined();
    await engine.swap([{ id: "note/shop/b", expect: 1, body: null }]);
    expect(await lifetimeOf(deployment, "shop.note.b")).toBe("86400s");
  });

  it("of a key stays while somebody is under it, and is forgotten a day after nobody is", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const key = env.key("k");
    await env.create({ key });
    expect(await lifetimeOf(deployment, `shop.key.${key.hash}`)).toBeUndefined();
    await env.complete(await env.claimOne());
    expect(await lifetimeOf(deployment, `shop.key.${key.hash}`)).toBe("86460s");
    await env.create({ key });
    expect(await lifetimeOf(deployment, `shop.key.${key.hash}`)).toBeUndefined();
  });

  it("of a process's leases holds no more than it holds, and is forgotten when they have run out", async () => {
    const deployment = await Deployment.make();
    const { env } = deployment;
    const connection = await natsConnection(deployment.url);
    const { recordsStream, recordsBucket } = deploymentNames(deployment.prefix);
    const subject = `$JS.API.DIRECT.GET.${recordsStream}.$KV.${recordsBucket}.shop.leases.>`;
    const renewed = async (jobs: readonly Job[]) => {
      await env.engine.renew(jobs.map((job) => ({ job, token: job.token, leaseMs: 30_000 })));
      const answer = await connection.request(subject);
      expect(answer.headers?.get("Nats-TTL")).toBe("690s");
      return Object.keys(answer.json<{ body: object }>().body).sort();
    };
    await env.createMany(5);
    const held = await env.claim();
    expect(await renewed(held)).toEqual([...ids(held)].sort());
    for (const job of held.slice(1)) await env.complete(job);
    expect(await renewed(held.slice(0, 1))).toEqual(ids(held.slice(0, 1)));
  });

  it("of leases is one of several where a process holds many, so that each fits into a message", {
    timeout: 60_000,
  }, async () => {
    const server = await ownNats({ config: "max_payload: 330000" });
    const shop = defineService("shop", { work: defineJob({ payload: z.object({}) }) });
    const service = await connect(shop, { url: `${server.url}?projection=memory:` });
    onTestFinished(() => service.stop());
    const { engine } = service;
    const held = async (count: number) => {
      const wishes = Array.from({ length: count }, () => ({ payload: {} }));
      for (let start = 0; start < count; start += 1_000)
        await service.jobs.work.createMany(wishes.slice(start, start + 1_000));
      const names = { service: "shop", type: "work", queue: "work" };
      const lane = laneOf({ ...names, typeVersion: 1 });
      const ask = { ...names, lane, free: count, leaseMs: 30_000 };
      const { jobs } = await engine.claim({ worker: "w", lanes: [ask], limit: count });
      expect(jobs).toHaveLength(count);
      return jobs.map(({ job }) => ({ job, token: job.token, leaseMs: 30_000 }));
    };
    const sheets = async () => (await engine.query("records", { prefix: "leases/" })).length;
    const few = await held(10);
    expect(await engine.renew(few)).toEqual(
      few.map(() => expect.objectContaining({ outcome: "held" })),
    );
    expect(await sheets()).toBe(1);
    const many = [...few, ...(await held(5_200))];
    const outcomes = await engine.renew(many);
    expect(outcomes.filter(({ outcome }) => outcome === "held")).toHaveLength(many.length);
    expect(await sheets()).toBe(3);
  });
});
