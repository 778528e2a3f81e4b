// A JetStream deployment that has no room for more: who asks is told so with the remedy, nothing is half stored, and what
// finds room again is used again.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect, defineJob, defineService } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import type { Engine } from "#millrace/engine/engine.js";
import type { Logger } from "#millrace/engine/logger.js";
import { contract, noWork } from "../crash/contract.js";
import { freshPrefix, natsConnection, ownNats } from "../support/nats.js";
import { gate } from "../worker/workshop.js";

describe("a store without room", () => {
  it("refuses creates, stores nothing of them, and takes more when it has room", async () => {
    const { url, prefix, storeUrl } = await freshPrefix();
    const service = await openService(storeUrl);
    await service.jobs.quick.create(noWork, { id: "first" }).orThrow();
    const { streams } = await jetstreamManager(await natsConnection(url));
    const name = `${prefix.toUpperCase()}_JOBS`;
    const { state } = await streams.info(name);
    await streams.update(name, { max_msgs: state.messages });
    for (const type of ["quick", "failsStale"] as const) {
      const refused = await service.jobs[type].create(noWork, { id: `refused-${type}` });
      expect(refused.isErr() && refused.error).toMatchObject({
        _tag: "StoreFull",
        message: expect.stringMatching(/no room.*[Ff]ree space, or raise the limits/),
      });
    }
    const many = await service.jobs.quick.createMany(Array(20).fill({ payload: noWork })).orThrow();
    expect(many.every((each) => each.isErr() && each.error._tag === "StoreFull")).toBe(true);
    expect((await streams.info(name)).state.messages).toBe(state.messages);
    await streams.update(name, { max_msgs: -1 });
    for (const type of ["quick", "failsStale"] as const)
      await service.jobs[type].create(noWork, { id: `refused-${type}` }).orThrow();
    expect(await service.reads.counts().orThrow()).toMatchObject([{ count: 1 }, { count: 2 }]);
  });

  it("leaves no place under a key behind, so that nobody is told of a job that never was", async () => {
    const { url, prefix, storeUrl } = await freshPrefix();
    const merged = defineJob({
      payload: z.object({ k: z.number(), text: z.string().default("") }),
      keyConcurrency: { key: ["/k"], maxActive: 1 },
      queue: { maxQueuedPerKey: 0, whenFull: "coalesce" },
    });
    const service = await connect(defineService("shop", { merged }), { url: storeUrl });
    onTestFinished(() => service.stop());
    const first = await service.jobs.merged.create({ k: 1 }).orThrow();
    const { streams } = await jetstreamManager(await natsConnection(url));
    const name = `${prefix.toUpperCase()}_JOBS`;
    const { state } = await streams.info(name);
    await streams.update(name, { max_msgs: state.messages });
    const many = Array.from({ length: 20 }, (_, n) => ({ payload: { k: n + 2 } }));
    const refused = [
      await service.jobs.merged.create({ k: 100 }),
      ...(await service.jobs.merged.createMany(many).orThrow()),
    ];
    for (const each of refused) expect(each.isErr() && each.error._tag).toBe("StoreFull");
    expect(await placesIn(service)).toEqual([first.id]);
    await streams.update(name, { max_msgs: -1, max_msg_size: 4_096 });
    const large = await service.jobs.merged.create({ k: 100, text: "x".repeat(8_192) });
    expect(large.isErr() && large.error._tag).toBe("StoreFailed");
    expect(await placesIn(service)).toEqual([first.id]);
    expect(await service.jobs.merged.submit({ k: 100 }).orThrow()).toMatchObject({
      outcome: "accepted",
    });
    const again = await service.jobs.merged.createMany(many).orThrow();
    expect(again.every((each) => each.isOk())).toBe(true);
    expect(await service.jobs.merged.submit({ k: 1 }).orThrow()).toMatchObject({
      outcome: "coalesced",
      job: { id: first.id },
    });
  });

  it("says so to commands, and to the log where a keeper gives them", async () => {
    const { url, prefix, storeUrl } = await freshPrefix();
    const isTold = gate();
    const told: unknown[] = [];
    const error = (fields: object, message: string) => {
      told.push({ ...fields, message });
      isTold.open();
    };
    const logger = { info: () => {}, warn: () => {}, error };
    const service = await openService(storeUrl, { logger });
    const waiting = await service.jobs.quick.create(noWork).orThrow();
    const cancelled = await service.jobs.quick.create(noWork).orThrow();
    await cancelled.cancel().orThrow();
    const chain = await service.chains.start("linked", noWork).orThrow();
    const deadline = service.engine.now() + 1;
    const late = await service.jobs.quick.create(noWork, { deadline }).orThrow();
    const { streams } = await jetstreamManager(await natsConnection(url));
    const name = `${prefix.toUpperCase()}_JOBS`;
    const { state } = await streams.info(name);
    await streams.update(name, { max_msgs: state.messages });
    for (const command of [
      waiting.cancel(),
      cancelled.retry(),
      waiting.delete({ force: true }),
      service.chains.delete(chain.id, { force: true }),
    ])
      expect(await command).toMatchObject({
        error: { _tag: "StoreFull", message: expect.stringMatching(/no room.*raise the limits/) },
      });
    await service.start();
    await isTold.opened;
    expect(told).toMatchObject([
      { error: { _tag: "StoreFull" }, message: expect.stringMatching(/keeper could not move on/) },
    ]);
    await streams.update(name, { max_msgs: -1 });
    expect(await late.wait()).toMatchObject({ error: { state: "expired" } });
    expect(await waiting.cancel().orThrow()).toMatchObject({ outcome: "cancelled" });
    expect(told).toHaveLength(1);
  });

  it("is told apart when the disk is full, or what the server may use of it", async () => {
    const server = await ownNats({ storeBytesMax: 2 * 1024 * 1024 });
    const service = await openService(server.url);
    const payload = { ...noWork, key: "x".repeat(200 * 1024) };
    const created: string[] = [];
    for (;;) {
      const outcome = await service.jobs.quick.create(payload);
      if (outcome.isOk()) created.push(outcome.value.id);
      else {
        expect(outcome.error._tag).toBe("StoreFull");
        break;
      }
    }
    expect(created.length).toBeGreaterThan(3);
    const loaded = await service.engine.load(created);
    expect(loaded.every((job) => job !== null)).toBe(true);
  });

  it("is told apart when the account has reached its limit, and leaves no place under a key behind", async () => {
    const account =
      "SHOP: { jetstream: { max_store: 4MB }, users: [ { user: shop, password: shop } ] }";
    const server = await ownNats({ config: `accounts { ${account} }` });
    const keyed = defineJob({
      payload: z.object({ text: z.string() }),
      keyConcurrency: { key: ["all"], maxActive: 1 },
      queue: { maxQueuedPerKey: 100 },
    });
    const url = `${server.url.replace("//", "//shop:shop@")}?projection=memory:`;
    const shop = defineService("shop", { keyed, plain: defineJob({ payload: z.unknown() }) });
    const service = await connect(shop, { url });
    onTestFinished(() => service.stop());
    const text = "x".repeat(200 * 1024);
    const stored = [];
    let refused = await service.jobs.keyed.create({ text });
    for (; refused.isOk(); refused = await service.jobs.keyed.create({ text }))
      stored.push(refused.value);
    expect(refused.error).toMatchObject({
      _tag: "StoreFull",
      message: expect.stringMatching(/resource limits exceeded for account.*the account/),
    });
    expect(stored.length).toBeGreaterThan(3);
    const many = await service.jobs.plain.createMany(Array(4).fill({ payload: text })).orThrow();
    expect(many.every((each) => each.isErr() && each.error._tag === "StoreFull")).toBe(true);
    expect(await placesIn(service)).toEqual(stored.map(({ id }) => id));
    expect((await service.reads.jobs().orThrow()).count).toBe(stored.length);
    await stored.at(-1)?.delete({ force: true }).orThrow();
    await service.jobs.keyed.create({ text }).orThrow();
  });
});

/** The jobs that have places under keys. */
async function placesIn({ engine }: { readonly engine: Engine }): Promise<readonly string[]> {
  const keys = await engine.query("records", { prefix: "key/" });
  return keys.flatMap(({ body }) =>
    (body as unknown as { members: { id: string }[] }).members.map(({ id }) => id),
  );
}

/** A service whose read model is gone after the test. */
async function openService(url: string, options: { readonly logger?: Logger } = {}) {
  const folder = await mkdtemp(join(tmpdir(), "millrace-room-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const view = `projection=file:${join(folder, "view.db")}`;
  const place = `${url}${url.includes("?") ? "&" : "?"}${view}`;
  const service = await connect(contract, { url: place, ...options });
  onTestFinished(() => service.stop());
  return service;
}
