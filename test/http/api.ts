// A server for tests, and a caller whose every answer is checked against the OpenAPI document.
import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Engine, ServiceContract } from "millrace";
import { type RunningServer, type ServerOptions, startServer } from "millrace/server";
import { afterAll, beforeAll, expect, onTestFinished } from "vitest";
import { manifest as manifestOf } from "#millrace/contract/manifest.js";
import { newPrefix } from "../support/nats.js";
import { newSchema } from "../support/postgres.js";
import { undocumented } from "./documented.js";

/** A place for a store, and the way to remove it. */
interface Place {
  readonly url: string;
  remove(): Promise<void>;
}

/** A kind of store that the API is proven on. */
export interface ApiStore {
  readonly name: string;
  place(): Promise<Place>;
}

async function filePlace(): Promise<Place> {
  const folder = await mkdtemp(join(tmpdir(), "millrace-http-"));
  return {
    url: `file:${join(folder, "jobs.db")}`,
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}

async function jetStreamPlace(): Promise<Place> {
  const [prefix, views] = await Promise.all([newPrefix(), filePlace()]);
  const url = new URL(prefix.storeUrl);
  url.searchParams.set("projection", views.url);
  const remove = async () => {
    await prefix.remove();
    await views.remove();
  };
  return { url: url.href, remove };
}

/** An embedded store in a file. */
export const sqlite: ApiStore = { name: "SQLite", place: filePlace };

/** The stores that every route is proven on. */
export const apiStores: readonly ApiStore[] = [
  sqlite,
  { name: "PostgreSQL", place: newSchema },
  { name: "JetStream", place: jetStreamPlace },
];

/** An answer that was read whole. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into bodies whose shape the document has checked.
  readonly body: any;
}

/** What a request says besides its path. */
export interface Ask {
  readonly body?: unknown;
  readonly headers?: { readonly [name: string]: string };
  readonly token?: string;
  readonly signal?: AbortSignal;
}

/** Calls one server. */
export class Api {
  readonly url: string;

  constructor(url: string) {
    this.url = url;
  }

  get(path: string, ask?: Ask): Promise<Answer> {
    return this.call("GET", path, ask);
  }

  post(path: string, body: unknown = {}, ask: Ask = {}): Promise<Answer> {
    return this.call("POST", path, { ...ask, body });
  }

  delete(path: string, ask?: Ask): Promise<Answer> {
    return this.call("DELETE", path, ask);
  }

  /** Makes a request and reads its answer, which must be as documented. */
  async call(method: string, path: string, ask: Ask = {}): Promise<Answer> {
    const response = await this.send(method, path, ask);
    const text = await response.text();
    const { status, headers } = response;
    const { pathname } = new URL(path, this.url);
    const contentType = headers.get("content-type");
    expect(undocumented({ method, pathname, status, contentType, text })).toBeNull();
    const isJson = /json$/.test(contentType?.split(";")[0] ?? "");
    return { status, headers, body: isJson ? JSON.parse(text) : text };
  }

  /** Makes a request whose answer the caller reads by itself. */
  send(
    method: string,
    path: string,
    { body, headers, token, signal }: Ask = {},
  ): Promise<Response> {
    const isText = typeof body === "string" || body instanceof Uint8Array;
    return fetch(new URL(path, this.url), {
      method,
      headers: {
        ...(body === undefined ? null : { "Content-Type": "application/json" }),
        ...(token === undefined ? null : { Authorization: `Bearer ${token}` }),
        ...headers,
      },
      ...(body === undefined ? null : { body: isText ? (body as string) : JSON.stringify(body) }),
      ...(signal && { signal }),
    });
  }

  /** Creates a job and gives its id. */
  async create(service: string, type: string, more: object = {}): Promise<string> {
    const { status, body } = await this.post("/v1/jobs", { service, type, payload: {}, ...more });
    expect(status, JSON.stringify(body)).toBe(201);
    return body.id;
  }

  /** Claims jobs of one type. */
  async claim(service: string, type: string, more: object = {}): Promise<readonly Claimed[]> {
    const types = [{ type, limit: 100 }];
    const asked = { service, worker: "w-1", types, limit: 100, ...more };
    const { status, body } = await this.post("/v1/work/claims", asked);
    expect(status, JSON.stringify(body)).toBe(200);
    return body.jobs;
  }

  /** Claims one job, which must be there. */
  async claimOne(service: string, type: string, more: object = {}): Promise<Claimed> {
    const [claimed] = await this.claim(service, type, { limit: 1, waitMs: 20_000, ...more });
    if (claimed === undefined) throw new Error(`There is no ${type} of ${service} to claim.`);
    return claimed;
  }

  /** Makes a contract the accepted one of its service. */
  async accept(contract: ServiceContract, more: object = {}): Promise<Answer> {
    const manifest = manifestOf(contract);
    return this.post(`/v1/contracts/${contract.name}/accept`, { manifest, ...more });
  }

  settle(id: string, token: number, outcome: object): Promise<Answer> {
    return this.post(`/v1/work/jobs/${id}/settle`, { token, ...outcome });
  }

  /** A job that its only try has killed. */
  async deadJob(service: string, type: string, more: object = {}): Promise<string> {
    const id = await this.create(service, type, { maxTries: 1, ...more });
    const { token } = await this.claimOne(service, type);
    const { body } = await this.settle(id, token, { outcome: "failed", error: { message: "no" } });
    expect(body.state).toBe("dead");
    return id;
  }
}

/** A claimed job, as far as the tests look at it. */
export interface Claimed {
  // biome-ignore lint/suspicious/noExplicitAny: as that of an answer.
  readonly job: any;
  readonly token: number;
  readonly leaseUntil: string;
}

/** A service that no other test uses. */
export function freshService(): string {
  return `s-${randomUUID().slice(0, 13)}`;
}

/** A server on a free port that is stopped after the test. */
export async function openServer(options: ServerOptions): Promise<RunningServer & { api: Api }> {
  const server = await startServer({ bind: "127.0.0.1:0", ...options });
  onTestFinished(() => server.stop());
  return { ...server, api: new Api(server.url) };
}

/** An engine one of whose methods goes through `around`, which may hold it up, lose it or fail it. */
export function around(
  engine: Engine,
  method: keyof Engine,
  through: (go: () => Promise<unknown>, parameters: readonly unknown[]) => Promise<unknown>,
): Engine {
  return new Proxy(engine, {
    get(target, member) {
      const found = Reflect.get(target, member, target) as unknown;
      if (typeof found !== "function") return found;
      if (member !== method) return found.bind(target);
      return (...parameters: unknown[]) =>
        through(() => found.apply(target, parameters), parameters);
    },
  });
}

/** A fresh store for one test. */
export async function freshPlace(store: ApiStore): Promise<string> {
  const { url, remove } = await store.place();
  onTestFinished(remove);
  return url;
}

/** Two servers on one store, for all tests of a `describe`; each test takes services of its own. */
export function sharedServers(store: ApiStore): {
  readonly api: Api;
  readonly other: Api;
  readonly url: string;
} {
  let place: Place;
  let servers: readonly RunningServer[] = [];
  beforeAll(async () => {
    place = await store.place();
    const options = { url: place.url, bind: "127.0.0.1:0" };
    servers = [await startServer(options), await startServer({ ...options, keeper: false })];
  }, 60_000);
  afterAll(async () => {
    await Promise.all(servers.map((server) => server.stop()));
    await place.remove();
  });
  return {
    get api() {
      return new Api(servers[0]?.url ?? "");
    },
    get other() {
      return new Api(servers[1]?.url ?? "");
    },
    get url() {
      return place.url;
    },
  };
}
