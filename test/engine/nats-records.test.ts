// Records on JetStream: what has expired or was deleted does not stay on the server for ever.
import { describe, expect, it } from "vitest";
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
});
