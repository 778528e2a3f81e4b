// The claim loop: never more jobs than places, no time lost, and quiet when there is nothing to do.
import { expect, it } from "vitest";
import { z } from "zod";
import { createClient } from "#millrace/client/client.js";
import { defineJob, defineService, versions } from "#millrace/contract/define.js";
import { boundJobs } from "#millrace/contract/definition.js";
import type { ClaimAsk } from "#millrace/engine/engine.js";
import { createWorker } from "#millrace/worker/worker.js";
import { gate, Workshop } from "./workshop.js";

const payload = z.object({});

function shop() {
  return new Workshop(
    defineService("shop", {
      mail: defineJob({ payload, concurrency: 3 }),
      print: defineJob({ payload, concurrency: 3 }),
      many: defineJob({ payload, concurrency: 200 }),
      capped: defineJob({ payload, maxActive: 2 }),
      moved: versions(defineJob({ payload }), defineJob({ payload, version: 2 })),
    }),
  );
}

/** A handler that counts how many run at once and waits until it is let go. */
function counting() {
  const state = { running: 0, most: 0, done: 0 };
  const waiting: (() => void)[] = [];
  const handler = async () => {
    state.running++;
    state.most = Math.max(state.most, state.running);
    await new Promise<void>((resolve) => waiting.push(resolve));
    state.running--;
    state.done++;
  };
  return { state, handler, letGo: () => waiting.shift()?.() };
}

it("runs no more jobs of a type than it has places for, and refills them at once", async () => {
  const workshop = shop();
  const { state, handler, letGo } = counting();
  for (let index = 0; index < 7; index++) await workshop.create("mail");
  await workshop.start({ mail: handler });
  expect(state.running).toBe(3);
  for (let index = 0; index < 7; index++) {
    letGo();
    await workshop.turn();
  }
  expect(state).toEqual({ running: 0, most: 3, done: 7 });
});

it("runs no more jobs of all types than the process has places for", async () => {
  const workshop = shop();
  const { state, handler, letGo } = counting();
  for (let index = 0; index < 5; index++) {
    await workshop.create("mail");
    await workshop.create("print");
  }
  await workshop.start({ mail: handler, print: handler }, { concurrency: 4 });
  expect(state.running).toBe(4);
  for (let index = 0; index < 10; index++) {
    letGo();
    await workshop.turn();
  }
  expect(state).toEqual({ running: 0, most: 4, done: 10 });
});

it("keeps a limit of the whole cluster over two workers", async () => {
  const workshop = shop();
  const { state, handler, letGo } = counting();
  for (let index = 0; index < 6; index++) await workshop.create("capped");
  await workshop.start({ capped: handler }, { instance: "w1" });
  await workshop.start({ capped: handler }, { instance: "w2" });
  expect(state.running).toBe(2);
  for (let index = 0; index < 6; index++) {
    letGo();
    await workshop.turn();
  }
  expect(state).toEqual({ running: 0, most: 2, done: 6 });
});

it("asks for all lanes in one call, and never twice at once", async () => {
  const workshop = shop();
  const asks: ClaimAsk[] = [];
  let underWay = 0;
  let most = 0;
  const claim = workshop.engine.claim.bind(workshop.engine);
  workshop.engine.claim = async (ask) => {
    asks.push(ask);
    underWay++;
    most = Math.max(most, underWay);
    const answer = await claim(ask);
    underWay--;
    return answer;
  };
  await workshop.start({ mail: () => {}, print: () => {} });
  expect(asks[0]).toMatchObject({ worker: "w1", limit: 6 });
  expect(asks[0]?.lanes.map(({ type, free }) => [type, free])).toEqual([
    ["mail", 3],
    ["print", 3],
  ]);
  for (let index = 0; index < 20; index++) await workshop.create("mail");
  await workshop.turn();
  expect(most).toBe(1);
});

it("fills all its places at once, although one claim takes only a part", async () => {
  const workshop = shop();
  const { state, handler } = counting();
  workshop.engine.wake = () => () => {};
  for (let index = 0; index < 250; index++) await workshop.create("many");
  await workshop.start({ many: handler });
  expect(state.running).toBe(200);
  expect(workshop.count("claim")).toBe(3);
});

/** Works off full claims of a slow store. Gives how many claims were under way at most, and beside each handler. */
async function claimsUnderWay(workshop: ReturnType<typeof shop>) {
  const claim = workshop.engine.claim.bind(workshop.engine);
  let underWay = 0;
  let most = 0;
  workshop.engine.claim = async (ask) => {
    underWay++;
    most = Math.max(most, underWay);
    const answer = await claim(ask);
    await new Promise((resolve) => setImmediate(resolve));
    underWay--;
    return answer;
  };
  const besides: number[] = [];
  for (let index = 0; index < 500; index++) await workshop.create("many");
  const all = gate();
  const handler = () => {
    if (besides.push(underWay) === 500) all.open();
  };
  await workshop.start({ many: handler });
  await all.opened;
  return { most, besides };
}

it("lets the store look for more jobs while it hands over those of a full claim", async () => {
  const { most, besides } = await claimsUnderWay(shop());
  const isFull = (index: number) => index < 400;
  expect(besides.filter((count, index) => isFull(index) && count === 0)).toEqual([]);
  expect(most).toBe(2);
});

it("keeps as many claims under way as the store wishes", async () => {
  const workshop = shop();
  Object.assign(workshop.engine, { claimsAtOnce: 3 });
  expect((await claimsUnderWay(workshop)).most).toBe(3);
});

it("asks again when a job came while it was asking", async () => {
  const workshop = shop();
  const claim = workshop.engine.claim.bind(workshop.engine);
  const reply = gate();
  workshop.engine.claim = async (ask) => {
    const answer = await claim(ask);
    await reply.opened;
    return answer;
  };
  await workshop.start({ mail: () => "done" });
  const id = await workshop.create("mail");
  await workshop.turn();
  reply.open();
  await workshop.turn();
  expect((await workshop.job(id)).state).toBe("completed");
});

it("gives every version of a type its own handler", async () => {
  const workshop = shop();
  const old = await workshop.createVersion("moved", 1);
  const current = await workshop.createVersion("moved", 2);
  await workshop.start({ "moved@1": () => "old", "moved@2": () => "new" });
  expect((await workshop.job(old)).result).toBe("old");
  expect((await workshop.job(current)).result).toBe("new");
});

it("refuses two handlers for one version of a type", () => {
  const workshop = shop();
  const [bound] = boundJobs(workshop.contract);
  if (bound === undefined) throw new Error("The contract is empty.");
  const job = { bound, handler: () => {} };
  const client = createClient(workshop.runtime("w1"), workshop.contract);
  expect(() => createWorker({ client, jobs: [job, job] })).toThrow("mail has two handlers");
});

it("starts a new job at once, and a delayed one when it is due", async () => {
  const workshop = shop();
  const startedAt: number[] = [];
  await workshop.start({
    mail: () => {
      startedAt.push(workshop.clock.monotonic());
    },
  });
  await workshop.create("mail", {}, { delayMs: 777 });
  await workshop.create("mail");
  await workshop.turn();
  expect(startedAt).toEqual([0]);
  await workshop.clock.advance(776);
  expect(startedAt).toEqual([0]);
  await workshop.clock.advance(1);
  expect(startedAt).toEqual([0, 777]);
});

it("asks rarely while it is idle, and finds work although a hint was lost", async () => {
  const workshop = shop();
  workshop.engine.wake = () => () => {};
  await workshop.start({ mail: () => "done" });
  await workshop.clock.advance(60_000);
  expect(workshop.count("claim")).toBeLessThanOrEqual(15);
  const id = await workshop.create("mail");
  await workshop.clock.advance(5_000);
  expect((await workshop.job(id)).state).toBe("completed");
});

it("asks nothing while all its places are taken", async () => {
  const workshop = shop();
  const work = gate();
  for (let index = 0; index < 5; index++) await workshop.create("mail");
  await workshop.start({ mail: () => work.opened });
  const before = workshop.count("claim");
  await workshop.clock.advance(60_000);
  expect(workshop.count("claim")).toBe(before);
  work.open();
});

it("keeps asking while the store is away, and says so once", async () => {
  const workshop = shop();
  workshop.trouble.claim = "refuse";
  await workshop.start({ mail: () => "done" });
  const id = await workshop.create("mail");
  await workshop.clock.advance(30_000);
  expect(workshop.logged("could not be claimed")).toHaveLength(1);
  workshop.trouble.claim = "none";
  await workshop.clock.advance(5_000);
  expect((await workshop.job(id)).state).toBe("completed");
  expect(workshop.logged("can be claimed again")).toHaveLength(1);
});
