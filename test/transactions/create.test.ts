// Creating in a transaction of better-sqlite3: the job is there with the commit, never was after a rollback,
// and others hear of it only afterwards.
import { renameSync } from "node:fs";
import Database from "better-sqlite3";
import { type CreateFailure, type Result, TransactionConflict, TransactionRefused } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { FakeClock } from "#millrace/testing/fake-clock.js";
import { shop } from "../client/shop.js";
import { openService, stores } from "../support/stores.js";
import { openShop, refusalOf } from "./shop-file.js";

const pay = { name: "Ada" };

describe("a create in a transaction of better-sqlite3", () => {
  it("commits and rolls back with the caller's data", async () => {
    const { service, db } = await openShop();
    const place = db.transaction((order: string, isGood: boolean) => {
      db.prepare("INSERT INTO orders VALUES (?)").run(order);
      const created = service.jobs.greet.createSync({ name: order }, { tx: db, id: order });
      if (!isGood) throw new Error("no stock");
      return created;
    });
    expect(() => place("bad", false)).toThrow("no stock");
    const created = place("good", true);
    if (created.isErr()) throw created.error;
    expect((await created.value.get().orThrow()).state).toBe("pending");
    expect(await service.ref("bad").get()).toMatchObject({ error: { _tag: "JobNotFound" } });
    expect(db.prepare("SELECT id FROM orders").pluck().all()).toEqual(["good"]);
    expect(await service.reads.counts().orThrow()).toMatchObject([{ state: "pending", count: 1 }]);
  });

  it("is claimable at once after the commit", async () => {
    const { service, db } = await openShop();
    service.jobs.greet.handle(({ payload }) => ({ text: `Hello ${payload.name}` }));
    await service.start();
    const created = db.transaction(() => service.jobs.greet.createSync(pay, { tx: db }))();
    if (created.isErr()) throw created.error;
    expect(await created.value.wait().orThrow()).toEqual({ text: "Hello Ada" });
  });

  it("works in a transaction that is opened by hand", async () => {
    const { service, db } = await openShop();
    db.exec("BEGIN IMMEDIATE");
    const ref = await service.jobs.greet.create(pay, { tx: db }).orThrow();
    const slow = await service.jobs.slow.create(pay, { tx: db }).orThrow();
    const submission = await service.jobs.strict.submit({ tenant: "a" }, { tx: db }).orThrow();
    const many = await service.jobs.greet.createMany([{ payload: pay }], { tx: db }).orThrow();
    expect([submission.outcome, many.map((each) => each.isOk())]).toEqual(["accepted", [true]]);
    expect(await ref.get()).toMatchObject({ error: { _tag: "JobNotFound" } });
    db.exec("COMMIT");
    expect((await ref.get().orThrow()).state).toBe("pending");
    expect((await slow.get().orThrow()).state).toBe("pending");
  });

  it("of many jobs answers for each", async () => {
    const { service, db } = await openShop();
    const payloads = [pay, { name: 5 }, pay] as { name: string }[];
    const jobs = payloads.map((payload, index) => ({ payload, id: `job-${index}` }));
    const created = db.transaction(() => service.jobs.greet.createManySync(jobs, { tx: db }))();
    if (created.isErr()) throw created.error;
    const outcomes = created.value.map((each) => (each.isOk() ? each.value.id : each.error._tag));
    expect(outcomes).toEqual(["job-0", "InvalidPayload", "job-2"]);
    expect(await service.reads.counts().orThrow()).toMatchObject([{ state: "pending", count: 2 }]);
  });

  it("goes through a client that gives bigints", async () => {
    const { service, db } = await openShop();
    db.defaultSafeIntegers(true);
    const submit = () => service.jobs.newest.submitSync({ tenant: "acme" }, { tx: db });
    const outcomes = [1, 2, 3].map(() => db.transaction(submit)().unwrap().outcome);
    expect(outcomes).toEqual(["accepted", "accepted", "replaced"]);
  });
});

describe("the wake-up of a create in a transaction", () => {
  it("comes after the commit and not before", async () => {
    const clock = new FakeClock();
    const { service, db } = await openShop({ clock });
    const heard: string[] = [];
    service.engine.wake("ready", () => heard.push(db.inTransaction ? "too early" : "after commit"));
    db.exec("BEGIN");
    await service.jobs.greet.create(pay, { tx: db }).orThrow();
    await clock.advance(100);
    expect(heard).toEqual([]);
    db.exec("COMMIT");
    await clock.advance(100);
    expect(heard).toContain("after commit");
    expect(heard).not.toContain("too early");
  });

  it("comes without any waiting after a synchronous transaction", async () => {
    const { service, db } = await openShop({ clock: new FakeClock() });
    const heard = new Promise<void>((resolve) => service.engine.wake("ready", resolve));
    db.transaction(() => service.jobs.greet.createSync(pay, { tx: db }).unwrap())();
    await heard;
  });

  it("reaches other processes' files, too", async () => {
    const { service, db, path } = await openShop();
    const other = await openService({ name: "again", freshUrl: async () => `file:${path}` }, shop);
    const heard = new Promise<void>((resolve) => other.engine.wake("ready", resolve));
    db.transaction(() => service.jobs.greet.createSync(pay, { tx: db }).unwrap())();
    await heard;
  });
});

describe("keys inside a transaction", () => {
  const acme = { tenant: "acme" };

  it("are full for the transaction that filled them", async () => {
    const { service, db } = await openShop();
    const [first, second] = db.transaction(() => [
      service.jobs.strict.createSync(acme, { tx: db }),
      service.jobs.strict.createSync(acme, { tx: db }),
    ])() as [Result<{ id: string }, CreateFailure>, Result<{ id: string }, CreateFailure>];
    expect(second).toMatchObject({
      error: { _tag: "JobNotEnqueued", existingJobId: first.isOk() ? first.value.id : "" },
    });
  });

  it("give their place back with a rollback", async () => {
    const { service, db } = await openShop();
    db.exec("BEGIN");
    await service.jobs.strict.create(acme, { tx: db }).orThrow();
    db.exec("ROLLBACK");
    expect((await service.jobs.strict.create(acme)).isOk()).toBe(true);
  });

  it("of idempotency are followed on the same transaction", async () => {
    const { service, db } = await openShop();
    const once = { idempotencyKey: { key: "order-1", scope: "unfinished" }, tx: db } as const;
    db.exec("BEGIN");
    const first = await service.jobs.greet.submit(pay, once).orThrow();
    const second = await service.jobs.greet.submit(pay, once).orThrow();
    const other = await service.jobs.greet.submit({ name: "Bob" }, once);
    expect([first.outcome, second.outcome]).toEqual(["accepted", "existing"]);
    expect(other).toMatchObject({ error: { _tag: "IdempotencyConflict" } });
    db.exec("ROLLBACK");
    expect((await service.jobs.greet.submit(pay, { idempotencyKey: "order-1" })).isOk()).toBe(true);
    const after = db.transaction(() => service.jobs.greet.submitSync(pay, once).unwrap())();
    expect(after.outcome).toBe("existing");
  });

  it("of idempotency give way to a new job once theirs has ended", async () => {
    const { service, db } = await openShop();
    const once = { idempotencyKey: { key: "order-1", scope: "unfinished" } } as const;
    const first = await service.jobs.greet.create(pay, once).orThrow();
    await first.cancel().orThrow();
    const next = db.transaction(() =>
      service.jobs.greet.submitSync(pay, { ...once, tx: db }).unwrap(),
    )();
    expect(next.outcome).toBe("accepted");
  });
});

describe("a transaction that cannot be used", () => {
  it("is refused by a store without transactions", async () => {
    const { jobs } = await openService(stores[0] as (typeof stores)[number], shop);
    const db = new Database(":memory:");
    const refused = await jobs.greet.create(pay, { tx: db });
    expect(refused).toMatchObject({ error: { _tag: "TransactionsNotSupported" } });
    expect(jobs.greet.createSync(pay, { tx: db })).toMatchObject({
      error: { _tag: "TransactionsNotSupported" },
    });
  });

  it("is refused where none is open", async () => {
    const { service, db } = await openShop();
    const refused = refusalOf(service.jobs.greet.createSync(pay, { tx: db }));
    expect(refused).toMatchObject({ reason: "not_open", message: /BEGIN/ });
    const later = refusalOf(await service.jobs.greet.create(pay, { tx: db }));
    expect(later.reason).toBe("not_open");
  });

  it("is refused when an awaited create would outlive a synchronous transaction", async () => {
    const { service, db } = await openShop();
    const [creating] = db.transaction(() => [service.jobs.greet.create(pay, { tx: db })])();
    const refused = refusalOf((await creating) as Result<unknown, Error>);
    expect(refused).toMatchObject({ reason: "not_open" });
    expect(refused.message).toContain("createSync");
    expect(await service.reads.counts().orThrow()).toEqual([]);
  });

  it("is refused when it is of another file, in memory, closed or read-only", async () => {
    const { service, db, path } = await openShop();
    const other = await openShop();
    const reasonOf = (tx: Database.Database) => {
      if (tx.open) tx.exec("BEGIN");
      return refusalOf(service.jobs.greet.createSync(pay, { tx })).reason;
    };
    expect(reasonOf(other.db)).toBe("another_store");
    expect(reasonOf(new Database(":memory:"))).toBe("another_store");
    expect(reasonOf(new Database(path, { readonly: true }))).toBe("read_only");
    db.pragma("query_only = 1");
    expect(reasonOf(db)).toBe("read_only");
    db.close();
    expect(reasonOf(db)).toBe("closed");
  });

  it("is the same whichever way the file is named", async () => {
    const { service, path } = await openShop();
    renameSync(path, `${path}.moved`);
    const moved = new Database(`${path}.moved`);
    onTestFinished(() => void moved.close());
    renameSync(`${path}.moved`, path);
    moved.exec("BEGIN");
    // The connection names a file that is not there any more.
    expect(refusalOf(service.jobs.greet.createSync(pay, { tx: moved })).reason).toBe(
      "another_store",
    );
  });

  it("must be run again when somebody else has written meanwhile", async () => {
    const { service, db } = await openShop();
    db.exec("BEGIN");
    db.prepare("SELECT * FROM orders").all();
    await service.jobs.greet.create(pay).orThrow();
    const created = await service.jobs.greet.create(pay, { tx: db });
    if (created.isOk()) throw new Error("The transaction reads an old state.");
    expect(created.error).toBeInstanceOf(TransactionConflict);
    expect(created.error.message).toMatch(/Roll the transaction back and run it again.*IMMEDIATE/);
    db.exec("ROLLBACK");
    const again = db.transaction(() => service.jobs.greet.createSync(pay, { tx: db }));
    expect(again.immediate().isOk()).toBe(true);
  });

  it("is left as it was when a create in it fails", async () => {
    const { service, db } = await openShop();
    db.exec("CREATE TEMP TRIGGER fail BEFORE INSERT ON ready BEGIN SELECT raise(ABORT, 'no'); END");
    db.exec("BEGIN");
    db.prepare("INSERT INTO orders VALUES (?)").run("kept");
    const created = await service.jobs.greet.create(pay, { tx: db });
    expect(created).toMatchObject({ error: { _tag: "StoreFailed" } });
    db.exec("COMMIT");
    expect(db.prepare("SELECT id FROM orders").pluck().all()).toEqual(["kept"]);
    expect(await service.reads.counts().orThrow()).toEqual([]);
  });

  it("is refused for a schema that checks later", async () => {
    const { service, db } = await openShop();
    db.exec("BEGIN");
    const refused = refusalOf(service.jobs.slow.createSync(pay, { tx: db }));
    expect(refused).toMatchObject({ reason: "not_synchronous" });
    expect(refused.message).toContain("by hand");
    const many = service.jobs.slow.createManySync([{ payload: pay }], { tx: db }).unwrap();
    expect(many[0]).toMatchObject({ error: expect.any(TransactionRefused) });
  });

  it.for([
    ["a word", "BEGIN"],
    ["nothing", null],
    ["some object", { commit: () => {} }],
  ] as const)("is refused when it is %s, with what is accepted", async ([, tx]) => {
    const { service } = await openShop();
    const refused = await service.jobs.greet.create(pay, { tx: tx as never });
    if (refused.isOk()) throw new Error("It was taken for a transaction.");
    expect(refused.error).toMatchObject({ _tag: "InvalidOption", field: "tx" });
    expect(refused.error.message).toMatch(/node-postgres.*Kysely.*better-sqlite3.*executeSql/);
  });

  it("is refused where it makes no sense", async () => {
    const { service, db } = await openShop();
    const run = await service.jobs.greet.run(pay, { tx: db } as never);
    expect(run).toMatchObject({ error: { _tag: "InvalidOption", field: "tx" } });
    const many = await service.jobs.greet.createMany([{ payload: pay, tx: db } as never]).orThrow();
    expect(many[0]).toMatchObject({ error: { _tag: "InvalidOption", field: "tx" } });
  });
});

describe("a synchronous create by name", () => {
  it("obeys the contract where it names the type, and commits and rolls back with the caller's data", async () => {
    const { service, db } = await openShop();
    const { untyped } = service;
    const create = db.transaction((name: string, isGood: boolean) => {
      const created = untyped.createSync("greet", { name }, { tx: db, id: name }).unwrap();
      if (!isGood) throw new Error("no stock");
      return created;
    });
    expect(() => create("bad", false)).toThrow("no stock");
    const { payload } = await create("good", true).get().orThrow();
    expect(payload).toEqual({ name: "good", loud: false });
    expect(await service.ref("bad").get()).toMatchObject({ error: { _tag: "JobNotFound" } });
    const refused = db.transaction(() => untyped.createSync("greet", { name: 5 }, { tx: db }))();
    expect(refused).toMatchObject({ error: { _tag: "InvalidPayload" } });
  });

  it("needs a type that no contract names to be announced", async () => {
    const { service, db } = await openShop();
    const { untyped } = service;
    const options = { tx: db, queue: "mail" };
    const early = db.transaction(() => untyped.createSync("email:new", {}, options))();
    expect(early).toMatchObject({ error: { _tag: "InvalidOption", field: "type" } });
    expect(early.isErr() && early.error.message).toContain('untyped.announce("email:new")');

    const heard: string[] = [];
    service.route("email:", (job) => void heard.push(`${job.type} ${JSON.stringify(job.payload)}`));
    await service.start();
    await untyped.announce("email:new", { queue: "mail" }).orThrow();
    const jobs = db.transaction(() => [
      untyped.createSync("email:new", 1, options).unwrap(),
      ...untyped
        .createManySync("email:new", [{ payload: 2 }, { payload: 3 }], options)
        .unwrap()
        .map((created) => created.unwrap()),
    ])();
    const submitted = db.transaction(() => untyped.submitSync("email:new", 4, options).unwrap())();
    expect(submitted.outcome).toBe("accepted");
    for (const job of jobs) await job.wait().orThrow();
    if (submitted.outcome === "accepted") await submitted.job.wait().orThrow();
    expect(heard.sort()).toEqual([1, 2, 3, 4].map((payload) => `email:new ${payload}`));
    expect(await untyped.announce("greet").orThrow()).toBeUndefined();
    expect(await untyped.announce("a b")).toMatchObject({ error: { field: "type" } });
  });
});
