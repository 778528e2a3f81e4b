// Chains in synchronous transactions of better-sqlite3: started and completed before the callback returns.
import Database from "better-sqlite3";
import { defineJob, defineService } from "millrace";
import { describe, expect, expectTypeOf, it, onTestFinished } from "vitest";
import { z } from "zod";
import { chainShop } from "../client/chain-shop.js";
import { openService } from "../support/stores.js";
import { lookOfWriter, refusalOf, sqliteStore } from "./shop-file.js";

const order = { orderId: "o-1" };
const request = { requestId: "r-1" };

async function openChains() {
  const { url, path } = await sqliteStore();
  const service = await openService({ name: "sqlite", freshUrl: async () => url }, chainShop);
  const db = new Database(path);
  onTestFinished(() => void db.close());
  return { service, chains: service.chains, db, path };
}

/** Does work in a transaction, and undoes it. */
function undo(db: Database.Database, work: () => void): void {
  const undone = db.transaction(() => {
    work();
    throw new Error("no stock");
  });
  expect(undone).toThrow("no stock");
}

describe("a chain in a synchronous transaction", () => {
  it("starts with the commit", async () => {
    const { chains, db } = await openChains();
    const start = (id: string) => chains.startSync("charge", order, { tx: db, id }).unwrap();
    undo(db, () => start("undone"));
    const chain = db.transaction(() => start("kept"))();
    expect([chain.id, chain.type, chain.existing]).toEqual(["kept", "charge", false]);
    expect(await chains.get("undone")).toMatchObject({ error: { _tag: "JobNotFound" } });
    expect(await chains.get(chain).orThrow()).toMatchObject({ state: "pending", count: 1 });
  });

  it("is completed with the commit, several steps at once", async () => {
    const { chains, db } = await openChains();
    db.defaultSafeIntegers(true);
    const chain = await chains.start("charge", order, { delayMs: 60_000 }).orThrow();
    const complete = () =>
      chains
        .completeSync(
          chain,
          ({ job, complete }) => {
            if (job.type !== "charge") throw new Error(`It has come to ${job.type}.`);
            const ship = complete(job, ({ continueWith }) => continueWith("ship", order));
            expectTypeOf(ship.type).toEqualTypeOf<"ship">();
            expect(ship.payload).toEqual({ ...order, carrier: "post" });
            expect(complete(ship, () => ({ parcel: "p-1" }))).toBeNull();
          },
          { tx: db },
        )
        .unwrap();
    undo(db, () => expect(complete()).toMatchObject({ state: "completed", count: 2 }));
    expect(await chains.get(chain).orThrow()).toMatchObject({ state: "pending", count: 1 });
    const done = db.transaction(complete)();
    expect(done).toMatchObject({ output: { parcel: "p-1" }, current: { completedBy: null } });
    expect(await chains.wait(chain).orThrow()).toEqual({ parcel: "p-1" });
  });

  it("is completed in the transaction that started it, step by step, and only once", async () => {
    const { chains, db } = await openChains();
    const chain = db.transaction(() => {
      const started = chains.startSync("charge", order, { tx: db }).unwrap();
      const types: string[] = [];
      const goOn = () =>
        chains.completeSync(
          started,
          ({ job, complete }) => {
            types.push(job.type);
            if (job.type === "charge")
              complete(job, ({ continueWith }) => continueWith("refund", order));
            else if (job.type === "refund") complete(job, () => ({ refunded: true }));
          },
          { tx: db },
        );
      const partly = goOn().unwrap();
      expect(partly).toMatchObject({ state: "pending", current: { type: "refund" }, count: 2 });
      expect(partly.jobs.map(({ type }) => type)).toEqual(["charge", "refund"]);
      expect(goOn().unwrap()).toMatchObject({ state: "completed", output: { refunded: true } });
      expect(goOn()).toMatchObject({ error: { _tag: "JobAlreadyCompleted" } });
      expect(types).toEqual(["charge", "refund"]);
      return started;
    })();
    expect((await chains.get(chain).orThrow()).state).toBe("completed");
  });

  it("has its turn to write from when it is looked at", async () => {
    const { chains, path } = await openChains();
    const { look, isLooked } = lookOfWriter(path);
    const db = new Database(path, { verbose: look });
    onTestFinished(() => void db.close());
    const chain = await chains.start("approve", request).orThrow();
    const done = db.transaction(() =>
      chains.completeSync(
        chain,
        ({ job, complete }) => {
          if (job.type === "approve") complete(job, () => ({ approved: true }));
        },
        { tx: db },
      ),
    );
    expect(done().unwrap()).toMatchObject({ state: "completed" });
    expect(isLooked()).toBe(true);
  });

  it("is found by the jobs that it has left where its first one was deleted", async () => {
    const { service, chains, db } = await openChains();
    const chain = await chains.start("charge", order).orThrow();
    await chains
      .complete(chain, async ({ job, complete }) => {
        if (job.type === "charge")
          await complete(job, ({ continueWith }) => continueWith("refund", order));
      })
      .orThrow();
    await service.ref(chain.id).delete().orThrow();
    const done = db.transaction(() =>
      chains
        .completeSync(
          chain,
          ({ job, complete }) => {
            if (job.type === "refund") complete(job, () => ({ refunded: true }));
          },
          { tx: db },
        )
        .unwrap(),
    )();
    expect(done).toMatchObject({ state: "completed", count: 1, output: { refunded: true } });
  });

  it("stores nothing where a step is refused, and names what is wrong", async () => {
    const { chains, db } = await openChains();
    const chain = await chains.start("approve", request).orThrow();
    type Take = Parameters<typeof chains.completeSync<"approve">>[1];
    const complete = (take: Take, id: typeof chain | string = chain) =>
      db.transaction(() => chains.completeSync(id, take, { tx: db }))();
    const refused = complete(({ job, complete }) => {
      if (job.type !== "approve") return;
      const ship = complete(job, ({ continueWith }) => continueWith("ship", order));
      // @ts-expect-error: a parcel is a string.
      complete(ship, () => ({ parcel: 5 }));
    });
    expect(refused).toMatchObject({ error: { _tag: "InvalidResult", type: "ship" } });
    const beside = complete(({ job, complete }) => {
      if (job.type !== "approve") return;
      complete(job, () => {
        complete(job, () => ({ approved: true }));
        return { approved: false };
      });
    });
    expect(beside).toMatchObject({ error: { _tag: "InvalidOption", field: "job" } });
    expect(complete(() => {}, "none")).toMatchObject({ error: { _tag: "JobNotFound" } });
    expect(complete(() => {}, {} as never)).toMatchObject({ error: { field: "chain" } });
    expect(complete(null as never)).toMatchObject({ error: { field: "callback" } });
    const throwing = () =>
      complete(() => {
        throw new Error("mine");
      });
    expect(throwing).toThrow("mine");
    expect(await chains.get(chain).orThrow()).toMatchObject({ state: "pending", count: 1 });
  });

  it("cannot wait for a callback", async () => {
    const { chains, db } = await openChains();
    const chain = await chains.start("approve", request).orThrow();
    const complete = (take: unknown) =>
      refusalOf(db.transaction(() => chains.completeSync(chain, take as never, { tx: db }))());
    const late = complete(async ({ job, complete }: never) => {
      (complete as (...asked: unknown[]) => void)(job, () => ({ approved: true }));
      throw new Error("too late to matter");
    });
    expect([late.reason, late.message]).toEqual([
      "not_synchronous",
      expect.stringContaining("not async"),
    ]);
    const step = complete(({ job, complete }: never) =>
      (complete as (...asked: unknown[]) => void)(job, async () => ({ approved: true })),
    );
    expect(step.reason).toBe("not_synchronous");
    expect(await chains.get(chain).orThrow()).toMatchObject({ state: "pending", count: 1 });
  });

  it("takes a result that has a member then for no promise", async () => {
    const { url, path } = await sqliteStore();
    const contract = defineService("rules", { ask: defineJob({ payload: z.object({}) }) });
    const service = await openService({ name: "sqlite", freshUrl: async () => url }, contract);
    const db = new Database(path);
    onTestFinished(() => void db.close());
    const rule: unknown = JSON.parse('{ "if": "paid", "then": "ship" }');
    const chain = await service.chains.start("ask", {}).orThrow();
    db.transaction(() =>
      service.chains
        .completeSync(chain, ({ job, complete }) => void complete(job, () => rule), { tx: db })
        .unwrap(),
    ).immediate();
    expect(await service.chains.wait(chain).orThrow()).toEqual(rule);
  });

  it("is refused without a transaction of better-sqlite3", async () => {
    const { chains, db } = await openChains();
    const chain = await chains.start("approve", request).orThrow();
    expect(refusalOf(chains.completeSync(chain, () => {}, { tx: db })).reason).toBe("not_open");
    expect(refusalOf(chains.startSync("charge", order, { tx: db })).reason).toBe("not_open");
    const later = refusalOf(
      chains.completeSync(chain, () => {}, { tx: { executeSql: async () => [] } as never }),
    );
    expect([later.reason, later.message]).toEqual([
      "not_synchronous",
      expect.stringContaining("await complete"),
    ]);
    expect(chains.completeSync(chain, () => {}, {} as never)).toMatchObject({
      error: { field: "tx" },
    });
    expect(chains.startSync("nothing" as never, order as never, { tx: db })).toMatchObject({
      error: { field: "type", message: expect.stringContaining("has no job nothing") },
    });
  });

  it("is told which calls answer at once where it is awaited", async () => {
    const { chains, db } = await openChains();
    const chain = await chains.start("approve", request).orThrow();
    const [completed, started] = db.transaction(() => [
      chains.complete(chain, () => {}, { tx: db }),
      chains.start("charge", order, { tx: db }),
    ])() as [ReturnType<typeof chains.complete>, ReturnType<typeof chains.start>];
    expect(refusalOf(await completed)).toMatchObject({
      reason: "not_open",
      message: expect.stringMatching(/before the completion was stored\..*chains\.completeSync/),
    });
    expect(refusalOf(await started).message).toContain("chains.startSync");
    expect(await chains.get(chain).orThrow()).toMatchObject({ state: "pending", count: 1 });
  });

  it("takes no result that is checked later", async () => {
    const { url, path } = await sqliteStore();
    const contract = defineService("slow", {
      ask: defineJob({ payload: z.object({}), result: z.string().refine(async () => true) }),
    });
    const store = { name: "sqlite", freshUrl: async () => url };
    const { chains } = await openService(store, contract);
    const db = new Database(path);
    onTestFinished(() => void db.close());
    const chain = await chains.start("ask", {}).orThrow();
    const refused = db.transaction(() =>
      chains.completeSync(chain, ({ job, complete }) => void complete(job, () => "yes"), {
        tx: db,
      }),
    )();
    expect(refusalOf(refused).reason).toBe("not_synchronous");
  });

  it("may be one job, completed by its ref", async () => {
    const { service, chains, db } = await openChains();
    const job = await service.jobs.approve.create(request, { delayMs: 60_000 }).orThrow();
    undo(db, () => job.completeSync({ approved: true }, { tx: db }).unwrap());
    expect((await job.get().orThrow()).state).toBe("pending");
    const complete = db.transaction((approved: unknown) =>
      job.completeSync({ approved } as never, { tx: db }),
    );
    expect(complete("yes")).toMatchObject({ error: { _tag: "InvalidResult" } });
    expect(complete(true).unwrap()).toMatchObject({ state: "completed", completedBy: null });
    expect(await chains.wait(job.id).orThrow()).toEqual({ approved: true });
    expect(job.completeSync({ approved: true }, { tx: {} as never })).toMatchObject({
      error: { field: "tx" },
    });
  });
});
