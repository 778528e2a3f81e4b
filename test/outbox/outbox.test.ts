// Creating in a transaction of the caller's own database while jobs are in a store that cannot take part in it.
import Database from "better-sqlite3";
import { connect, type JobEnded, type JobRef, type Result, TransactionRefused } from "millrace";
import { Client } from "pg";
import { describe, expect, it } from "vitest";
import type { Change } from "#millrace/engine/engine.js";
import { StoreUnavailable } from "#millrace/engine/errors.js";
import { FakeClock } from "#millrace/testing/fake-clock.js";
import { freshDatabase } from "../support/postgres.js";
import { sqliteStore } from "../transactions/shop-file.js";
import type { LoggedLine } from "../worker/workshop.js";
import { arrived, emptied, type Home, homes, openShop, sharedStore } from "./shop.js";
import { changed, shop } from "./shop-contract.js";

const o1 = { orderId: "o-1" };

/** How a job ended that was not completed. */
async function endOf(ref: Pick<JobRef, "wait">): Promise<Pick<JobEnded, "state" | "reason">> {
  const ended = await ref.wait();
  if (ended.isOk() || ended.error._tag !== "JobEnded")
    throw new Error("It should have ended badly.");
  const { state, reason } = ended.error;
  return { state, ...(reason === undefined ? null : { reason }) };
}

function loggerInto(lines: LoggedLine[]) {
  const log = (level: LoggedLine["level"]) => (fields: object, message: string) => {
    lines.push({ level, fields: fields as LoggedLine["fields"], message });
  };
  return { info: log("info"), warn: log("warn"), error: log("error") };
}

/** The orders of the jobs of a type, in the order in which the log has their creations. */
async function createdOrder(
  engine: ReturnType<typeof sharedStore>,
  count: number,
): Promise<readonly string[]> {
  const stop = new AbortController();
  const orders: string[] = [];
  for await (const { event } of engine.tail(null, stop.signal)) {
    if (event.name === "created") orders.push(event.tags[0] ?? "");
    if (orders.length === count) stop.abort();
  }
  return orders;
}

describe.for(homes)("an outbox in $name", ({ fresh }) => {
  it("gives the job to the store after the commit, and never after a rollback", async () => {
    const home = await fresh();
    const service = await openShop(home);
    service.jobs.charge.handle(({ payload }) => ({ paid: payload.orderId }));
    await service.start();
    const undone = await home.begin();
    const lost = await service.jobs.charge.create(o1, { tx: undone.tx, id: "lost" }).orThrow();
    await undone.end("ROLLBACK");
    const ref = await home.within((tx) => service.jobs.charge.create(o1, { tx }).orThrow());
    expect(await ref.wait().orThrow()).toEqual({ paid: "o-1" });
    expect(await lost.get()).toMatchObject({ error: { _tag: "JobNotFound" } });
    await emptied(home);
    expect(await service.reads.counts().orThrow()).toMatchObject([
      { state: "completed", count: 1 },
    ]);
  });

  it("takes submits, many, jobs without a contract and chains", async () => {
    const home = await fresh();
    const service = await openShop(home);
    service.jobs.charge.handle(({ payload }) => ({ paid: payload.orderId }));
    await service.start();
    const { many, chain, untyped } = await home.within(async (tx) => {
      expect((await service.jobs.charge.submit(o1, { tx }).orThrow()).outcome).toBe("accepted");
      const jobs = [{ payload: o1 }, { payload: { orderId: 5 } as never }, { payload: o1 }];
      return {
        many: await service.jobs.charge.createMany(jobs, { tx }).orThrow(),
        chain: await service.chains.start("charge", { orderId: "chained" }, { tx }).orThrow(),
        untyped: await service.untyped.create("charge", o1, { tx }).orThrow(),
      };
    });
    expect(many.map((each) => (each.isOk() ? "ok" : each.error._tag))).toEqual([
      "ok",
      "InvalidPayload",
      "ok",
    ]);
    expect(await service.chains.wait(chain).orThrow()).toEqual({ paid: "chained" });
    expect(await untyped.wait().orThrow()).toEqual({ paid: "o-1" });
    await emptied(home);
    expect(await service.reads.counts().orThrow()).toMatchObject([
      { state: "completed", count: 5 },
    ]);
  });

  it("is emptied in order per key, and in bulk", async () => {
    const home = await fresh();
    const engine = sharedStore();
    const appends: number[] = [];
    const append = (changes: readonly Change[]) => {
      appends.push(changes.length);
      return engine.append(changes);
    };
    const service = await openShop(home, { engine: changed(engine, { append }) });
    const count = 300;
    const keys = 30;
    await home.within(async (tx) => {
      const jobs = Array.from({ length: count }, (_, index) => ({
        payload: { orderId: `o-${index % keys}` },
        tags: [`${index}`],
      }));
      expect(await service.jobs.lined.createMany(jobs, { tx }).orThrow()).toHaveLength(count);
    });
    await service.start();
    await emptied(home);
    const order = (await createdOrder(engine, count)).map(Number);
    for (let key = 0; key < keys; key++) {
      const own = order.filter((index) => index % keys === key);
      expect(own).toEqual([...own].sort((a, b) => a - b));
    }
    expect(order).toHaveLength(count);
    expect(appends.length).toBeLessThan(count / 10);
  });

  it("applies the key's policy when it publishes: what is refused late is skipped", async () => {
    const home = await fresh();
    const service = await openShop(home);
    const refs = await home.within(async (tx) => [
      await service.jobs.strict.create(o1, { tx }).orThrow(),
      await service.jobs.strict.create(o1, { tx }).orThrow(),
      await service.jobs.merged.create(o1, { tx }).orThrow(),
      await service.jobs.merged.create(o1, { tx }).orThrow(),
      await service.jobs.merged.create(o1, { tx }).orThrow(),
    ]);
    await service.start();
    await emptied(home);
    const jobs = await Promise.all(refs.map((ref) => ref.get().orThrow()));
    expect(jobs.map(({ state }) => state)).toEqual([
      "pending",
      "skipped",
      "pending",
      "pending",
      "skipped",
    ]);
    expect(jobs[1]?.policy).toMatchObject({ outcome: "rejected", existingJobId: refs[0]?.id });
    expect(jobs[4]?.policy).toMatchObject({ outcome: "coalesced", existingJobId: refs[2]?.id });
    expect(await endOf(refs[1] as JobRef)).toEqual({ state: "skipped", reason: "rejected late" });
  });

  it("compares idempotency keys when it publishes", async () => {
    const home = await fresh();
    const service = await openShop(home);
    await service.start();
    const again = { idempotencyKey: "once" };
    const create = (orderId: string) =>
      home.within((tx) => service.jobs.charge.create({ orderId }, { tx, ...again }).orThrow());
    const first = await create("o-1");
    await emptied(home);
    expect((await first.get().orThrow()).state).toBe("pending");
    expect(await endOf(await create("o-1"))).toEqual({
      state: "skipped",
      reason: `job ${first.id} has its idempotency key`,
    });
    const other = await endOf(await create("o-2"));
    expect(other.state).toBe("skipped");
    expect(other.reason).toContain("a different payload");
    expect((await service.jobs.charge.create(o1, again).orThrow()).id).toBe(first.id);
  });

  it("publishes blockers before those who wait for them, and skips one whose blocker is missing", async () => {
    const home = await fresh();
    const service = await openShop(home);
    const { blocked, missing } = await home.within(async (tx) => {
      const paid = await service.jobs.charge.create(o1, { tx }).orThrow();
      return {
        blocked: await service.jobs.pack.create(o1, { tx, blockers: { paid } }).orThrow(),
        missing: await service.untyped
          .create("other", o1, { tx, blockers: [service.ref("nobody")] })
          .orThrow(),
      };
    });
    await service.start();
    await emptied(home);
    expect((await blocked.get().orThrow()).state).toBe("blocked");
    expect(await endOf(missing)).toEqual({ state: "skipped", reason: "blocker nobody missing" });
  });

  it("publishes once although replies are lost", async () => {
    const home = await fresh();
    const engine = sharedStore();
    let lost = 2;
    const append = async (changes: readonly Change[]) => {
      const answers = await engine.append(changes);
      lost -= 1;
      if (lost >= 0) throw new StoreUnavailable({ url: "memory:", message: "The reply is lost." });
      return answers;
    };
    const lines: LoggedLine[] = [];
    const service = await openShop(home, {
      engine: changed(engine, { append }),
      logger: loggerInto(lines),
      keeper: { tickMs: 10 },
    });
    const refs = await home.within(async (tx) => [
      await service.jobs.strict.create(o1, { tx }).orThrow(),
      await service.jobs.strict.create(o1, { tx }).orThrow(),
    ]);
    await service.start();
    await emptied(home);
    const names = await Promise.all(
      refs.map(async (ref) => (await ref.events().orThrow()).map(({ name }) => name)),
    );
    expect(names).toEqual([["created"], ["created", "skipped"]]);
    expect(lines.filter(({ level }) => level === "error")).toHaveLength(1);
    expect(lines.filter(({ level }) => level === "warn")).toEqual([]);
  });

  it("leaves what the store refuses, and what comes after it under its key, and publishes the rest", async () => {
    const home = await fresh();
    const engine = sharedStore();
    let isFull = true;
    const error = new StoreUnavailable({
      url: "memory:",
      message: "There is no room for this one.",
    });
    const append = async (changes: readonly Change[]) => {
      const isRefused = ({ event }: Change) =>
        isFull && event.name === "created" && event.tags.includes("large");
      const answers = await engine.append(changes.filter((change) => !isRefused(change)));
      let next = 0;
      return changes.map((change) => {
        if (isRefused(change)) return { outcome: "faulted", error } as const;
        const answer = answers[next++];
        if (answer === undefined) throw new Error("There is one for each.");
        return answer;
      });
    };
    const service = await openShop(home, {
      engine: changed(engine, { append }),
      keeper: { tickMs: 10 },
    });
    const [large, behind, other] = await home.within(async (tx) => [
      await service.jobs.lined.create(o1, { tx, tags: ["large"] }).orThrow(),
      await service.jobs.lined.create(o1, { tx, tags: ["behind"] }).orThrow(),
      await service.jobs.lined.create({ orderId: "o-2" }, { tx, tags: ["other"] }).orThrow(),
    ]);
    await service.start();
    await arrived(other as JobRef);
    expect(await large?.get()).toMatchObject({ error: { _tag: "JobNotFound" } });
    expect(await behind?.get()).toMatchObject({ error: { _tag: "JobNotFound" } });
    while ((await home.rows()) > 2);
    expect(await home.rows()).toBe(2);
    isFull = false;
    await emptied(home);
    expect(await createdOrder(engine, 3)).toEqual(["other", "large", "behind"]);
  });

  it("drops a job whose id somebody else has taken, and says so", async () => {
    const home = await fresh();
    const lines: LoggedLine[] = [];
    const service = await openShop(home, { logger: loggerInto(lines) });
    await service.jobs.charge.create({ orderId: "first" }, { id: "mine" }).orThrow();
    await home.within((tx) => service.jobs.charge.create(o1, { tx, id: "mine" }).orThrow());
    await service.start();
    await emptied(home);
    expect((await service.ref("mine").get().orThrow()).payload).toEqual({ orderId: "first" });
    expect(lines.filter(({ level }) => level === "warn")).toMatchObject([
      { fields: { jobId: "mine", type: "charge" } },
    ]);
  });

  it("leaves rows that another version has put down in another way", async () => {
    const home = await fresh();
    const service = await openShop(home, { keeper: { tickMs: 10 } });
    const { openOutbox } = await import("#millrace/engine/open.js");
    const { callerTransaction } = await import("#millrace/client/transactions/recognise.js");
    const outbox = await openOutbox(home.outbox);
    await outbox.provision();
    const ref = await home.within(async (given) => {
      const tx = callerTransaction(given);
      if (tx instanceof Error) throw tx;
      await outbox.put([{ service: "shop", body: '{"format":99}' }], tx);
      return service.jobs.charge.create(o1, { tx: given }).orThrow();
    });
    await outbox.close();
    await service.start();
    await arrived(ref);
    while ((await home.rows()) > 1);
    expect(await home.rows()).toBe(1);
  });

  it("is relayed by one process, and by another when that one stops", async () => {
    const home = await fresh();
    const engine = sharedStore();
    const lines: LoggedLine[] = [];
    const open = (instance: string) =>
      openShop(home, {
        engine,
        instance,
        logger: loggerInto(lines),
        keeper: { ttlMs: 200, renewMs: 50 },
      });
    const [one, two] = [await open("one"), await open("two")];
    await one.start();
    await two.start();
    const leaders = () =>
      lines.flatMap(({ message, fields }) =>
        message === "This process relays the outbox now." ? [fields.instance] : [],
      );
    expect(leaders()).toEqual(["one"]);
    await one.stop();
    await home.within((tx) => two.jobs.charge.create(o1, { tx }).orThrow());
    await emptied(home);
    expect(leaders()).toEqual(["one", "two"]);
  });

  it("tells the relay of another process when a transaction has committed", async () => {
    const home = await fresh();
    const engine = sharedStore();
    // The clock of the relay's process stands still, so that it never looks by itself.
    const relaying = await openShop(home, { engine, clock: new FakeClock() });
    await relaying.start();
    const creating = await openShop(home, { engine });
    for (let round = 0; round < 5; round++)
      await home.within((tx) => creating.jobs.charge.create(o1, { tx }).orThrow());
    await emptied(home);
    expect(await creating.reads.counts().orThrow()).toMatchObject([{ count: 5 }]);
  });

  it("keeps its rows while nobody relays", async () => {
    const home = await fresh();
    const engine = sharedStore();
    const creating = await openShop(home, { engine });
    const quiet = await openShop(home, { engine, keeper: false });
    await quiet.start();
    const ref = await home.within((tx) => creating.jobs.charge.create(o1, { tx }).orThrow());
    expect(await home.rows()).toBe(1);
    const waited = await ref.wait({ timeoutMs: 50 });
    expect(waited.isErr() && waited.error._tag).toBe("WaitTimeout");
    await creating.stop();
    const later = await openShop(home, { engine });
    await later.start();
    await emptied(home);
    expect((await later.ref(ref.id).get()).isOk()).toBe(true);
  });
});

it("does not skip rows whose transaction commits late", async () => {
  const home = await postgresHome();
  const service = await openShop(home);
  await service.start();
  const late = await home.begin();
  const ref = await service.jobs.charge.create(o1, { tx: late.tx }).orThrow();
  const early = await home.within((tx) => service.jobs.charge.create(o1, { tx }).orThrow());
  await arrived(early);
  expect(await ref.get()).toMatchObject({ error: { _tag: "JobNotFound" } });
  await late.end("COMMIT");
  await arrived(ref);
  await emptied(home);
});

it("is waited for in vain for a minute when its transaction was rolled back", async () => {
  const home = await sqliteHome();
  const clock = new FakeClock();
  const service = await openShop(home, { clock });
  const undone = await home.begin();
  const ref = await service.jobs.charge.create(o1, { tx: undone.tx }).orThrow();
  await undone.end("ROLLBACK");
  let ended: Result<unknown, Error> | null = null;
  const waiting = ref.wait().then((result) => {
    ended = result;
  });
  await clock.advance(59_000);
  expect(ended).toBeNull();
  await clock.advance(2_000);
  await waiting;
  expect(ended).toMatchObject({ error: { _tag: "JobNotFound" } });
});

describe("createSync through an outbox", () => {
  it("is done when it returns", async () => {
    const home = await sqliteHome();
    const service = await openShop(home);
    await service.start();
    const db = new Database(home.outbox.slice("file:".length));
    const created = db.transaction(() => {
      db.prepare("INSERT INTO orders VALUES (?)").run("o-1");
      return service.jobs.charge.createSync(o1, { tx: db });
    })();
    if (created.isErr()) throw created.error;
    await emptied(home);
    expect((await created.value.get().orThrow()).state).toBe("pending");
    db.close();
  });
});

describe("an outbox is refused", () => {
  it("by a store that takes part in transactions itself", async () => {
    const { url } = await sqliteStore();
    await expect(connect(shop, { url, outbox: url })).rejects.toMatchObject({
      _tag: "InvalidOption",
      field: "outbox",
    });
  });

  it.for(["memory:", "nats://host", "app.db"])("in %s", async (outbox) => {
    await expect(connect(shop, { url: "memory:", outbox })).rejects.toThrow(
      /An outbox cannot be in/,
    );
  });

  it("where the database cannot be reached", async () => {
    const refused = { _tag: "StoreUnavailable" };
    const there = { url: "memory:", outbox: "file:/nowhere/at/all/app.db" };
    await expect(connect(shop, there)).rejects.toMatchObject(refused);
    const port = { url: "memory:", outbox: "postgres://127.0.0.1:1/app" };
    await expect(connect(shop, port)).rejects.toMatchObject(refused);
  });

  it("and named by the error of a create that needs one", async () => {
    const service = await connect(shop, { url: "memory:" });
    const refused = await service.jobs.charge.create(o1, { tx: { executeSql: async () => [] } });
    expect(refused.isErr() && refused.error._tag).toBe("TransactionsNotSupported");
    expect(refused.isErr() && refused.error.message).toContain("outbox:");
    await service.stop();
  });
});

describe("a transaction is refused by an outbox", () => {
  it("that is in another file, or when none is open", async () => {
    const home = await sqliteHome();
    const service = await openShop(home);
    const other = new Database(":memory:");
    other.exec("BEGIN");
    expect(refusalOf(await service.jobs.charge.create(o1, { tx: other }))).toBe("another_store");
    other.close();
    const own = new Database(home.outbox.slice("file:".length));
    expect(refusalOf(await service.jobs.charge.create(o1, { tx: own }))).toBe("not_open");
    own.close();
    const foreign = await service.jobs.charge.create(o1, { tx: { executeSql: async () => [] } });
    expect(refusalOf(foreign)).toBe("another_store");
  });

  it("that is in another database, or when none is open", async () => {
    const home = await postgresHome();
    const service = await openShop(home);
    const elsewhere = new Client({ connectionString: await freshDatabase() });
    await elsewhere.connect();
    await elsewhere.query("BEGIN");
    const foreign = await service.jobs.charge.create(o1, { tx: elsewhere });
    expect(refusalOf(foreign)).toBe("another_store");
    await elsewhere.end();
    const own = new URL(home.outbox);
    own.searchParams.delete("schema");
    const idle = new Client({ connectionString: own.href });
    await idle.connect();
    expect(refusalOf(await service.jobs.charge.create(o1, { tx: idle }))).toBe("not_open");
    await idle.end();
    const file = new Database(":memory:");
    file.exec("BEGIN");
    expect(refusalOf(await service.jobs.charge.create(o1, { tx: file }))).toBe("another_store");
    file.close();
  });
});

function refusalOf(result: Result<unknown, Error>): string {
  if (result.isOk()) throw new Error("The transaction was accepted.");
  if (!(result.error instanceof TransactionRefused)) throw result.error;
  return result.error.reason;
}

function kindNamed(name: string) {
  const kind = homes.find((home) => home.name === name);
  if (kind === undefined) throw new Error(`There is no home ${name}.`);
  return kind;
}

function sqliteHome(): Promise<Home> {
  return kindNamed("sqlite").fresh();
}

function postgresHome(): Promise<Home> {
  return kindNamed("postgres").fresh();
}
