// Records on JetStream: what has expired or was deleted does not stay on the server for ever.
import { describe, expect, it } from "vitest";
import { ids } from "#millrace/conformance/environment.js";
import type { Job } from "#millrace/core/job.js";
import { deploymentNames } from "#millrace/engine/nats/streams.js";
import { natsConnection } from "../support/nats.js";
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
});
