// The life of a service: handlers, start, stop, signals, and what connect refuses.
import {
  connect,
  defineService,
  InvalidHandler,
  InvalidOption,
  ServiceStopped,
  StoreUnavailable,
} from "millrace";
import { testService } from "millrace/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import { openEngine } from "#millrace/engine/open.js";
import { recordId } from "#millrace/engine/record.js";
import { shop } from "../client/shop.js";
import { runScript } from "../support/process.js";
import { openService, stores } from "../support/stores.js";

const scripts = new URL("./scripts.ts", import.meta.url);
const [memory, sqlite] = stores;
if (memory === undefined || sqlite === undefined) throw new Error("There are two stores.");

describe("a handler", () => {
  const greet = () => ({ text: "Hello" });

  it("is refused when its type has one already", async () => {
    const service = await openService(memory, shop);
    service.jobs.greet.handle(greet);
    expect(() => service.jobs.greet.handle(greet)).toThrow(InvalidHandler);
    expect(() => service.jobs.greet.version(1).handle(greet)).toThrow(
      /greet version 1 has a handler already/,
    );
    expect(() => service.handle({ greet })).toThrow(InvalidHandler);
  });

  it("is refused when the contract does not name its type", async () => {
    const service = await openService(memory, shop);
    const handlers = { nothing: greet } as object;
    expect(() => service.handle(handlers)).toThrow(
      /The contract of shop has no job nothing; it has greet, slow/,
    );
  });

  it("is refused when it is no function or comes after the start", async () => {
    const service = await openService(memory, shop);
    expect(() => service.jobs.greet.handle("greet" as never)).toThrow(/must be a function/);
    await service.start();
    expect(() => service.jobs.greet.handle(greet)).toThrow(/register it before start/);
  });
});

describe.for(stores)("a service on $name", (store) => {
  it("runs jobs between start and stop, and starts and stops once", async () => {
    const service = await openService(store, shop);
    service.jobs.greet.handle(({ payload }) => ({ text: payload.name }));
    await Promise.all([service.start(), service.start()]);
    expect(await service.jobs.greet.run({ name: "Ada" }).orThrow()).toEqual({ text: "Ada" });
    await Promise.all([service.stop(), service.stop()]);
    await service.wait();
    expect(() => service.start()).toThrow(ServiceStopped);
  });

  it("tells only those who ask when it cannot stop", async () => {
    const service = await connect(shop, { url: "memory:" });
    const { engine } = service;
    const close = engine.close.bind(engine);
    const fault = new Error("The store does not let go.");
    engine.close = () => close().then(() => Promise.reject(fault));
    const unheard: unknown[] = [];
    const hear = (error: unknown) => void unheard.push(error);
    process.on("unhandledRejection", hear);
    await expect(service.stop()).rejects.toBe(fault);
    await new Promise((resolve) => setImmediate(resolve));
    process.removeListener("unhandledRejection", hear);
    expect(unheard).toEqual([]);
    await expect(service.wait()).rejects.toBe(fault);
  });

  it("stops cleanly in the middle of its start", async () => {
    const service = await openService(store, shop);
    service.jobs.greet.handle(({ payload }) => ({ text: payload.name }));
    const starting = service.start();
    await service.stop();
    await starting;
    expect((await service.jobs.greet.create({ name: "Ada" })).isErr()).toBe(true);
  });

  it("only keeps when it has no handler, and does not even that when told so", async () => {
    const url = await store.freshUrl();
    const engine = await openEngine(url);
    onTestFinished(() => engine.close());
    const service = await connect(shop, { engine });
    await service.start();
    expect(await service.reads.workers().orThrow()).toEqual([]);
    expect(await engine.records([recordId.keeper("shop")])).not.toEqual([null]);
    await service.stop();
    const other = await connect(defineService("other", shop.jobs), { engine, keeper: false });
    await other.start();
    expect(await engine.records([recordId.keeper("other")])).toEqual([null]);
    await other.stop();
    // The engine is its opener's, and still open.
    expect((await other.jobs.greet.create({ name: "Ada" })).isOk()).toBe(true);
  });

  it("stops at the end of its block", async () => {
    const url = await store.freshUrl();
    const service = await connect(shop, { url });
    await service[Symbol.asyncDispose]();
    expect((await service.jobs.greet.create({ name: "Ada" })).isErr()).toBe(true);
  });
});

describe("connect", () => {
  it.for([
    ["instance", { url: "memory:", instance: "a b" }],
    ["concurrency", { url: "memory:", concurrency: 0 }],
    ["graceMs", { url: "memory:", graceMs: -1 }],
    ["auditRetentionMs", { url: "memory:", auditRetentionMs: 0 }],
    ["url", { url: 5 }],
    ["uri", { uri: "memory:" }],
    ["logger", { url: "memory:", logger: console.log }],
    ["keeper", { url: "memory:", keeper: "no" }],
    ["options", null],
  ] as const)("refuses a bad %s", async ([field, options]) => {
    const refused = { _tag: "InvalidOption", field };
    await expect(connect(shop, options as never)).rejects.toMatchObject(refused);
  });

  it.for([null, undefined, "shop", {}])("refuses the contract %j", async (contract) => {
    const refused = { _tag: "InvalidOption", field: "contract" };
    await expect(connect(contract as never)).rejects.toMatchObject(refused);
    await expect(testService(contract as never)).rejects.toMatchObject(refused);
  });

  it("is not given what testService does not know", async () => {
    const options = (wrong: object) => testService(shop, wrong);
    await expect(options({ keeper: false })).rejects.toMatchObject({ field: "keeper" });
    await expect(options({ startAt: Number.NaN })).rejects.toMatchObject({ field: "startAt" });
  });

  it("refuses an engine together with a url", async () => {
    const engine = await openEngine("memory:");
    await expect(connect(shop, { url: "memory:", engine })).rejects.toThrow(InvalidOption);
    await engine.close();
  });

  it.for([
    ["redis://anna:secret@host", /^redis: stores are not supported by this version/],
    ["jobs.db", /"jobs.db" is not a URL of a store: use "file:jobs.db"/],
  ] as const)("refuses the store %s", async ([url, message]) => {
    const refused = connect(shop, { url });
    await expect(refused).rejects.toThrow(StoreUnavailable);
    await expect(refused).rejects.toThrow(message);
    await expect(refused).rejects.not.toThrow(/secret/);
  });

  it("names the process when nobody does", async () => {
    const one = await openService(memory, shop);
    const two = await openService(memory, shop);
    expect(one.instance).toMatch(new RegExp(`^[A-Za-z0-9-]+-${process.pid}-[0-9a-f]{6}$`));
    expect(one.instance).not.toBe(two.instance);
  });
});

describe("a process", () => {
  it("drains on SIGTERM and gives back what it cannot finish", async () => {
    const url = await sqlite.freshUrl();
    const client = await connect(shop, { url });
    onTestFinished(() => client.stop());
    const server = runScript(scripts, "serve", url);
    expect(await server.nextLine()).toBe("ready");
    const slow = await client.jobs.greet.create({ name: "slow" }).orThrow();
    expect(await server.nextLine()).toBe("started slow");
    server.child.kill("SIGTERM");
    expect(await server.nextLine()).toBe("stopped");
    expect(await server.exited).toEqual({ code: 0, signal: null });
    expect(await slow.get().orThrow()).toMatchObject({
      state: "pending",
      tries: 0,
      reason: "shutdown",
    });
  });

  it("stays alive while it waits for a job that another process runs", async () => {
    const url = await sqlite.freshUrl();
    const server = await connect(shop, { url });
    onTestFinished(() => server.stop());
    server.jobs.greet.handle(({ payload }) => ({ text: `Hello ${payload.name}` }));
    await server.start();
    const asker = runScript(scripts, "ask", url);
    expect(await asker.nextLine()).toBe("Hello Ada");
    expect(await asker.exited).toEqual({ code: 0, signal: null });
  });
});
