// The options of calls that take a transaction: what they do not know is refused, and so is a client in place of `{ tx }`,
// because whatever is done in spite of it would be done outside of the transaction.
import { InvalidOption, type Service } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { chainShop } from "../client/chain-shop.js";
import { freshSchema } from "../support/postgres.js";
import { openService, type Store, stores } from "../support/stores.js";
import { libraries } from "./libraries.js";
import { openShop } from "./shop-file.js";

type Jobs = typeof chainShop extends { readonly jobs: infer Entries extends object }
  ? Entries
  : never;
type Call = (options: never) => unknown;

const [memory, sqlite] = stores as readonly [Store, Store];
const payload = { orderId: "o-1" };

/** Every call that awaits its outcome and takes options, by its name. */
async function calls(service: Service<Jobs>): Promise<Readonly<Record<string, Call>>> {
  const { jobs, chains, untyped } = service;
  const lone = await jobs.lone.create(payload).orThrow();
  const chain = await chains.start("approve", { requestId: "r-1" }).orThrow();
  return {
    create: (options) => jobs.lone.create(payload, options),
    submit: (options) => jobs.lone.submit(payload, options),
    createMany: (options) => jobs.lone.createMany([{ payload }], options),
    "chains.start": (options) => chains.start("approve", { requestId: "r-2" }, options),
    "chains.complete": (options) => chains.complete(chain, () => {}, options),
    "ref.complete": (options) => lone.complete(5, options),
    "untyped.create": (options) => untyped.create("email", payload, options),
    "untyped.submit": (options) => untyped.submit("email", payload, options),
    "untyped.createMany": (options) => untyped.createMany("email", [{ payload }], options),
    continueWith: (options) =>
      chains.complete(chain, ({ job, complete }) =>
        job.type === "approve"
          ? complete(job, ({ continueWith }) => continueWith("ship", payload, options))
          : null,
      ),
    run: (options) => jobs.lone.run(payload, options),
    "untyped.run": (options) => untyped.run("email", payload, options),
    "untyped.announce": (options) => untyped.announce("email", options),
  };
}

const withoutTx = ["continueWith", "run", "untyped.run", "untyped.announce"];

/** Every call that answers at once, by its name. */
function syncCalls(service: Service<Jobs>): Readonly<Record<string, Call>> {
  const { jobs, chains, untyped } = service;
  return {
    createSync: (options) => jobs.lone.createSync(payload, options),
    submitSync: (options) => jobs.lone.submitSync(payload, options),
    createManySync: (options) => jobs.lone.createManySync([{ payload }], options),
    "chains.startSync": (options) => chains.startSync("approve", { requestId: "r-2" }, options),
    "chains.completeSync": (options) => chains.completeSync("none", () => {}, options),
    "ref.completeSync": (options) => service.ref("none").completeSync(5, options),
    "untyped.createSync": (options) => untyped.createSync("lone", payload, options),
    "untyped.submitSync": (options) => untyped.submitSync("lone", payload, options),
    "untyped.createManySync": (options) => untyped.createManySync("lone", [{ payload }], options),
  };
}

async function refusal(call: Call, options: unknown): Promise<InvalidOption> {
  const result = (await call(options as never)) as { readonly error?: unknown };
  if (!(result.error instanceof InvalidOption)) throw new Error("It was not refused.");
  return result.error;
}

describe("an option that a call does not know", () => {
  it("is refused by every call, with those that it knows", async () => {
    const service = await openService(memory, chainShop);
    for (const [name, call] of Object.entries(await calls(service))) {
      const { field, message } = await refusal(call, { prioritty: 5 });
      expect([name, field]).toEqual([name, "prioritty"]);
      expect(message).toMatch(/is not an option of an? [a-zA-Z]+; use one of/);
      if (name.startsWith("untyped")) expect(message).toContain("version");
    }
  });

  it("is refused by calls that answer at once", async () => {
    const service = await openService(sqlite, chainShop);
    for (const [name, call] of Object.entries(syncCalls(service))) {
      const { field, message } = await refusal(call, { prioritty: 5 });
      expect([name, field]).toEqual([name, "prioritty"]);
      expect(message).toContain("tx");
    }
  });

  it("of each job of many is not one of all", async () => {
    const { jobs, untyped } = await openService(memory, chainShop);
    const options = { idempotencyKey: "o-1" } as never;
    for (const call of [
      () => jobs.lone.createMany([{ payload }], options),
      () => untyped.createMany("email", [{ payload }], options),
    ]) {
      const { field, message } = await refusal(call, null);
      expect(field).toBe("idempotencyKey");
      expect(message).toBe("idempotencyKey is an option of each of the jobs; give it there.");
    }
  });

  it("is tx where nobody would use it", async () => {
    const service = await openService(memory, chainShop);
    const every = await calls(service);
    for (const name of withoutTx) {
      const { field } = await refusal(every[name] as Call, { tx: { query: () => {} } });
      expect([name, field]).toEqual([name, "tx"]);
    }
  });
});

describe.for(libraries)("a transaction of $name in place of options", (library) => {
  it("is refused, and nothing happens outside of it", async () => {
    const { url } = await freshSchema();
    const { source, wrap, close } = await library.open(url);
    onTestFinished(async () => void (await close()));
    const service = await openService(memory, chainShop);
    const every = await calls(service);
    await source.run(async (client) => {
      for (const given of wrap === undefined ? [client] : [client, wrap(client)]) {
        for (const [name, call] of Object.entries(every)) {
          const { field, message } = await refusal(call, given);
          expect([name, field]).toEqual([name, withoutTx.includes(name) ? "options" : "tx"]);
          expect(message).toContain("look like a client of a database");
        }
      }
    });
    const counts = await service.reads.counts().orThrow();
    expect(counts.map(({ type, count }) => [type, count])).toEqual([
      ["approve", 1],
      ["lone", 1],
    ]);
  });
});

describe("a connection of better-sqlite3 in place of options", () => {
  it("is refused", async () => {
    const { db } = await openShop();
    const service = await openService(sqlite, chainShop);
    for (const [name, call] of Object.entries(syncCalls(service))) {
      const { field, message } = await refusal(call, db);
      expect([name, field]).toEqual([name, "tx"]);
      expect(message).toContain("as { tx }");
    }
    expect(await service.reads.counts().orThrow()).toEqual([]);
  });
});

describe("a client with no members of its own", () => {
  it("is refused in place of options, too", async () => {
    const executor = new (class {
      executeSql() {
        return [];
      }
    })();
    const service = await openService(memory, chainShop);
    for (const [name, call] of Object.entries(await calls(service))) {
      const { field } = await refusal(call, executor);
      expect([name, field]).toEqual([name, withoutTx.includes(name) ? "options" : "tx"]);
    }
  });
});

describe("a call that answers at once, without options", () => {
  it.for(stores)("is told on $name that it needs a transaction", async (store) => {
    const service = await openService(store, chainShop);
    for (const [name, call] of Object.entries(syncCalls(service))) {
      const { field, message } = await refusal(call, undefined);
      expect([name, field]).toEqual([name, "tx"]);
      expect(message).toContain("give { tx }");
    }
  });
});
