// Removing a chain, or a part of it, while a transaction on PostgreSQL has a job that waits for the chain.
import { connect, defineJob, defineService } from "millrace";
import { Pool } from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { freshSchema } from "../support/postgres.js";

const contract = defineService("shop", {
  tick: defineJob({ payload: z.object({}), continuations: ["end"] }),
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
  /** Ends a chain with its second job, and gives the id of that. */
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
  return { service, waitingFor, end };
}

describe("a chain that a transaction waits for on postgres", () => {
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
