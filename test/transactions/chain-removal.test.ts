// Removing a chain, or a part of it, while a transaction on PostgreSQL has a job that waits for the chain.
import { connect, defineJob, defineService } from "millrace";
import { Pool } from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { freshSchema } from "../support/postgres.js";

const contract = defineService("shop", {
  tick: defineJob({ payload: z.object({}), continuations: ["tick", "end"] }),
  end: defineJob({ payload: z.object({}), result: z.string() }),
  sum: defineJob({ payload: z.object({}), result: z.string() }),
});

async function openShop() {
  const { url, storeUrl } = await freshSchema();
  const service = await connect(contract, { url: storeUrl });
  onTestFinished(() => service.stop());
  const pool = new Pool({ connectionString: url });
  onTestFinished(() => pool.end());
  /** A transaction that stores a job which waits for a chain. Gives how to commit it. */
  const waitingFor = async (chain: string) => {
    const tx = await pool.connect();
    await tx.query("BEGIN");
    const blockers = [{ chain }];
    const job = await service.jobs.sum.create({}, { blockers, tx }).orThrow();
    const commit = async () => {
      await tx.query("COMMIT");
      tx.release();
    };
    return { job, commit };
  };
  /** Lets a chain go on by so many jobs. */
  const goOn = async (chain: string, by: number) => {
    for (let done = 0; done < by; done += 40)
      await service.chains
        .complete(chain, async ({ job, complete }) => {
          let next = job.type === "tick" ? job : null;
          for (let step = 0; step < 40 && next !== null; step++) {
            const after = await complete(next, ({ continueWith }) => continueWith("tick", {}));
            next = after.type === "tick" ? after : null;
          }
        })
        .orThrow();
  };
  /** Ends a chain with another job, and gives the id of that. */
  const end = async (chain: string) => {
    const { current } = await service.chains
      .complete(chain, async ({ job, complete }) => {
        if (job.type !== "tick") return;
        const next = await complete(job, ({ continueWith }) => continueWith("end", {}));
        await complete(next, () => "fin");
      })
      .orThrow();
    return current.id;
  };
  return { service, waitingFor, goOn, end };
}

describe("a chain that a transaction waits for on postgres", () => {
  it.for([
    ["two jobs", 0],
    ["more jobs than a list has", 120],
  ] as const)("of %s keeps its end where a delete is refused", async ([, by]) => {
    const { service, waitingFor, goOn, end } = await openShop();
    service.jobs.sum.handle(async ({ loadDependencies }) =>
      JSON.stringify(await loadDependencies()),
    );
    const { chains } = service;
    const chain = await chains.start("tick", {}, { delayMs: 60_000 }).orThrow();
    const { job, commit } = await waitingFor(chain.id);
    await goOn(chain.id, by);
    const last = await end(chain.id);
    const refused = await chains.delete(chain);
    expect(refused.isErr() && refused.error).toMatchObject({
      _tag: "StoreBusy",
      message: expect.stringContaining("is locked by a transaction"),
    });
    const first = await service.ref(chain.id).delete();
    expect(first.isErr() && first.error.message).toContain("is locked by a transaction");
    expect(await chains.get(chain).orThrow()).toMatchObject({
      state: "completed",
      output: "fin",
      current: { id: last },
      count: by + 2,
    });
    await commit();
    await service.start();
    expect(await job.wait().orThrow()).toContain('"fin"');
    expect(await chains.delete(chain).orThrow()).toBe(by + 2);
  });

  it("has ended badly where its last job is removed before the commit", async () => {
    const { service, waitingFor, end } = await openShop();
    service.handle({
      tick: ({ complete }) => complete(({ continueWith }) => continueWith("end", {})),
      end: () => "fin",
      sum: () => "went on",
    });
    await service.start();
    const chain = await service.chains.start("tick", {}, { delayMs: 60_000 }).orThrow();
    const { job, commit } = await waitingFor(chain.id);
    await service
      .ref(await end(chain.id))
      .delete()
      .orThrow();
    await commit();
    const waited = await job.wait();
    expect(waited.isErr() && waited.error).toMatchObject({ state: "unreachable" });
  });
});
