// Twenty thousand requests of every route, made from the OpenAPI document: none is answered with a fault of the server,
// with a status or a body that the document does not have, or not at all. A failure prints its seed.
import fc from "fast-check";
import { openEngine } from "millrace";
import { type OpenApp, openApp } from "millrace/server";
import { describe, expect, it, onTestFinished } from "vitest";
import { systemClock } from "#millrace/engine/clock.js";
import type { Capability } from "#millrace/server/http/caller.js";
import { routes } from "#millrace/server/http/routes/all.js";
import { Tokens } from "#millrace/server/http/tokens.js";
import { apiStores, freshPlace, openServer, sqlite } from "../api.js";
import { operationOf, undocumented } from "../documented.js";
import { type FuzzRequest, requests } from "./requests.js";

/** How many requests are under way at once, and how long one may take. */
const together = 20;
const patienceMs = 20_000;

type Send = (request: FuzzRequest, signal: AbortSignal) => Promise<Response>;

/** What is wrong with the answer to a request; `null` when nothing is. */
async function faultOf(send: Send, request: FuzzRequest): Promise<string | null> {
  const gone = new AbortController();
  const patience = AbortSignal.timeout(patienceMs);
  const late = new Promise<"late">((resolve) => {
    patience.addEventListener("abort", () => resolve("late"));
  });
  const response = await Promise.race([send(request, gone.signal), late]);
  if (response === "late") return "There was no answer in time.";
  const { status, headers } = response;
  const contentType = headers.get("content-type");
  const isStream = /event-stream|ndjson/.test(contentType ?? "");
  const text = isStream ? undefined : await response.text();
  if (isStream) {
    await response.body?.cancel();
    gone.abort();
  }
  if (status >= 500) return `${status}: ${text}`;
  const { method, path } = request;
  const { pathname } = new URL(path, "http://localhost");
  if (operationOf(method, pathname) === undefined)
    return status === 404 || status === 405 ? null : `${status}`;
  return undocumented({ method, pathname, status, contentType, text });
}

/** `doneLeast` is the part of all requests that has to be carried out: a fuzz whose requests are all refused proves little. */
async function fuzz(send: Send, count: number, doneLeast = 0.2): Promise<void> {
  const statuses = new Map<number, number>();
  const counted: Send = async (request, signal) => {
    const response = await send(request, signal);
    statuses.set(response.status, (statuses.get(response.status) ?? 0) + 1);
    return response;
  };
  const property = fc.asyncProperty(
    fc.array(requests, { minLength: together, maxLength: together }),
    async (batch) => {
      const faults = await Promise.all(
        batch.map(async (request) => {
          const fault = await faultOf(counted, request);
          return fault && { fault, request };
        }),
      );
      expect(faults.filter((fault) => fault !== null)).toEqual([]);
    },
  );
  // What is found is printed as it is: making it smaller would ask a store that has moved on.
  await fc.assert(property, { numRuns: count / together, endOnFailure: true });
  const sent = [...statuses.values()].reduce((sum, one) => sum + one, 0);
  const done = [200, 201, 202, 204].reduce((sum, one) => sum + (statuses.get(one) ?? 0), 0);
  expect(sent).toBe(count);
  expect(done / sent).toBeGreaterThan(doneLeast);
}

function inProcess(app: OpenApp): Send {
  return ({ method, path, headers, body }, signal) => {
    const content = body === undefined ? null : { body };
    const url = new URL(path, "http://localhost");
    return app.fetch(new Request(url, { method, headers, signal, ...content }));
  };
}

const shares: { readonly [store: string]: number } = {
  SQLite: 6_000,
  PostgreSQL: 3_000,
  JetStream: 1_000,
};

describe("in this process", () => {
  async function fuzzed(url: string, count: number): Promise<void> {
    const caller = { id: "test", actor: "admin:test", capabilities: "all" } as const;
    const app = await openApp({ url, caller });
    onTestFinished(() => app.close());
    await fuzz(inProcess(app), count);
  }

  it("on memory", () => fuzzed("memory:", 7_000), 120_000);

  it.each(apiStores)(
    "on $name",
    async (store) => fuzzed(await freshPlace(store), shares[store.name] ?? 0),
    120_000,
  );
});

function overSockets(url: string): Send {
  return ({ method, path, headers, body }, signal) => {
    const content = body === undefined ? null : { body };
    return fetch(`${url}${path}`, { method, headers, signal, ...content });
  };
}

/** What the callers of the fuzz with tokens may do: a part of everything each. */
const rights: readonly (readonly Capability[])[] = [
  ["admin.read", "admin.stream"],
  ["admin.mutate"],
  ["work:shop"],
];

/** Whether a token of these rights may be answered with success; `work` is decided by the service that is asked for. */
function mayBeDone({ method, path, body }: FuzzRequest, own: readonly Capability[]): boolean {
  const { pathname } = new URL(path, "http://localhost");
  const placed = operationOf(method, pathname);
  const route = routes.find(
    (one) => one.path === placed?.path && one.method.toLowerCase() === placed.method,
  );
  if (route === undefined) return false;
  if (route.needs === "nothing" || own.includes(route.needs as Capability)) return true;
  if (route.needs !== "work" || !own.includes("work:shop")) return false;
  return pathname !== "/v1/work/claims" || JSON.parse(body ?? "{}").service === "shop";
}

describe("over sockets", () => {
  it("on SQLite", async () => {
    const { url, api } = await openServer({ url: await freshPlace(sqlite) });
    await fuzz(overSockets(url), 1_000);
    expect((await api.get("/readyz")).status).toBe(200);
  }, 120_000);

  it("on SQLite, with tokens that may do a part, and no more than that is done", async () => {
    const engine = await openEngine(await freshPlace(sqlite));
    onTestFinished(() => engine.close());
    const { url, api } = await openServer({ engine, auth: "token", rateLimit: 0 });
    const tokens = new Tokens(engine, systemClock);
    const callers = await Promise.all(
      rights.map(async (capabilities, index) => {
        const wish = { name: `caller-${index}`, capabilities, createdBy: "test" };
        return { capabilities, token: (await tokens.create(wish)).secret };
      }),
    );
    const send = overSockets(url);
    const exceeded: FuzzRequest[] = [];
    let turn = 0;
    await fuzz(
      async (request, signal) => {
        turn += 1;
        const { capabilities = [], token = "" } = callers[turn % callers.length] ?? {};
        const headers = { Authorization: `Bearer ${token}`, ...request.headers };
        const response = await send({ ...request, headers }, signal);
        if (response.status < 300 && !mayBeDone(request, capabilities)) exceeded.push(request);
        return response;
      },
      2_000,
      0.05,
    );
    expect(exceeded).toEqual([]);
    expect((await api.get("/readyz")).status).toBe(200);
  }, 120_000);
});
