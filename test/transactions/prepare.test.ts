// Prepare in both modes, and how a handler is set up that does without it.
import { skip } from "millrace";
import { describe, expect, it } from "vitest";
import { gate } from "../worker/workshop.js";
import { type Db, openShop, payload, sources } from "./charging-shop.js";

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

  it("and complete refuse what is no function, and may be called again", async () => {
    const { service } = await openShop(source);
    const failures: unknown[] = [];
    const note = (failure: unknown) => void failures.push(failure);
    service.jobs.charge.handle(async (job) => {
      await job.prepare({ mode: "staged" }, 5 as never).catch(note);
      await job.prepare({ mode: "staged" });
      await job.complete(undefined as never).catch(note);
      return job.complete(() => ({ paid: true }));
    });
    await service.start();
    const ref = await service.jobs.charge.create(payload).orThrow();
    expect(await ref.wait().orThrow()).toEqual({ paid: true });
    expect((await ref.get().orThrow()).tries).toBe(1);
    const refused = { _tag: "InvalidOption", field: "callback" };
    expect(failures).toMatchObject([refused, refused]);
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
    expect(failures).toMatchObject([
      { reason: "read_only", message: expect.stringContaining("write in complete") },
    ]);
    expect(charges()).toEqual([["completed", 2]]);
  });

  it("takes a value that has a member then for no promise", async () => {
    const { service } = await openShop(source);
    const rule: unknown = JSON.parse('{ "if": "paid", "then": "ship" }');
    const prepared: unknown[] = [];
    service.jobs.ship.handle(async ({ prepare, complete }) => {
      prepared.push(await prepare({ mode: "staged" }, () => rule));
      return complete(() => rule);
    });
    await service.start();
    expect(await service.jobs.ship.run(payload, { maxTries: 1 }).orThrow()).toEqual(rule);
    expect(prepared).toEqual([rule]);
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
