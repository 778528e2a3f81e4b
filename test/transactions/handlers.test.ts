// Handlers with transactions of their own client: what they write, their outcome and their continuation
// commit together or not at all, in both modes and however the mode was chosen.
import Database from "better-sqlite3";
import {
  type AsyncTransactionSource,
  betterSqliteTransactions,
  connect,
  defineJob,
  defineService,
  type Service,
  type SyncTransactionSource,
  skip,
} from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { callerTransaction } from "#millrace/client/transactions/recognise.js";
import { gate } from "../worker/workshop.js";
import { sqliteStore } from "./shop-file.js";

const order = z.object({ orderId: z.string() });

const contract = defineService("shop", {
  charge: defineJob({
    payload: order,
    result: z.object({ paid: z.boolean() }),
    continuations: ["ship"],
    retry: { maxTries: 3, backoff: [0] },
    timeoutMs: 5_000,
  }),
  ship: defineJob({ payload: order }),
  forgotten: defineJob({ payload: order, retention: { completed: 0 } }),
});

type Db = Database.Database;
type Shop = Service<(typeof contract)["jobs"], Db>;

/** better-sqlite3 as if it answered later: transactions stay open while work is awaited. */
function laterTransactions(db: Db): AsyncTransactionSource<Db> {
  return {
    kind: "async",
    run: async (work) => {
      db.exec("BEGIN IMMEDIATE");
      try {
        const value = await work(db);
        db.exec("COMMIT");
        return value;
      } catch (error) {
        db.exec("ROLLBACK");
        throw error;
      }
    },
    enlist: (client) => {
      const tx = callerTransaction(client);
      if (tx instanceof Error) throw tx;
      return tx;
    },
  };
}

const sources: readonly {
  readonly name: string;
  make(db: Db): AsyncTransactionSource<Db> | SyncTransactionSource<Db>;
}[] = [
  { name: "better-sqlite3", make: betterSqliteTransactions },
  { name: "a client that answers later", make: laterTransactions },
];

async function openShop(
  source: (typeof sources)[number],
  options: { readonly graceMs?: number } = {},
) {
  const { url, path } = await sqliteStore();
  const db = new Database(path);
  onTestFinished(() => void db.close());
  const warnings: string[] = [];
  const log = (_fields: object, message: string) => void warnings.push(message);
  const service: Shop = await connect(contract, {
    url,
    transactions: source.make(db),
    logger: { info: () => {}, warn: log, error: log },
    ...options,
  });
  onTestFinished(() => service.stop());
  db.exec("CREATE TABLE charges (id TEXT PRIMARY KEY, tries INTEGER)");
  const charge = (tx: Db, id: string, tries: number) =>
    void tx.prepare("INSERT INTO charges VALUES (?, ?)").run(id, tries);
  const charges = () =>
    db.prepare("SELECT id, tries FROM charges ORDER BY id").raw().all() as [
      id: string,
      tries: number,
    ][];
  return { service, db, charge, charges, warnings };
}

const payload = { orderId: "o-1" };

describe.for(sources)("complete with $name", (source) => {
  it("commits what the callback writes with the outcome and the continuation", async () => {
    const { service, charge, charges } = await openShop(source);
    service.handle({
      charge: async ({ payload, complete, tries }) => {
        await Promise.resolve();
        return complete(({ tx, continueWith }) => {
          charge(tx, payload.orderId, tries);
          return continueWith("ship", payload);
        });
      },
      ship: ({ payload, complete }) =>
        complete(({ tx }) => charge(tx, `ship-${payload.orderId}`, 0)),
    });
    await service.start();
    const ref = await service.jobs.charge.create(payload).orThrow();
    await ref.wait().orThrow();
    const completed = (await ref.events().orThrow()).at(-1);
    if (completed?.name !== "completed") throw new Error("The job was not completed last.");
    const next = service.ref(completed.continuation?.jobId ?? "");
    await next.wait().orThrow();
    expect(charges()).toEqual([
      ["o-1", 1],
      ["ship-o-1", 0],
    ]);
  });

  it("rolls everything back when the callback throws, and the job is tried again", async () => {
    const { service, charge, charges } = await openShop(source);
    service.jobs.charge.handle(async ({ complete, tries }) => {
      await Promise.resolve();
      return complete(({ tx }) => {
        charge(tx, `try-${tries}`, tries);
        if (tries < 3) throw new Error("no stock");
        return { paid: true };
      });
    });
    await service.start();
    expect(await service.jobs.charge.run(payload).orThrow()).toEqual({ paid: true });
    expect(charges()).toEqual([["try-3", 3]]);
  });

  it("rolls everything back when the result is not valid", async () => {
    const { service, charge, charges } = await openShop(source);
    service.jobs.charge.handle((job) =>
      job.complete(({ tx }) => {
        charge(tx, "o-1", 1);
        return { paid: "yes" } as never;
      }),
    );
    await service.start();
    const ended = await service.jobs.charge.run(payload);
    expect(ended).toMatchObject({ error: { _tag: "JobEnded", state: "failed" } });
    expect(charges()).toEqual([]);
  });

  it.for([
    { how: "deleted", failure: { _tag: "JobAborted", reason: "not_found" } },
    { how: "cancelled", failure: { _tag: "JobAlreadyCompleted", state: "cancelled" } },
  ])("rolls everything back when the job was $how meanwhile", async ({ how, failure }) => {
    const { service, charge, charges, warnings } = await openShop(source);
    const failures: unknown[] = [];
    service.jobs.charge.handle(async (job) => {
      const ref = service.ref(job.id);
      if (how === "deleted") await ref.delete({ force: true }).orThrow();
      else await ref.cancel("not wanted", { force: true }).orThrow();
      return job
        .complete(({ tx }) => {
          charge(tx, "o-1", 1);
          return { paid: true };
        })
        .catch((thrown) => {
          failures.push(thrown);
          throw thrown;
        });
    });
    await service.start();
    await service.jobs.charge.run(payload);
    await service.stop();
    expect(failures).toMatchObject([failure]);
    expect(charges()).toEqual([]);
    expect(warnings.join()).toContain("An outcome was ignored");
  });

  it("counts, whatever the handler does afterwards", async () => {
    const { service, charge, charges, warnings } = await openShop(source);
    service.jobs.charge.handle(async ({ complete }) => {
      await complete(({ tx }) => {
        charge(tx, "o-1", 1);
        return { paid: true };
      });
      throw new Error("too late");
    });
    await service.start();
    expect(await service.jobs.charge.run(payload).orThrow()).toEqual({ paid: true });
    await service.stop();
    expect(charges()).toEqual([["o-1", 1]]);
    expect(warnings.at(-1)).toBe("A handler went wrong after it had completed its job.");
  });

  it("takes note of a cancel that came meanwhile, and counts", async () => {
    const { service, charge, charges } = await openShop(source);
    service.jobs.charge.handle(async (job) => {
      await Promise.resolve();
      await service.ref(job.id).cancel().orThrow();
      return job.complete(({ tx }) => {
        charge(tx, "o-1", 1);
        return { paid: true };
      });
    });
    await service.start();
    expect(await service.jobs.charge.run(payload).orThrow()).toEqual({ paid: true });
    expect(charges()).toEqual([["o-1", 1]]);
  });

  it("keeps what was logged before", async () => {
    const { service } = await openShop(source);
    service.jobs.charge.handle((job) => {
      void job.log("charging");
      return job.complete(() => ({ paid: true }));
    });
    await service.start();
    const ref = await service.jobs.charge.create(payload).orThrow();
    await ref.wait().orThrow();
    const logs = await ref.logs().orThrow();
    expect(logs.map(({ message }) => message)).toEqual(["charging"]);
  });

  it("lets jobs create jobs in the same transaction", async () => {
    const { service } = await openShop(source);
    service.jobs.charge.handle(({ complete, payload, tries }) =>
      complete(({ tx }) => {
        service.jobs.ship.createSync(payload, { tx, id: `ship-${tries}` }).unwrap();
        if (tries === 1) throw new Error("no stock");
        return { paid: true };
      }),
    );
    await service.start();
    await service.jobs.charge.run(payload).orThrow();
    expect(await service.ref("ship-1").get()).toMatchObject({ error: { _tag: "JobNotFound" } });
    expect((await service.ref("ship-2").get().orThrow()).state).toBe("pending");
  });
});

describe.for(sources)("prepare with $name", (source) => {
  it("staged commits before the work, and again with the outcome", async () => {
    const { service, charge, charges } = await openShop(source);
    const between: unknown[] = [];
    service.jobs.charge.handle(async ({ prepare, complete, tries }) => {
      const found = await prepare({ mode: "staged" }, ({ tx }) => {
        charge(tx, `prepared-${tries}`, tries);
        return tx.prepare("SELECT count(*) FROM charges").pluck().get();
      });
      between.push(found, charges().length);
      if (tries === 1) throw new Error("no stock");
      return complete(({ tx }) => {
        charge(tx, `completed-${tries}`, tries);
        return { paid: true };
      });
    });
    await service.start();
    await service.jobs.charge.run(payload).orThrow();
    expect(between).toEqual([1, 1, 2, 2]);
    expect(charges().map(([id]) => id)).toEqual(["completed-2", "prepared-1", "prepared-2"]);
  });

  it("may do without a callback, and without complete", async () => {
    const { service, charges } = await openShop(source);
    service.handle({
      charge: async ({ prepare }) => {
        await prepare({ mode: "staged" });
        return { paid: true };
      },
      ship: async ({ prepare }) => {
        await prepare({ mode: "atomic" });
      },
    });
    await service.start();
    expect(await service.jobs.charge.run(payload).orThrow()).toEqual({ paid: true });
    await service.jobs.ship.run(payload).orThrow();
    expect(charges()).toEqual([]);
  });

  it("staged is tried again when its callback throws", async () => {
    const { service, charge, charges } = await openShop(source);
    service.jobs.charge.handle(async ({ prepare, tries }) => {
      await prepare({ mode: "staged" }, ({ tx }) => {
        charge(tx, `try-${tries}`, tries);
        if (tries === 1) throw new Error("no stock");
      });
      return { paid: true };
    });
    await service.start();
    await service.jobs.charge.run(payload).orThrow();
    expect(charges()).toEqual([["try-2", 2]]);
  });

  it.for([
    ["twice", "staged"],
    ["in a mode that there is not", "never"],
  ])("is refused when it is called %s", async ([, mode]) => {
    const { service } = await openShop(source);
    const failures: string[] = [];
    service.jobs.charge.handle(async ({ prepare }) => {
      await prepare({ mode: "staged" }).catch(() => {});
      await prepare({ mode: mode as "staged" }).catch(({ message }) => failures.push(message));
      return { paid: true };
    });
    await service.start();
    await service.jobs.charge.run(payload).orThrow();
    expect(failures[0]).toMatch(/prepare (?:may be called once|needs)/);
  });
});

describe("atomic mode with a client that answers later", () => {
  const source = sources[1] as (typeof sources)[number];

  it("is one transaction from prepare to complete", async () => {
    const { service, db, charge, charges } = await openShop(source);
    const between: boolean[] = [];
    service.jobs.charge.handle(async ({ prepare, complete, tries }) => {
      await prepare({ mode: "atomic" }, ({ tx }) => charge(tx, `prepared-${tries}`, tries));
      between.push(db.inTransaction);
      if (tries === 1) throw new Error("no stock");
      return complete(({ tx }) => {
        charge(tx, `completed-${tries}`, tries);
        return { paid: true };
      });
    });
    await service.start();
    await service.jobs.charge.run(payload).orThrow();
    expect(between).toEqual([true, true]);
    expect(charges()).toEqual([
      ["completed-2", 2],
      ["prepared-2", 2],
    ]);
  });

  it("commits with the returned value where complete is not called", async () => {
    const { service, charge, charges } = await openShop(source);
    service.jobs.charge.handle(async ({ prepare, tries }) => {
      await prepare({ mode: "atomic" }, ({ tx }) => charge(tx, `prepared-${tries}`, tries));
      return { paid: true };
    });
    await service.start();
    expect(await service.jobs.charge.run(payload).orThrow()).toEqual({ paid: true });
    expect(charges()).toEqual([["prepared-1", 1]]);
  });

  it("rolls back when the job is skipped", async () => {
    const { service, charge, charges } = await openShop(source);
    service.jobs.charge.handle(async ({ prepare }) => {
      await prepare({ mode: "atomic" }, ({ tx }) => charge(tx, "prepared", 1));
      return skip("nothing to do");
    });
    await service.start();
    expect(await service.jobs.charge.run(payload)).toMatchObject({ error: { state: "skipped" } });
    expect(charges()).toEqual([]);
  });

  it("is rolled back when the handler ignores that it should stop", async () => {
    const { service, db, charge, charges } = await openShop(source, { graceMs: 20 });
    const prepared = gate();
    service.jobs.charge.handle(async ({ prepare }) => {
      await prepare({ mode: "atomic" }, ({ tx }) => charge(tx, "prepared", 1));
      prepared.open();
      return new Promise<never>(() => {});
    });
    await service.start();
    await service.jobs.charge.create(payload).orThrow();
    await prepared.opened;
    expect(db.inTransaction).toBe(true);
    await service.stop();
    expect([db.inTransaction, charges()]).toEqual([false, []]);
  });

  it("refuses a second complete, because what prepare did is undone", async () => {
    const { service, charge, charges } = await openShop(source);
    const failures: string[] = [];
    service.jobs.charge.handle(async ({ prepare, complete, tries }) => {
      await prepare({ mode: "atomic" }, ({ tx }) => charge(tx, `prepared-${tries}`, tries));
      const fail = () => {
        throw new Error("no stock");
      };
      if (tries === 1) await complete(fail).catch(() => {});
      return complete(() => ({ paid: true })).catch((error: Error) => {
        failures.push(error.message);
        throw error;
      });
    });
    await service.start();
    await service.jobs.charge.run(payload).orThrow();
    expect(failures[0]).toMatch(/the transaction that prepare opened is over/);
    expect(charges()).toEqual([["prepared-2", 2]]);
  });
});

describe("atomic mode with better-sqlite3", () => {
  const source = sources[0] as (typeof sources)[number];

  it("reads in prepare and writes in complete alone", async () => {
    const { service, db, charge, charges } = await openShop(source);
    const failures: unknown[] = [];
    service.jobs.charge.handle(async ({ prepare, complete, tries }) => {
      const count = await prepare({ mode: "atomic" }, ({ tx }) => {
        if (tries === 1) charge(tx, "prepared", tries);
        return tx.prepare("SELECT count(*) FROM charges").pluck().get();
      }).catch((failure) => {
        failures.push(failure);
        throw failure;
      });
      expect([count, db.inTransaction]).toEqual([0, false]);
      return complete(({ tx }) => {
        charge(tx, "completed", tries);
        return { paid: true };
      });
    });
    await service.start();
    await service.jobs.charge.run(payload).orThrow();
    expect(failures).toMatchObject([{ code: "SQLITE_READONLY" }]);
    expect(charges()).toEqual([["completed", 2]]);
  });

  it.for(["prepare", "complete"] as const)("rolls back a %s that gives a promise", async (call) => {
    const { service, charge, charges } = await openShop(source);
    const failures: unknown[] = [];
    service.jobs.charge.handle(async (job) => {
      const callback = async ({ tx }: { tx: Db }) => {
        charge(tx, `try-${job.tries}`, job.tries);
        return { paid: true };
      };
      const called =
        call === "prepare" ? job.prepare({ mode: "staged" }, callback) : job.complete(callback);
      await called.catch((failure) => failures.push(failure));
      return skip("it cannot work");
    });
    await service.start();
    expect(await service.jobs.charge.run(payload)).toMatchObject({ error: { state: "skipped" } });
    expect(failures).toMatchObject([{ _tag: "TransactionRefused", reason: "not_synchronous" }]);
    expect(charges()).toEqual([]);
  });
});

describe("set-up without prepare", () => {
  const late = "Prepare cannot be accessed after auto-setup";

  it("is staged after the first await, and prepare comes too late", async () => {
    const { service, db } = await openShop(sources[1] as (typeof sources)[number]);
    const seen: unknown[] = [];
    service.jobs.charge.handle(async (job) => {
      await Promise.resolve();
      seen.push(db.inTransaction);
      expect(() => job.prepare).toThrow(late);
      return job.complete(() => ({ paid: true }));
    });
    await service.start();
    await service.jobs.charge.run(payload).orThrow();
    expect(seen).toEqual([false]);
  });

  it("is atomic when complete comes first, and prepare comes too late", async () => {
    const { service } = await openShop(sources[0] as (typeof sources)[number]);
    const failures: string[] = [];
    service.jobs.charge.handle((job) => {
      const completing = job.complete(() => ({ paid: true }));
      try {
        void job.prepare;
      } catch (error) {
        failures.push((error as Error).message);
      }
      return completing;
    });
    await service.start();
    await service.jobs.charge.run(payload).orThrow();
    expect(failures).toEqual([late]);
  });

  it("leaves a prepare that was taken in time to be called later", async () => {
    const { service, charge, charges } = await openShop(sources[0] as (typeof sources)[number]);
    service.jobs.charge.handle(async ({ prepare, complete }) => {
      await Promise.resolve();
      await prepare({ mode: "staged" }, ({ tx }) => charge(tx, "prepared", 1));
      return complete(() => ({ paid: true }));
    });
    await service.start();
    await service.jobs.charge.run(payload).orThrow();
    expect(charges()).toEqual([["prepared", 1]]);
  });
});

describe("a service without transactions", () => {
  it("calls back with no tx, and works all the same", async () => {
    const { url } = await sqliteStore();
    const service = await connect(contract, { url });
    onTestFinished(() => service.stop());
    service.jobs.charge.handle(async ({ prepare, complete }) => {
      const seen = await prepare({ mode: "atomic" }, ({ tx }) => tx);
      return complete(({ tx }) => ({ paid: tx === undefined && seen === undefined }));
    });
    await service.start();
    expect(await service.jobs.charge.run(payload).orThrow()).toEqual({ paid: true });
  });

  it("is all that a store without them can be", async () => {
    const db = new Database(":memory:");
    const connecting = connect(contract, {
      url: "memory:",
      transactions: betterSqliteTransactions(db),
    });
    await expect(connecting).rejects.toMatchObject({ _tag: "TransactionsNotSupported" });
  });
});

describe("a job of a type that keeps nothing", () => {
  it("is gone after the transaction that ended it", async () => {
    const { service, charge, charges } = await openShop(sources[0] as (typeof sources)[number]);
    service.jobs.forgotten.handle(({ complete }) => complete(({ tx }) => charge(tx, "o-1", 1)));
    await service.start();
    const ref = await service.jobs.forgotten.create(payload).orThrow();
    await ref.wait();
    await service.stop();
    expect(charges()).toEqual([["o-1", 1]]);
    const again = await connect(contract, { url: service.engine.url });
    onTestFinished(() => again.stop());
    expect(await again.ref(ref.id).get()).toMatchObject({ error: { _tag: "JobNotFound" } });
  });
});
