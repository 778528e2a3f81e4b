// Jobs in transactions of PostgreSQL, through every client: they commit and roll back with the caller's data,
// keys hold, others hear of them only afterwards, and a handler's writes commit with its outcome.
import {
  type ActiveJob,
  type ConnectOptions,
  connect,
  defineJob,
  defineService,
  TransactionRefused,
} from "millrace";
import { Client } from "pg";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { callerTransaction } from "#millrace/client/transactions/recognise.js";
import { recordId } from "#millrace/engine/record.js";
import { FakeClock } from "#millrace/testing/fake-clock.js";
import { execute, freshDatabase, freshSchema } from "../support/postgres.js";
import { gate } from "../worker/workshop.js";
import { type Library, libraries } from "./libraries.js";

const order = z.object({ orderId: z.string() });

const contract = defineService("shop", {
  charge: defineJob({
    payload: order,
    result: z.object({ paid: z.boolean() }),
    continuations: ["ship"],
    retry: { maxTries: 3, backoff: [0] },
  }),
  ship: defineJob({ payload: order }),
  keyed: defineJob({ payload: order, keyConcurrency: { key: ["/orderId"] } }),
});

const payload = { orderId: "o-1" };

/** A service, a table of the shop's own beside its jobs, and a library that writes to it. */
async function openShop(library: Library, options: Pick<ConnectOptions, "clock" | "keeper"> = {}) {
  const { url, schema } = await freshSchema();
  const own = new URL(url);
  own.searchParams.set("schema", schema);
  const { source, wrap, close } = await library.open(url);
  onTestFinished(async () => void (await close()));
  const service = await connect(contract, { url: own.href, transactions: source, ...options });
  onTestFinished(() => service.stop());
  const table = `${schema}.charges`;
  await execute(url, `CREATE TABLE ${table} (id text PRIMARY KEY, tries int)`);
  const txOf = (client: never) => (wrap ? wrap(client) : (client as Client));
  /** Writes into the shop's own table, as the library would, through what every library here can do. */
  const charge = async (client: never, id: string, tries = 0) => {
    const tx = source.enlist ? source.enlist(client) : callerTransaction(client);
    if (tx instanceof Error) throw tx;
    await tx.execute(`INSERT INTO ${table} (id, tries) VALUES ($1, $2)`, [id, tries]);
  };
  const reader = new Client({ connectionString: url });
  await reader.connect();
  onTestFinished(() => reader.end());
  const charges = async () => {
    const query = { text: `SELECT id, tries FROM ${table} ORDER BY id`, rowMode: "array" } as const;
    return (await reader.query(query)).rows as unknown[];
  };
  return { service, source, charge, charges, txOf, schema, url };
}

/** Waits until another transaction waits for a lock that this one holds. */
async function isWaitedFor(client: unknown): Promise<void> {
  const waiting =
    "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))";
  while ((await (client as Client).query(waiting)).rowCount === 0);
}

describe.for(libraries)("a create in a transaction of $name", (library) => {
  it("commits and rolls back with the caller's data", async () => {
    const { service, source, charge, charges, txOf } = await openShop(library);
    const place = (id: string, isGood: boolean) =>
      source.run(async (client) => {
        await charge(client, id);
        await service.jobs.ship.create(payload, { tx: txOf(client), id }).orThrow();
        const many = [
          { payload, id: `${id}-1`, tags: ["vip"] },
          { payload, id: `${id}-2` },
        ];
        const created = await service.jobs.ship.createMany(many, { tx: txOf(client) }).orThrow();
        expect(created.map((each) => each.isOk())).toEqual([true, true]);
        expect(await service.ref(id).get()).toMatchObject({ error: { _tag: "JobNotFound" } });
        if (!isGood) throw new Error("no stock");
      });
    await expect(place("bad", false)).rejects.toThrow("no stock");
    await place("good", true);
    expect(await charges()).toEqual([["good", 0]]);
    for (const id of ["bad", "bad-1", "bad-2"]) {
      expect(await service.ref(id).get()).toMatchObject({ error: { _tag: "JobNotFound" } });
    }
    for (const id of ["good", "good-1", "good-2"]) {
      expect((await service.ref(id).get().orThrow()).state).toBe("pending");
    }
  });

  it("holds keys and idempotency keys", async () => {
    const { service, source, txOf } = await openShop(library);
    const once = { idempotencyKey: { key: "order-1", scope: "unfinished" } } as const;
    const outcomes = await source.run(async (client) => {
      const tx = txOf(client);
      const keyed = await service.jobs.keyed.submit(payload, { tx }).orThrow();
      const again = await service.jobs.keyed.submit(payload, { tx }).orThrow();
      const first = await service.jobs.ship.submit(payload, { tx, ...once }).orThrow();
      const second = await service.jobs.ship.submit(payload, { tx, ...once }).orThrow();
      return [keyed.outcome, again.outcome, first.outcome, second.outcome];
    });
    expect(outcomes).toEqual(["accepted", "rejected", "accepted", "existing"]);
    expect((await service.jobs.ship.submit(payload, once).orThrow()).outcome).toBe("existing");
    expect((await service.jobs.keyed.submit(payload).orThrow()).outcome).toBe("rejected");
  });

  it("wakes workers after the commit", async () => {
    const { service, source, charge, charges, txOf } = await openShop(library);
    const seen: unknown[] = [];
    service.jobs.ship.handle(async () => void seen.push(await charges()));
    await service.start();
    const ref = await source.run(async (client) => {
      const created = await service.jobs.ship.create(payload, { tx: txOf(client) }).orThrow();
      await charge(client, "o-1");
      return created;
    });
    await ref.wait().orThrow();
    expect(seen).toEqual([[["o-1", 0]]]);
  });

  it("is refused when it is of another database", async () => {
    const { service } = await openShop(library);
    const other = await library.open(await freshDatabase());
    const refused = other.source.run(async (client) => {
      const tx = other.wrap ? other.wrap(client) : client;
      await service.jobs.ship.create(payload, { tx }).orThrow();
    });
    await expect(refused).rejects.toMatchObject({ reason: "another_store" });
    await other.close();
  });

  it("is refused once a statement of the transaction has failed", async () => {
    const { service, source, charge, charges, txOf } = await openShop(library);
    const refusals: unknown[] = [];
    const failing = source.run(async (client) => {
      await charge(client, "o-1");
      await charge(client, "o-1").catch(() => {});
      const refused = await service.jobs.ship.create(payload, { tx: txOf(client) });
      if (refused.isErr()) refusals.push(refused.error);
      return refused.unwrap();
    });
    await expect(failing).rejects.toThrow();
    expect(refusals).toMatchObject([{ _tag: "TransactionRefused", reason: "not_open" }]);
    expect(await charges()).toEqual([]);
  });

  it("waits for another one in the same transaction, whose failure undoes nothing of it", async () => {
    const { service, source, txOf, url } = await openShop(library);
    const other = new Client({ connectionString: url });
    await other.connect();
    onTestFinished(() => other.end());
    await other.query("BEGIN");
    await service.jobs.ship.create(payload, { id: "taken", tx: other }).orThrow();
    const ids = ["before", "taken", "after-1", "after-2"];
    const placed = source.run(async (client) => {
      const own = source.enlist ? source.enlist(client) : callerTransaction(client);
      if (own instanceof Error) throw own;
      await own.execute("SET LOCAL lock_timeout = 100", []);
      return Promise.all(
        ids.map((id) => service.jobs.ship.create(payload, { id, tx: txOf(client) })),
      );
    });
    // postgres.js rolls back every transaction in which a statement has failed, and says so.
    if (library.name.includes("postgres.js")) {
      await expect(placed).rejects.toThrow("lock timeout");
      for (const id of ids) expect((await service.ref(id).get()).isErr()).toBe(true);
      return;
    }
    const outcomes = await placed;
    await other.query("ROLLBACK");
    expect(outcomes.map((each) => (each.isOk() ? each.value.id : each.error._tag))).toEqual([
      "before",
      "TransactionConflict",
      "after-1",
      "after-2",
    ]);
    for (const id of ["before", "after-1", "after-2"])
      expect((await service.ref(id).get().orThrow()).state).toBe("pending");
  });

  it("is refused after the transaction", async () => {
    const { service, source, txOf } = await openShop(library);
    const tx = await source.run(async (client) => txOf(client));
    const refused = await service.jobs.ship.create(payload, { tx });
    if (refused.isOk()) throw new Error("The transaction was over.");
    expect(refused.error).toBeInstanceOf(TransactionRefused);
  });
});

describe.for(libraries)("a handler's transaction of $name", (library) => {
  it.for(["prepare", "complete"] as const)(
    "does not pass for committed when a failure in it is caught: %s",
    async (phase) => {
      const { service, charge, charges } = await openShop(library);
      const failures: unknown[] = [];
      const write = async ({ tx }: { tx: never }, tries: number) => {
        await charge(tx, `try-${tries}`, tries);
        if (tries === 1) await charge(tx, `try-${tries}`, tries).catch(() => {});
        return { paid: true };
      };
      service.jobs.charge.handle(async (job) => {
        const step = phase === "prepare" ? job.prepare : null;
        try {
          if (step) return await step({ mode: "staged" }, (own) => write(own as never, job.tries));
          return await job.complete((own) => write(own as never, job.tries));
        } catch (error) {
          failures.push(error);
          throw error;
        }
      });
      await service.start();
      expect(await service.jobs.charge.run(payload).orThrow()).toEqual({ paid: true });
      expect(failures).toMatchObject([{ _tag: "TransactionRefused", reason: "not_open" }]);
      expect(await charges()).toEqual([["try-2", 2]]);
    },
  );

  it.for(["atomic", "staged"] as const)("commits with the outcome: %s", async (mode) => {
    const { service, charge, charges } = await openShop(library);
    service.handle({
      charge: async ({ prepare, complete, payload, tries }) => {
        await prepare({ mode }, ({ tx }) => charge(tx, `prepared-${tries}`, tries));
        if (tries === 1) throw new Error("no stock");
        return complete(async ({ tx, continueWith }) => {
          await charge(tx, `completed-${tries}`, tries);
          return continueWith("ship", payload);
        });
      },
      ship: ({ complete }) => complete(async ({ tx }) => charge(tx, "shipped")),
    });
    await service.start();
    const ref = await service.jobs.charge.create(payload).orThrow();
    await ref.wait().orThrow();
    const completed = (await ref.events().orThrow()).at(-1);
    if (completed?.name !== "completed") throw new Error("The job was not completed last.");
    await service
      .ref(completed.continuation?.jobId ?? "")
      .wait()
      .orThrow();
    expect(await charges()).toEqual([
      ["completed-2", 2],
      ...(mode === "staged" ? [["prepared-1", 1]] : []),
      ["prepared-2", 2],
      ["shipped", 0],
    ]);
  });
});

describe("a transaction of node-postgres", () => {
  const [library] = libraries;
  if (library === undefined) throw new Error("There is no library.");

  it("is told of after its commit and not before", async () => {
    const clock = new FakeClock();
    const { service, source, txOf } = await openShop(library, { clock });
    let isOver = false;
    const heard: boolean[] = [];
    const hearing = new Promise<void>((resolve) => {
      service.engine.wake("ready", () => {
        heard.push(isOver);
        if (isOver) resolve();
      });
    });
    await source.run(async (client) => {
      await service.jobs.ship.create(payload, { tx: txOf(client) }).orThrow();
      await clock.advance(2_000);
      heard.length = 0;
      await clock.advance(2_000);
      expect(heard).toEqual([]);
      isOver = true;
    });
    const moving = setInterval(() => void clock.advance(1_000), 5); // clock: the answers of a real server are waited for
    await hearing;
    clearInterval(moving);
  });

  it("keeps its lease while it is open, however long it takes", async () => {
    const clock = new FakeClock();
    const { service, charge, charges } = await openShop(library, { clock });
    // What the worker and the keeper ask is answered before more time passes.
    const looks = vi.spyOn(service.engine, "due");
    const asked = [looks, vi.spyOn(service.engine, "renew"), vi.spyOn(service.engine, "swap")];
    const isAnswered = () =>
      asked.every(({ mock }) => mock.settledResults.every(({ type }) => type !== "incomplete"));
    // The keeper sees the lease as it was before the transaction locked it, and that it has lapsed long since.
    const lapses = () =>
      looks.mock.settledResults.filter(
        ({ type, value }) => type === "fulfilled" && value.some(({ type }) => type === "charge"),
      ).length;
    const completing = gate();
    service.jobs.charge.handle(async ({ signal, prepare, complete }) => {
      await prepare({ mode: "atomic" }, ({ tx }) => charge(tx, "prepared"));
      const threeLeases = clock.now() + 90_000;
      while (clock.now() < threeLeases) {
        await clock.advance(1_000);
        await vi.waitUntil(isAnswered, { interval: 1, timeout: 10_000 });
      }
      completing.open();
      signal.throwIfAborted();
      return complete(() => ({ paid: true }));
    });
    await service.start();
    const ref = await service.jobs.charge.create(payload).orThrow();
    await completing.opened;
    const moving = setInterval(() => void clock.advance(100), 5); // clock: the answers of a real server are waited for
    const ended = ref.wait().orThrow();
    expect(await ended.finally(() => clearInterval(moving))).toEqual({ paid: true });
    expect(lapses()).toBeGreaterThan(5);
    const names = (await ref.events().orThrow()).map(({ name }) => name);
    expect(names).toEqual(["created", "started", "completed"]);
    expect(await charges()).toEqual([["prepared", 0]]);
  });

  describe("is open when its job is cancelled", () => {
    /** Runs a job whose atomic handler does `then` once it was cancelled, and gives how that went. */
    async function cancelled(
      then: (job: Pick<ActiveJob<unknown>, "heartbeat" | "signal">) => Promise<void>,
    ) {
      if (library === undefined) throw new Error("There is a library.");
      const { service, charge, charges } = await openShop(library, { keeper: { tickMs: 50 } });
      const [prepared, asked] = [gate(), gate()];
      service.jobs.charge.handle(async (job) => {
        await job.prepare({ mode: "atomic" }, ({ tx }) => charge(tx, "prepared"));
        prepared.open();
        await asked.opened;
        await then(job);
        return job.complete(() => ({ paid: true }));
      });
      await service.start();
      const ref = await service.jobs.charge.create(payload).orThrow();
      await prepared.opened;
      const outcome = await ref.cancel("not wanted").orThrow();
      const again = await ref.cancel("not wanted at all").orThrow();
      const forced = await ref.cancel("now", { force: true });
      expect(outcome).toEqual({ outcome: "requested", state: "active" });
      expect(again).toEqual(outcome);
      expect(forced).toMatchObject({ error: { _tag: "StoreBusy" } });
      asked.open();
      await ref.wait();
      const prefix = recordId.cancels("shop");
      while ((await service.engine.query("records", { prefix, limit: 1 })).length > 0);
      return { job: await ref.get().orThrow(), charges: await charges() };
    }

    it("and its handler hears of it with the next renewal", async () => {
      const { job, charges } = await cancelled(async ({ heartbeat, signal }) => {
        await heartbeat();
        signal.throwIfAborted();
      });
      expect(job).toMatchObject({ state: "cancelled", reason: "not wanted", tries: 1 });
      expect(charges).toEqual([]);
    });

    it("and the job is cancelled when the handler fails before it hears of it", async () => {
      const { job, charges } = await cancelled(() => Promise.reject(new Error("no stock")));
      expect(job).toMatchObject({ state: "cancelled", reason: "not wanted" });
      expect(charges).toEqual([]);
    });

    it("and the job stays completed when the handler was faster", async () => {
      const { job, charges } = await cancelled(async () => {});
      expect(job).toMatchObject({ state: "completed", result: { paid: true } });
      expect(charges).toEqual([["prepared", 0]]);
    });
  });

  it("is rolled back when the job was ended meanwhile", async () => {
    const { service, charge, charges } = await openShop(library);
    const failures: unknown[] = [];
    service.jobs.charge.handle(async ({ id, complete }) => {
      await service.ref(id).cancel("not wanted", { force: true }).orThrow();
      return complete(async ({ tx }) => {
        await charge(tx, "never");
        return { paid: true };
      }).catch((failure) => {
        failures.push(failure);
        throw failure;
      });
    });
    await service.start();
    await service.jobs.charge.run(payload);
    await service.stop();
    expect(failures).toMatchObject([{ _tag: "JobAlreadyCompleted", state: "cancelled" }]);
    expect(await charges()).toEqual([]);
  });

  it("lets one of many in, of those that compete for a key", async () => {
    const { service, source, charge, charges, txOf } = await openShop(library);
    const compete = (index: number) =>
      source.run(async (client) => {
        const tx = txOf(client);
        const keyed = await service.jobs.keyed.submit(payload, { tx }).orThrow();
        const once = { tx, idempotencyKey: "o-1" };
        const idempotent = await service.jobs.ship.submit(payload, once).orThrow();
        if (keyed.outcome === "accepted") await charge(client, `keyed-${index}`);
        if (idempotent.outcome === "accepted") await charge(client, `once-${index}`);
        if (index % 2 === 0) throw new Error("no stock");
      });
    await Promise.allSettled(Array.from({ length: 20 }, (_, index) => compete(index)));
    const counts = await service.reads.counts().orThrow();
    expect(counts.map(({ type, count }) => [type, count])).toEqual([
      ["keyed", 1],
      ["ship", 1],
    ]);
    expect(await charges()).toHaveLength(2);
  });

  it("stands in the feed before a retry that waited for its key", async () => {
    const { service, source, txOf, schema } = await openShop(library);
    const first = await service.jobs.keyed.create(payload).orThrow();
    await first.cancel("for now").orThrow();
    const retrying = source.run(async (client) => {
      await (client as Client).query(`SELECT hash FROM ${schema}.keys FOR UPDATE`);
      const retry = { retried: first.retry().orThrow() };
      await isWaitedFor(client);
      await service.jobs.keyed.create(payload, { tx: txOf(client), id: "second" }).orThrow();
      return retry;
    });
    await (await retrying).retried;
    const names: string[] = [];
    for await (const { event } of service.engine.tail(null, AbortSignal.timeout(30_000))) {
      names.push(`${event.jobId === first.id ? "first" : event.jobId} ${event.name}`);
      if (event.name === "retried") break;
    }
    expect(names.slice(-2)).toEqual(["second created", "first retried"]);
  });

  it("is refused by a synchronous create", async () => {
    const { service, source } = await openShop(library);
    await source.run(async (client) => {
      const refused = service.jobs.ship.createSync(payload, { tx: client });
      expect(refused).toMatchObject({ error: { reason: "not_synchronous" } });
    });
  });

  it("must be run again after a deadlock, and says so", async () => {
    const { service, source, txOf } = await openShop(library);
    const both = (first: string, second: string, meet: Promise<void>, met: () => void) =>
      source.run(async (client) => {
        const tx = txOf(client);
        await service.jobs.keyed.submit({ orderId: first }, { tx }).orThrow();
        met();
        await meet;
        return service.jobs.keyed.submit({ orderId: second }, { tx }).orThrow();
      });
    const [one, two] = [gate(), gate()];
    const settled = await Promise.allSettled([
      both("a", "b", two.opened, one.open),
      both("b", "a", one.opened, two.open),
    ]);
    const failures = settled.filter(({ status }) => status === "rejected");
    expect(failures).toMatchObject([{ reason: { _tag: "TransactionConflict", code: "40P01" } }]);
  });
});
