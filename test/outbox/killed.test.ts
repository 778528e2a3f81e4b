// A relay that is killed at any point neither loses nor doubles a job.
import { connect } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { openEngine } from "#millrace/engine/open.js";
import { startChild } from "../crash/children.js";
import { sqliteStore } from "../transactions/shop-file.js";
import { emptied, type Home, homes } from "./shop.js";
import { changed, shop } from "./shop-contract.js";

/** A service on a file that several processes share, and that claims to take no part in transactions. */
async function openFileShop(home: Home, url: string) {
  const engine = await openEngine(url);
  onTestFinished(() => engine.close());
  const capabilities = { ...engine.capabilities, transactions: false };
  const service = await connect(shop, {
    engine: changed(engine, { capabilities }),
    outbox: home.outbox,
    keeper: { ttlMs: 300, renewMs: 100, tickMs: 50 },
  });
  onTestFinished(() => service.stop());
  return service;
}

describe.for(homes)("a relay of an outbox in $name", ({ fresh }) => {
  it.for(["taken", "half published", "published"])(
    "that is killed when it has %s",
    async (step) => {
      const home = await fresh();
      const { url } = await sqliteStore();
      const service = await openFileShop(home, url);
      const ids = await home.within(async (tx) => {
        const jobs = Array.from({ length: 20 }, (_, index) => ({
          payload: { orderId: `o-${index}` },
        }));
        const charged = await service.jobs.charge.createMany(jobs, { tx }).orThrow();
        const lined = await service.jobs.lined.createMany([...jobs, ...jobs], { tx }).orThrow();
        return [...charged, ...lined].map((each) => each.unwrap().id);
      });
      const killed = startChild("../outbox/relay-child.ts", [url, home.outbox, step]);
      expect(await killed.ended).toMatchObject({ signal: "SIGKILL", errors: "" });
      expect(await home.rows()).toBe(60);
      await service.start();
      await emptied(home);
      await expectEachOnce(service, ids);
    },
  );

  it("that is killed again and again while callers commit", async () => {
    const home = await fresh();
    const { url } = await sqliteStore();
    const service = await openFileShop(home, url);
    const ids: string[] = [];
    for (let round = 0; round < 2; round++) {
      const relay = startChild("../outbox/relay-child.ts", [url, home.outbox, "none"]);
      await relay.said("ready");
      for (let created = 0; created < 50; created++) {
        const payload = { orderId: `o-${created % 5}` };
        ids.push(
          await home.within(
            async (tx) => (await service.jobs.lined.create(payload, { tx }).orThrow()).id,
          ),
        );
        if (created === 20 + round * 15) relay.child.kill("SIGKILL");
      }
      await relay.ended;
    }
    await service.start();
    await emptied(home);
    await expectEachOnce(service, ids);
  });
});

/** Every job is there, created once, in the order of its key, and there are no others. */
async function expectEachOnce(
  service: Awaited<ReturnType<typeof openFileShop>>,
  ids: readonly string[],
): Promise<void> {
  const stop = new AbortController();
  const created: string[] = [];
  const byKey = new Map<string, number[]>();
  const head = await service.engine.head();
  for await (const { cursor, event } of service.engine.tail(null, stop.signal)) {
    if (event.name === "created") {
      created.push(event.jobId);
      const key = event.key?.key ?? event.jobId;
      byKey.set(key, [...(byKey.get(key) ?? []), ids.indexOf(event.jobId)]);
    }
    if (cursor === head) stop.abort();
  }
  expect([...created].sort()).toEqual([...ids].sort());
  for (const places of byKey.values()) expect(places).toEqual([...places].sort((a, b) => a - b));
}
