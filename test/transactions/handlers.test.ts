// Handlers with transactions of their own client: what they write, their outcome and their continuation
// commit together or not at all.
import Database from "better-sqlite3";
import { betterSqliteTransactions, connect } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { contract, openShop, payload, sources } from "./charging-shop.js";
import { sqliteStore } from "./shop-file.js";

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

  it("rolls everything back when the continuation can never be stored, and ends the job as failed", async () => {
    const { service, charge, charges } = await openShop(source);
    service.jobs.charge.handle((job) =>
      job.complete(({ tx, continueWith }) => {
        charge(tx, "o-1", 1);
        return continueWith("ship", { orderId: 5 } as never);
      }),
    );
    await service.start();
    const ended = await service.jobs.charge.run(payload);
    expect(ended).toMatchObject({
      error: { _tag: "JobEnded", state: "failed", error: { name: "InvalidPayload" } },
    });
    expect(charges()).toEqual([]);
  });

  it("ends a job as failed whose continuation would wait for its own chain", async () => {
    const { service, charge, charges } = await openShop(source);
    let waiting = "";
    service.jobs.charge.handle((job) =>
      job.complete(({ tx, continueWith }) => {
        charge(tx, "o-1", 1);
        return continueWith("ship", payload, { blockers: [waiting] });
      }),
    );
    const chain = await service.chains.start("charge", payload).orThrow();
    waiting = (await service.jobs.ship.create(payload, { blockers: [chain] }).orThrow()).id;
    await service.start();
    const ended = await service.ref(chain.id).wait();
    expect(ended).toMatchObject({
      error: { _tag: "JobEnded", state: "failed", error: { name: "InvalidBlocker" } },
    });
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

it("rolls everything back where the callback completes the chain itself, and the job is tried again", async () => {
  const later = sources.find(({ name }) => name === "a client that answers later");
  if (later === undefined) throw new Error("There is no such source.");
  const { service, charge, charges } = await openShop(later);
  const failures: unknown[] = [];
  service.jobs.charge.handle(({ id, complete, tries }) =>
    complete(async ({ tx }) => {
      charge(tx, `try-${tries}`, tries);
      const paid = { paid: true };
      if (tries > 1) return paid;
      const chain = service.chains.ref("charge", id);
      const end: Parameters<typeof service.chains.complete<"charge">>[1] = async (step) => {
        if (step.job.type === "charge") await step.complete(step.job, () => paid);
      };
      await service.chains.complete(chain, end, { tx }).orThrow();
      return paid;
    }).catch((thrown) => {
      failures.push(thrown);
      throw thrown;
    }),
  );
  await service.start();
  expect(await service.jobs.charge.run(payload).orThrow()).toEqual({ paid: true });
  expect(failures).toMatchObject([
    { message: expect.stringContaining("changed in the transaction") },
  ]);
  expect(charges()).toEqual([["try-2", 2]]);
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
