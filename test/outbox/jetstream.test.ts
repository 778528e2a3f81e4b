// Creating in a transaction of one's own database, executing on JetStream.
import { connect } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import type { Change } from "#millrace/engine/engine.js";
import { openEngine } from "#millrace/engine/open.js";
import { startChild } from "../crash/children.js";
import { freshStoreUrl } from "../support/nats.js";
import { emptied, type Home, homes } from "./shop.js";
import { changed, shop } from "./shop-contract.js";

const keeper = { ttlMs: 300, renewMs: 100, tickMs: 50 };

async function openShop(home: Home, url: string) {
  const service = await connect(shop, { url, outbox: home.outbox, keeper });
  onTestFinished(() => service.stop());
  return service;
}

describe.for(homes)("an outbox in $name before JetStream", { timeout: 60_000 }, ({ fresh }) => {
  it("gives jobs to the stream, once, and skips what a key refuses late", async () => {
    const home = await fresh();
    const service = await openShop(home, await freshStoreUrl());
    service.jobs.charge.handle(({ payload }) => ({ paid: payload.orderId }));
    await service.start();
    const { charged, strict } = await home.within(async (tx) => ({
      charged: await service.jobs.charge.create({ orderId: "o-1" }, { tx }).orThrow(),
      strict: [
        await service.jobs.strict.create({ orderId: "o-1" }, { tx }).orThrow(),
        await service.jobs.strict.create({ orderId: "o-1" }, { tx }).orThrow(),
      ],
    }));
    expect(await charged.wait().orThrow()).toEqual({ paid: "o-1" });
    await emptied(home);
    const names = await Promise.all(
      strict.map(async (ref) => (await ref.events().orThrow()).map(({ name }) => name)),
    );
    expect(names).toEqual([["created"], ["created", "skipped"]]);
  });

  it.for(["taken", "half published", "published"])(
    "neither loses nor doubles when its relay is killed that has %s",
    async (step) => {
      const home = await fresh();
      const url = await freshStoreUrl();
      const service = await openShop(home, url);
      const jobs = Array.from({ length: 20 }, (_, index) => ({
        payload: { orderId: `o-${index % 5}` },
      }));
      const [charged = [], lined = []] = await home.within(async (tx) => {
        const created = [
          await service.jobs.charge.createMany(jobs, { tx }).orThrow(),
          await service.jobs.lined.createMany(jobs, { tx }).orThrow(),
        ];
        return created.map((each) => each.map((outcome) => outcome.unwrap().id));
      });
      const killed = startChild("../outbox/relay-child.ts", [url, home.outbox, step]);
      expect(await killed.ended).toMatchObject({ signal: "SIGKILL", errors: "" });
      expect(await home.rows()).toBe(40);
      const ran: string[] = [];
      service.jobs.lined.handle(({ id }) => void ran.push(id));
      await service.start();
      await emptied(home);
      const ids = [...charged, ...lined];
      for (const id of ids) {
        const events = await service.ref(id).events().orThrow();
        expect(events.map(({ name }) => name).filter((name) => name === "created")).toHaveLength(1);
      }
      for (const id of lined) await service.ref(id).wait().orThrow();
      // Jobs of one key run one after the other, in the order in which they were created.
      for (let key = 0; key < 5; key++) {
        const ofKey = (_: string, index: number) => index % 5 === key;
        const inOrder = lined.filter(ofKey);
        expect(ran.filter((id) => inOrder.includes(id))).toEqual(inOrder);
      }
      const listed = await service.reads.jobs({ limit: 100 }).orThrow();
      expect(listed.count).toBe(ids.length);
      expect(listed.entries.map(({ id }) => id).sort()).toEqual([...ids].sort());
    },
  );
});

it("does not bring a job back that was deleted between publishing and removing", async () => {
  const home = await homes[0]?.fresh();
  if (home === undefined) throw new Error("There is a home.");
  const url = await freshStoreUrl();
  const engine = await openEngine(url);
  onTestFinished(() => engine.close());
  // The first publishing takes effect, the job is deleted, and only then is the answer lost.
  let isFirst = true;
  const published: Change[] = [];
  const append = async (changes: readonly Change[]) => {
    const answers = await engine.append(changes);
    if (!isFirst) return answers;
    isFirst = false;
    published.push(...changes);
    await service.ref("mine").delete({ force: true }).orThrow();
    throw new Error("The answer is lost.");
  };
  const service = await connect(shop, {
    engine: changed(engine, { append }),
    outbox: home.outbox,
    keeper,
  });
  onTestFinished(() => service.stop());
  await home.within((tx) =>
    service.jobs.charge.create({ orderId: "o-1" }, { tx, id: "mine" }).orThrow(),
  );
  await service.start();
  await emptied(home);
  expect(await service.ref("mine").get()).toMatchObject({ error: { _tag: "JobNotFound" } });
  // Also when the server has forgotten that it knows the event.
  const late = published.map((change) => ({
    ...change,
    event: { ...change.event, id: "another" },
  }));
  expect(await engine.append(late)).toEqual([{ outcome: "exists" }]);
  // Who creates it anew means it.
  expect((await service.jobs.charge.create({ orderId: "o-2" }, { id: "mine" })).isOk()).toBe(true);
}, 60_000);
