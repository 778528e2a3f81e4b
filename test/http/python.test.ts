// The Python worker of the examples, against a real server: results, failures that help or do not, cancels, tokens.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { describe, expect, it, onTestFinished } from "vitest";
import { systemClock } from "#millrace/engine/clock.js";
import { Tokens } from "#millrace/server/http/tokens.js";
import { apiStores, freshPlace, openServer, sqlite } from "./api.js";
import { eventsOf } from "./reading.js";

const script = fileURLToPath(new URL("../../examples/python/worker.py", import.meta.url));

/** Runs the worker, and gives its lines. */
async function work(
  url: string,
  token = "",
): Promise<{ child: ChildProcess; next(): Promise<string> }> {
  const env = { ...process.env, MILLRACE_TOKEN: token, WAIT_MS: "1000" };
  const child = spawn("python3", [script, url], { env, stdio: ["ignore", "pipe", "inherit"] });
  onTestFinished(() => {
    child.kill("SIGKILL");
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async () => (await lines.next()).value;
  expect(await next()).toBe("working");
  return { child, next };
}

describe.each(apiStores)("on $name", (store) => {
  it("carries out jobs, and says how each try went", async () => {
    const { api, url } = await openServer({ url: await freshPlace(store) });
    const { child, next } = await work(url);
    const receipt = (orderId: string, payload: object) =>
      api.create("shop", "sendReceipt", { payload: { orderId, ...payload }, id: orderId });
    await receipt("o-1", { to: "a@b.example" });
    expect(await next()).toBe("sendReceipt o-1: completed");
    await receipt("o-2", { to: "nowhere" });
    expect(await next()).toBe("sendReceipt o-2: failed");
    await receipt("o-3", {});
    expect(await next()).toBe("sendReceipt o-3: retry");
    const { body: done } = await api.get("/v1/jobs/o-1");
    expect(done).toMatchObject({ result: { messageId: "m-o-1" }, progress: { step: "render" } });
    expect(done.completedBy).toMatch(/^python-\d+$/);
    const { body: logs } = await api.get("/v1/jobs/o-1/logs");
    expect(logs.entries).toMatchObject([{ message: "rendering the receipt for o-1" }]);
    const { body: bad } = await api.get("/v1/jobs/o-2");
    expect(bad.error.message).toBe("nowhere is not an address");
    const { body: again } = await api.get("/v1/jobs/o-3");
    expect(again.error).toMatchObject({ name: "KeyError", message: "'to'" });
    child.kill("SIGTERM");
    expect(await next()).toBe("stopped");
    expect(await once(child, "exit")).toEqual([0, null]);
  });
});

it("stops a job that is cancelled while it runs", async () => {
  const { api, url } = await openServer({ url: await freshPlace(sqlite) });
  const { next } = await work(url);
  const id = await api.create("shop", "countSlowly", { payload: { to: 100_000 } });
  await using events = await eventsOf(api, `/v1/jobs/${id}/events`);
  while ((await events.next()).event !== "progress");
  await api.post(`/v1/jobs/${id}/cancel`);
  expect(await next()).toBe(`countSlowly ${id}: cancelled`);
});

it("uses the token that it is given, and says why it cannot work without one", async () => {
  const options = { url: await freshPlace(sqlite), auth: "token" } as const;
  const { api, url, engine } = await openServer(options);
  const tokens = new Tokens(engine, systemClock);
  const wish = {
    name: "python",
    capabilities: ["work:shop", "admin.mutate"],
    createdBy: "test",
  } as const;
  const { secret: token } = await tokens.create(wish);
  const { next } = await work(url, token);
  const payload = { orderId: "o-1", to: "a@b.example" };
  await api.post(
    "/v1/jobs",
    { service: "shop", type: "sendReceipt", id: "o-1", payload },
    { token },
  );
  expect(await next()).toBe("sendReceipt o-1: completed");
  const { child } = await work(url, "");
  const [code] = await once(child, "exit");
  expect(code).toBe(1);
});
