// Chains and jobs in transactions of the caller's: started and completed there, they commit and roll back with its data.
import Database from "better-sqlite3";
import {
  type AsyncTransactionSource,
  connect,
  defineJob,
  defineService,
  pgTransactions,
  type TransactionClient,
} from "millrace";
import { Pool } from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { freshSchema } from "../support/postgres.js";
import { sqliteStore } from "./shop-file.js";

const order = z.object({ orderId: z.string() });

const contract = defineService("shop", {
  awaitPayment: defineJob({
    payload: order,
    result: z.object({ paid: z.boolean() }),
    continuations: ["ship"],
  }),
  ship: defineJob({ payload: order, result: z.object({ shipped: z.boolean() }) }),
  /** Of chains of any length. */
  step: defineJob({ payload: z.object({}), result: z.string(), continuations: ["step"] }),
});

const payload = { orderId: "o-1" };

async function onSqlite() {
  const { url, path } = await sqliteStore();
  const service = await connect(contract, { url });
  onTestFinished(() => service.stop());
  const db = new Database(path);
  onTestFinished(() => void db.close());
  const run = async <Value>(work: (tx: TransactionClient) => Promise<Value>): Promise<Value> => {
    db.exec("BEGIN IMMEDIATE");
    try {
      const value = await work(db);
      db.exec("COMMIT");
      return value;
    } catch (error) {
      db.exec("ROLLBACK");
      throw error;
    }
  };
  return { service, run, db };
}

async function onPostgres() {
  const { url, schema } = await freshSchema();
  const own = new URL(url);
  own.searchParams.set("schema", schema);
  const service = await connect(contract, { url: own.href });
  onTestFinished(() => service.stop());
  const pool = new Pool({ connectionString: url });
  onTestFinished(() => pool.end());
  const source: AsyncTransactionSource<TransactionClient> = pgTransactions(pool);
  return { service, run: source.run, pool };
}

const transactional = [
  { name: "sqlite", open: onSqlite },
  { name: "postgres", open: onPostgres },
];

describe.for(transactional)("a chain in a transaction on $name", ({ open }) => {
  it("starts with the commit", async () => {
    const { service, run } = await open();
    const { chains } = service;
    const undone = run(async (tx) => {
      await chains.start("awaitPayment", payload, { tx, id: "undone" }).orThrow();
      throw new Error("no stock");
    });
    await expect(undone).rejects.toThrow("no stock");
    const chain = await run((tx) => chains.start("awaitPayment", payload, { tx }).orThrow());
    expect(await chains.get("undone")).toMatchObject({ error: { _tag: "JobNotFound" } });
    expect(await chains.get(chain).orThrow()).toMatchObject({ state: "pending", count: 1 });
  });

  it("is completed with the commit, several steps at once", async () => {
    const { service, run } = await open();
    const { chains } = service;
    const chain = await chains.start("awaitPayment", payload).orThrow();
    const complete = (tx: TransactionClient) =>
      chains
        .complete(
          chain,
          async ({ job, complete }) => {
            if (job.type !== "awaitPayment") throw new Error(`It has come to ${job.type}.`);
            const next = await complete(job, ({ continueWith }) => continueWith("ship", payload));
            await complete(next, () => ({ shipped: true }));
          },
          { tx },
        )
        .orThrow();
    const undone = run(async (tx) => {
      expect(await complete(tx)).toMatchObject({ state: "completed", output: { shipped: true } });
      throw new Error("no stock");
    });
    await expect(undone).rejects.toThrow("no stock");
    expect(await chains.get(chain).orThrow()).toMatchObject({ state: "pending", count: 1 });
    await run(complete);
    expect(await chains.wait(chain).orThrow()).toEqual({ shipped: true });
    expect(await chains.get(chain).orThrow()).toMatchObject({ state: "completed", count: 2 });
  });

  it("is completed in the transaction that started it, and only once", async () => {
    const { service, run } = await open();
    const { chains } = service;
    const chain = await run(async (tx) => {
      const started = await chains.start("awaitPayment", payload, { tx }).orThrow();
      const pay = () =>
        chains.complete(
          started,
          async ({ job, complete }) => void (await complete(job, () => ({ paid: true }) as never)),
          { tx },
        );
      expect((await pay().orThrow()).state).toBe("completed");
      expect(await pay()).toMatchObject({ error: { _tag: "JobAlreadyCompleted" } });
      return started;
    });
    expect((await chains.get(chain).orThrow()).state).toBe("completed");
  });

  it("is what its key stands for until its last job has ended there", async () => {
    const { service, run } = await open();
    const { chains } = service;
    const once = { idempotencyKey: { key: "k", scope: "unfinished" } } as const;
    const start = (tx: TransactionClient) => chains.start("awaitPayment", payload, { ...once, tx });
    const [first, again, next] = await run(async (tx) => {
      const first = await start(tx).orThrow();
      await chains
        .complete(
          first,
          async ({ job, complete }) => {
            if (job.type === "awaitPayment")
              await complete(job, ({ continueWith }) => continueWith("ship", payload));
          },
          { tx },
        )
        .orThrow();
      const again = await start(tx).orThrow();
      await chains
        .complete(
          first,
          async ({ job, complete }) => {
            if (job.type === "ship") await complete(job, () => ({ shipped: true }));
          },
          { tx },
        )
        .orThrow();
      return [first, again, await start(tx).orThrow()] as const;
    });
    expect([again.id, again.existing, next.existing]).toEqual([first.id, true, false]);
  });

  it.for([0, 3, 30])("is what its key stands for where %d steps came before it", async (before) => {
    const { service, run } = await open();
    const { chains } = service;
    const once = { idempotencyKey: { key: "k", scope: "unfinished" } } as const;
    const goOn = (
      chain: { readonly id: string },
      steps: number,
      ends: boolean,
      tx?: TransactionClient,
    ) =>
      chains
        .complete(
          chain.id,
          async ({ job, complete }) => {
            if (job.type !== "step") return;
            let current = job;
            for (let step = 0; step < steps; step++)
              current = await complete(current, ({ continueWith }) => continueWith("step", {}));
            if (ends) await complete(current, () => "done");
          },
          tx && { tx },
        )
        .orThrow();
    const outside = before === 0 ? null : await chains.start("step", {}, once).orThrow();
    if (outside) await goOn(outside, before, false);
    await run(async (tx) => {
      const start = () => chains.start("step", {}, { ...once, tx }).orThrow();
      const first = await start();
      expect(first.existing).toBe(outside !== null);
      await goOn(first, 25, false, tx);
      expect(await start()).toMatchObject({ id: first.id, existing: true });
      await goOn(first, 0, true, tx);
      expect(await start()).toMatchObject({ existing: false });
    });
  });

  it("refuses what is no transaction", async () => {
    const { service } = await open();
    const chain = await service.chains.start("awaitPayment", payload).orThrow();
    const refused = await service.chains.complete(chain, () => {}, { tx: {} as never });
    expect(refused).toMatchObject({ error: { _tag: "InvalidOption", field: "tx" } });
  });
});

describe.for(transactional)("a job that is completed in a transaction on $name", ({ open }) => {
  it("is completed with the commit, and not at all when that is rolled back", async () => {
    const { service, run } = await open();
    const ref = await service.jobs.ship.create(payload, { delayMs: 60_000 }).orThrow();
    const complete = (tx: TransactionClient) => ref.complete({ shipped: true }, { tx }).orThrow();
    const undone = run(async (tx) => {
      expect(await complete(tx)).toMatchObject({ state: "completed", result: { shipped: true } });
      throw new Error("no stock");
    });
    await expect(undone).rejects.toThrow("no stock");
    expect(await ref.get().orThrow()).toMatchObject({ state: "pending" });
    await run(complete);
    expect(await ref.wait().orThrow()).toEqual({ shipped: true });
    expect(await ref.get().orThrow()).toMatchObject({ completedBy: null });
    await run(async (tx) => {
      expect(await ref.complete({ shipped: true }, { tx })).toMatchObject({
        error: { _tag: "JobAlreadyCompleted", state: "completed" },
      });
    });
    expect((await ref.events().orThrow()).map(({ name }) => name)).toEqual([
      "created",
      "completed",
    ]);
  });

  it("is completed in the transaction that created it, with a result that fits", async () => {
    const { service, run } = await open();
    const ref = await run(async (tx) => {
      const created = await service.jobs.ship.create(payload, { tx }).orThrow();
      const same = service.ref(created.id);
      expect(await same.complete({ shipped: "yes" }, { tx })).toMatchObject({
        error: { _tag: "InvalidResult" },
      });
      await created.complete({ shipped: false }, { tx }).orThrow();
      return created;
    });
    expect(await ref.wait().orThrow()).toEqual({ shipped: false });
  });

  it("is no chain, which a completion of one says also there", async () => {
    const { service, run } = await open();
    await run(async (tx) => {
      const { id } = await service.jobs.ship.create(payload, { tx }).orThrow();
      expect(await service.chains.complete(id, () => {}, { tx })).toMatchObject({
        error: { _tag: "JobNotFound", message: `Job ${id} is no chain; complete it as a job.` },
      });
    });
  });
});

describe("a completion in a transaction that its callback ends", () => {
  it("throws what the callback throws", async () => {
    const { service, db } = await onSqlite();
    const chain = await service.chains.start("awaitPayment", payload).orThrow();
    db.exec("BEGIN IMMEDIATE");
    const failing = service.chains.complete(
      chain,
      async () => {
        db.exec("ROLLBACK");
        throw new Error("no stock");
      },
      { tx: db },
    );
    await expect(failing).rejects.toThrow("no stock");
  });
});

/**
 * A transaction that sees the database as it was in `begin`, and the one that takes its place when it is told to begin anew:
 * on SQLite that waits for its turn to write, because the service may write meanwhile.
 */
async function snapshotOf(where: string) {
  if (where === "SQLite") {
    const { service, db } = await onSqlite();
    const run = async (sql: string) => void db.exec(sql);
    const begin = () => run("BEGIN; SELECT count(*) FROM jobs");
    return { service, run, tx: db, begin, beginAnew: () => run("ROLLBACK; BEGIN IMMEDIATE") };
  }
  const { service, pool } = await onPostgres();
  const tx = await pool.connect();
  onTestFinished(() => tx.release());
  const run = async (sql: string) => void (await tx.query(sql));
  const begin = () => run(`BEGIN ISOLATION LEVEL ${where}; SELECT 1`);
  return { service, run, tx, begin, beginAnew: () => run("ROLLBACK").then(begin) };
}

describe.for(["REPEATABLE READ", "SERIALIZABLE", "SQLite"])(
  "in a transaction that sees the past (%s)",
  (where) => {
    it.for(["was started", "has gone on"])(
      "a chain that %s since then is a conflict, and completed when it is run again",
      async (what) => {
        const { service, run, tx, begin, beginAnew } = await snapshotOf(where);
        const { chains } = service;
        const id = "chain";
        const start = async () => void (await chains.start("awaitPayment", payload, { id }));
        const goOn = () =>
          chains
            .complete(id, async ({ job, complete }) => {
              if (job.type === "awaitPayment")
                await complete(job, ({ continueWith }) => continueWith("ship", payload));
            })
            .orThrow();
        const finish = () =>
          chains.complete(
            id,
            ({ job, complete }) =>
              complete(job, () => ({ [job.type === "ship" ? "shipped" : "paid"]: true }) as never),
            { tx },
          );
        if (what === "has gone on") await start();
        await begin();
        await (what === "has gone on" ? goOn() : start());
        expect(await finish()).toMatchObject({
          error: {
            _tag: "TransactionConflict",
            message: expect.stringMatching(
              where === "SQLite" ? /run it again/ : /does not see chain chain .* run it again/,
            ),
          },
        });
        await beginAnew();
        await finish().orThrow();
        await run("COMMIT");
        expect((await chains.get(id).orThrow()).state).toBe("completed");
      },
    );

    it("a job that was created since then is a conflict, and completed when it is run again", async () => {
      const { service, run, tx, begin, beginAnew } = await snapshotOf(where);
      await begin();
      const ref = await service.jobs.ship.create(payload).orThrow();
      const complete = () => ref.complete({ shipped: true }, { tx });
      expect(await complete()).toMatchObject({ error: { _tag: "TransactionConflict" } });
      await beginAnew();
      await complete().orThrow();
      await run("COMMIT");
      expect(await ref.wait().orThrow()).toEqual({ shipped: true });
    });

    it("what nobody has created is not found", async () => {
      const { service, tx, begin, beginAnew } = await snapshotOf(where);
      await begin();
      await beginAnew();
      const completed = await service.chains.complete("nobody", () => {}, { tx });
      expect(completed).toMatchObject({ error: { _tag: "JobNotFound" } });
      const job = await service.ref("nobody").complete({}, { tx });
      expect(job).toMatchObject({ error: { _tag: "JobNotFound" } });
    });
  },
);
