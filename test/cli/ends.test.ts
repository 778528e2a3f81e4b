// Ends that are waited for on the command line where not all is as usual: jobs that are gone or were there before, long
// waits, and callers who may not see events.
import { defineJob, defineService } from "millrace";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { freshPlace as freshStore, openServer, sqlite } from "../http/api.js";
import { freshPlace, json, type Place, run, start } from "./millrace.js";
import { bakeryModule } from "./tour.js";

const kitchen = defineService("kitchen", {
  order: defineJob({ payload: z.object({}), continuations: ["cook", "clean"] }),
  cook: defineJob({ payload: z.object({}), result: z.object({ cooked: z.number() }) }),
  /** Once at a time, and once more after that. */
  clean: defineJob({
    payload: z.object({}),
    result: z.object({ clean: z.boolean() }),
    keyConcurrency: { key: ["kitchen"], maxActive: 1 },
    queue: { maxQueuedPerKey: 1, whenFull: "coalesce" },
  }),
});

interface Created {
  readonly id: string;
}

async function openKitchen() {
  const { folder } = await freshPlace();
  const { api, url } = await openServer({ url: await freshStore(sqlite), keeper: false });
  expect((await api.accept(kitchen)).status).toBe(200);
  const place: Place = { folder, environment: { MILLRACE_SERVER: url } };
  return { api, place };
}

type Kitchen = Awaited<ReturnType<typeof openKitchen>>;

/** Begins a job of a type, whose handler has said something by then. */
async function begin({ api }: Kitchen, type: string) {
  const { job, token } = await api.claimOne("kitchen", type);
  await api.post(`/v1/work/jobs/${job.id}/logs`, { token, entries: [{ message: `${type} runs` }] });
  const end = (result?: unknown) => api.settle(job.id, token, { outcome: "completed", result });
  return { id: job.id as string, end };
}

/** Completes the current job of a chain with the next one. */
async function goOn({ api }: Kitchen, id: string, type = "cook") {
  const { status } = await api.post(`/v1/chains/${id}/complete`, {
    continueWith: { type, payload: {} },
  });
  expect(status).toBe(200);
}

/** Deletes a job, as one is that its type discards at its end. */
async function remove({ api }: Kitchen, id: string) {
  expect((await api.delete(`/v1/jobs/${id}`)).status).toBe(200);
}

describe("a chain", () => {
  it("is followed although one of its jobs is gone as soon as it has ended", async () => {
    const kit = await openKitchen();
    const waiting = start(kit.place, ["chain", "start", "kitchen", "order", "{}", "--wait"]);
    const { id } = await begin(kit, "order");
    await waiting.says("order runs");
    // All of it has happened when the command looks again.
    waiting.child.kill("SIGSTOP");
    await goOn(kit, id);
    await remove(kit, id);
    waiting.child.kill("SIGCONT");
    const cook = await begin(kit, "cook");
    await waiting.says("cook runs");
    await cook.end({ cooked: 3 });
    const { code, out } = await waiting.ended;
    expect([code, JSON.parse(out)]).toEqual([0, { cooked: 3 }]);
  });

  it("that is deleted is said to be gone", async () => {
    const kit = await openKitchen();
    const waiting = start(kit.place, ["chain", "start", "kitchen", "cook", "{}", "--wait"]);
    const { id } = await begin(kit, "cook");
    await waiting.says("cook runs");
    await kit.api.delete(`/v1/chains/${id}?force=true`);
    expect(await waiting.ended).toMatchObject({ code: 3, out: "" });
  });

  it("that was started before can be waited for", async () => {
    const kit = await openKitchen();
    const words = ["chain", "start", "kitchen", "order", "{}"];
    const { id } = await json<Created>(kit.place, ...words);
    const wait = ["chain", "wait", id];
    const late = await run(kit.place, [...wait, "--timeout", "300ms"]);
    expect(late).toMatchObject({ code: 7, err: expect.stringContaining(`Chain ${id} has not`) });
    const waiting = [start(kit.place, wait), start(kit.place, [...wait, "--json"])] as const;
    await begin(kit, "order");
    for (const one of waiting) await one.says("order runs");
    await goOn(kit, id);
    const cook = await begin(kit, "cook");
    for (const one of waiting) await one.says("cook runs");
    await cook.end({ cooked: 2 });
    const [text, document] = await Promise.all(waiting.map(({ ended }) => ended));
    expect([text?.code, JSON.parse(text?.out ?? "")]).toEqual([0, { cooked: 2 }]);
    expect(document?.code).toBe(0);
    expect(JSON.parse(document?.out ?? "")).toMatchObject({ id, output: { cooked: 2 } });
    expect(await run(kit.place, ["chain", "wait", "none"])).toMatchObject({ code: 3, out: "" });
  });
});

describe("the start of a chain for which a job stands that was there before", () => {
  const key = ["--idempotency-key", "monday"];

  it("waits for a job that is no chain and holds the idempotency key", async () => {
    const kit = await openKitchen();
    const { id } = await json<Created>(kit.place, "job", "create", "kitchen", "cook", "{}", ...key);
    const words = ["chain", "start", "kitchen", "cook", "{}", ...key, "--wait"];
    const waiting = start(kit.place, words);
    await waiting.says(`${id} existing`);
    await (await begin(kit, "cook")).end({ cooked: 1 });
    const { code, out, err } = await waiting.ended;
    expect([code, JSON.parse(out)]).toEqual([0, { cooked: 1 }]);
    expect(err).toContain(`Job ${id} is no chain`);
  });

  it("waits for a job that is no chain and does the same work", async () => {
    const kit = await openKitchen();
    const create = ["job", "create", "kitchen", "clean", "{}"];
    await json(kit.place, ...create);
    const first = await begin(kit, "clean");
    const { id } = await json<Created>(kit.place, ...create);
    const waiting = start(kit.place, ["chain", "start", "kitchen", "clean", "{}", "--wait"]);
    await waiting.says(`${id} coalesced`);
    await first.end({ clean: false });
    await (await begin(kit, "clean")).end({ clean: true });
    const { code, out } = await waiting.ended;
    expect([code, JSON.parse(out)]).toEqual([0, { clean: true }]);
  });

  it("waits for the chain that such a job is a part of", async () => {
    const kit = await openKitchen();
    const clean = ["chain", "start", "kitchen", "clean", "{}"];
    await json(kit.place, ...clean);
    const first = await begin(kit, "clean");
    const { id: chain } = await json<Created>(
      kit.place,
      "chain",
      "start",
      "kitchen",
      "order",
      "{}",
    );
    await goOn(kit, chain, "clean");
    const waiting = start(kit.place, [...clean, "--wait", "--json"]);
    await waiting.says("coalesced");
    await first.end({ clean: false });
    await (await begin(kit, "clean")).end({ clean: true });
    const { code, out } = await waiting.ended;
    expect(code).toBe(0);
    expect(JSON.parse(out)).toMatchObject({ id: chain, output: { clean: true }, count: 2 });
  });

  it("waits for the chain itself when its first job is gone", async () => {
    const kit = await openKitchen();
    const words = ["chain", "start", "kitchen", "order", "{}", ...key];
    const { id } = await json<Created>(kit.place, ...words);
    await goOn(kit, id);
    await remove(kit, id);
    const waiting = start(kit.place, [...words, "--wait"]);
    await waiting.says(`${id} existing`);
    await (await begin(kit, "cook")).end({ cooked: 6 });
    const { code, out } = await waiting.ended;
    expect([code, JSON.parse(out)]).toEqual([0, { cooked: 6 }]);
  });
});

describe("a long time to wait", () => {
  it("is not over at once", async () => {
    const kit = await openKitchen();
    const waiting = start(kit.place, [
      "chain",
      "start",
      "kitchen",
      "cook",
      "--wait",
      "--timeout",
      "30d",
    ]);
    const watched = await begin(kit, "cook");
    await waiting.says("cook runs");
    const watching = start(kit.place, ["job", "watch", watched.id, "--timeout", "30d"]);
    await watching.says("logged");
    await watched.end({ cooked: 1 });
    expect(await waiting.ended).toMatchObject({
      code: 0,
      err: expect.not.stringContaining("Timeout"),
    });
    expect(await watching.ended).toMatchObject({ code: 0, err: "" });
  });
});

describe("a caller who may not see events", () => {
  it("waits for ends all the same", async () => {
    const store = await freshPlace();
    await json(store, "contract", "accept", bakeryModule);
    const server = start(store, ["server", "--bind", "127.0.0.1:0", "--auth", "token"]);
    const address = await server.says(/(http:\/\/127\.0\.0\.1:\d+)/);
    const may = "admin.read,admin.mutate";
    const made = await run(store, ["token", "create", "caller", "--may", may]);
    const environment = { MILLRACE_SERVER: address, MILLRACE_TOKEN: made.out.trim() };
    const place = { folder: store.folder, environment };
    expect(await run(place, ["job", "watch"])).toMatchObject({ code: 8 });
    const later = ["bakery", "order", "{}", "--delay", "1h", "--wait"];
    const chain = start(place, ["chain", "start", ...later]);
    const bake = ["bakery", "bake", '{"loaves":1}', "--delay", "1h", "--wait"];
    const job = start(place, ["job", "create", ...bake]);
    const ids = await Promise.all([chain, job].map((one) => one.says(/([0-9A-Z]{26}) accepted/)));
    const [chainId = "", jobId = ""] = ids;
    expect(await run(place, ["chain", "wait", chainId, "--timeout", "300ms"])).toMatchObject({
      code: 7,
    });
    const goOn = ["--continue-with", "bake", "--payload", '{"loaves":1}', "--delay", "1h"];
    await json(place, "chain", "complete", chainId, ...goOn);
    const result = ["--result", '{"baked":1}'];
    await json(place, "chain", "complete", chainId, ...result);
    await json(place, "job", "complete", jobId, ...result);
    for (const { code, out } of await Promise.all([chain.ended, job.ended]))
      expect([code, JSON.parse(out)]).toEqual([0, { baked: 1 }]);
  });
});
