// Completions on the command line: what they may say of the job that goes on, and what they refuse before anything is sent.
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { freshPlace, json, type Place, run } from "./millrace.js";
import { bakeryModule } from "./tour.js";

interface Chain {
  readonly id: string;
  readonly current: { readonly id: string; readonly runAt?: string; readonly createdAt?: string };
}

async function freshStore(): Promise<Place> {
  const { folder } = await freshPlace();
  return { folder, environment: { MILLRACE_URL: `file:${join(folder, "jobs.db")}` } };
}

/** A store that knows the bakery's contract, and a chain in it that nobody works on. */
async function freshChain() {
  const place = await freshStore();
  await json(place, "contract", "accept", bakeryModule);
  const { id } = await json<Chain>(place, "chain", "start", "bakery", "order", "{}");
  return { place, id };
}

const goOn = ["--continue-with", "bake", "--payload", '{"loaves":1}'];

describe("the job that goes on", () => {
  it.for(["chain", "job"])("is made by %s complete as by a create", async (what) => {
    const { place, id } = await freshChain();
    const wishes = ["--priority", "7", "--max-tries", "2", "--tag", "vip,late"];
    const times = ["--run-at", "2098-01-01T00:00:00Z", "--deadline", "2099-01-01T00:00:00Z"];
    await json(place, what, "complete", id, ...goOn, ...wishes, ...times);
    const { current } = await json<Chain>(place, "chain", "get", id);
    expect(current).toMatchObject({
      ...{ type: "bake", payload: { loaves: 1 }, priority: 7, maxTries: 2, tags: ["vip", "late"] },
      ...{ runAt: "2098-01-01T00:00:00.000Z", deadline: "2099-01-01T00:00:00.000Z" },
    });
  });

  it("may wait for a while", async () => {
    const { place, id } = await freshChain();
    await json(place, "chain", "complete", id, ...goOn, "--delay", "1h");
    const { current } = await json<Chain>(place, "chain", "get", id);
    const { runAt = "", createdAt = "" } = current;
    expect(Date.parse(runAt) - Date.parse(createdAt)).toBe(60 * 60 * 1_000);
  });
});

it("what a completion cannot be is refused before anything is sent", async () => {
  const { place, id } = await freshChain();
  const isFor = "is for the job that --continue-with names.";
  const strays = [
    ["chain", "--payload", "{}"],
    ["job", "--priority", "1"],
    ["chain", "--delay", "1h"],
    ["job", "--run-at", "2098-01-01T00:00:00Z"],
    ["chain", "--deadline", "2098-01-01T00:00:00Z"],
    ["job", "--max-tries", "2"],
    ["chain", "--tag", "vip"],
    ["job", "--blocker", "a"],
    ["chain", "--blocker-chain", "a"],
  ].map(([what = "", name, value = ""]) => ({
    words: [what, "complete", id, name ?? "", value],
    says: `${name} ${isFor}`,
  }));
  const both = ["chain", "job"].map((what) => ({
    words: [what, "complete", id, ...goOn, "--result", "{}"],
    says: "give --result or --continue-with",
  }));
  for (const { words, says } of [...strays, ...both]) {
    const { code, out, err } = await run(place, words);
    expect({ code, out }, words.join(" ")).toEqual({ code: 2, out: "" });
    expect(err).toContain(says);
  }
  expect(await json(place, "chain", "get", id)).toMatchObject({ state: "pending", count: 1 });
}, 60_000);

it("a blocker that is empty is refused, because the job would not wait", async () => {
  const place = await freshStore();
  const create = ["job", "create", "shop", "ship", "{}"];
  const empty = ["", "a,", "invoice=", ":continue"].map((value) => ["--blocker", value]);
  for (const words of [...empty, ["--blocker-chain", ""]]) {
    const { code, out, err } = await run(place, [...create, ...words]);
    expect({ code, out }, words.join(" ")).toEqual({ code: 2, out: "" });
    expect(err).toContain("Give id or name=id");
  }
  expect(await json(place, "job", "list")).toMatchObject({ count: 0 });
}, 30_000);

it("the job that was decided about is sent, and it is told when the chain has gone on", async () => {
  const { folder } = await freshPlace();
  const bodies: unknown[] = [];
  const message = "Chain c-1 is at job j-2.";
  const error = { code: "conflict", message, details: { reason: "not_current" } };
  const server = createServer(async (request, response) => {
    let text = "";
    for await (const part of request) text += part;
    bodies.push(JSON.parse(text));
    response.writeHead(409, { "content-type": "application/json" });
    response.end(JSON.stringify({ error }));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const place = { folder, environment: { MILLRACE_SERVER: `http://127.0.0.1:${port}` } };
  const words = ["chain", "complete", "c-1", "--job", "j-1"];
  const late = await run(place, [...words, "--result", '{"approved":true}', "--wait"]);
  expect(late).toMatchObject({ code: 4, out: "", err: expect.stringContaining(message) });
  await run(place, [...words, ...goOn]);
  expect(bodies).toEqual([
    { jobId: "j-1", result: { approved: true } },
    { jobId: "j-1", continueWith: { type: "bake", payload: { loaves: 1 } } },
  ]);
});

it("the job that was decided about is completed only while the chain is there", async () => {
  const { place, id } = await freshChain();
  const decide = ["chain", "complete", id, "--job", id];
  await json(place, ...decide, ...goOn);
  const late = await run(place, [...decide, "--result", "{}"]);
  expect(late).toMatchObject({ code: 4, out: "" });
  const { current } = await json<Chain>(place, "chain", "get", id);
  expect(current).toMatchObject({ type: "bake", state: "pending" });
  expect(late.err).toContain(current.id);
  const nameless = await run(place, ["chain", "complete", id, "--job", "", "--result", "{}"]);
  expect(nameless.code).toBe(2);
});
