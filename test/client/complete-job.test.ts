// Jobs that are completed without a worker, by their refs: with a result that fits their type, once, in any state but an
// ended one.
import { type ChainRef, connect, defineJob, defineService, type Service } from "millrace";
import { describe, expect, expectTypeOf, it, onTestFinished } from "vitest";
import { z } from "zod";
import { invalidResult } from "#millrace/client/completion-steps.js";
import { everyStore } from "../support/every-store.js";
import { openService } from "../support/stores.js";

const office = defineService("office", {
  approve: defineJob({
    payload: z.object({ requestId: z.string() }),
    result: z.object({ approved: z.boolean(), at: z.date().optional() }),
  }),
  note: defineJob({ payload: z.object({}) }),
  review: defineJob({ payload: z.object({}), result: z.string(), continuations: ["file"] }),
  file: defineJob({ payload: z.object({}), continuations: ["review"] }),
});

const payload = { requestId: "r-1" };

it("is refused in one sentence, however the schema ends its own", () => {
  for (const problem of ["Expected a word", "Expected a word."])
    expect(invalidResult("ship", problem).message).toBe(
      "The result of ship is not valid: Expected a word.",
    );
});

describe.for(everyStore)("a job that is completed by its ref on $name", (store) => {
  it("has the result, and was completed by nobody", async () => {
    const service = await openService(store, office);
    const { approve } = service.jobs;
    const ref = await approve.create(payload, { delayMs: 60_000 }).orThrow();
    const completed = await ref.complete({ approved: true, at: new Date(0) }).orThrow();
    const result = { approved: true, at: "1970-01-01T00:00:00.000Z" };
    expect(completed).toMatchObject({ state: "completed", result, completedBy: null });
    expect(await ref.wait().orThrow()).toEqual(result);
    expect(await ref.get().orThrow()).toMatchObject({ state: "completed", completedBy: null });
  });

  it("is not completed with a result that does not fit, and goes on", async () => {
    const service = await openService(store, office);
    const { id } = await service.jobs.approve.create(payload).orThrow();
    const refused = await service.ref(id).complete({ approved: "yes" });
    expect(refused).toMatchObject({ error: { _tag: "InvalidResult", type: "approve" } });
    expect((await service.ref(id).get().orThrow()).state).toBe("pending");
    await service.ref(id).complete({ approved: false }).orThrow();
    expect(await service.ref(id).wait().orThrow()).toEqual({ approved: false });
  });

  it("is completed once, and not at all where it has ended otherwise or is not there", async () => {
    const service = await openService(store, office);
    const done = await service.jobs.note.create({}).orThrow();
    await done.complete(undefined).orThrow();
    expect(await done.complete("again")).toMatchObject({
      error: { _tag: "JobAlreadyCompleted", state: "completed" },
    });
    const cancelled = await service.jobs.note.create({}).orThrow();
    await cancelled.cancel().orThrow();
    expect(await cancelled.complete("late")).toMatchObject({
      error: { _tag: "JobAlreadyCompleted", state: "cancelled" },
    });
    expect(await service.ref("nobody").complete(1)).toMatchObject({
      error: { _tag: "JobNotFound", id: "nobody" },
    });
  });
});

describe("a completion of a job", () => {
  const [memory] = everyStore;
  if (memory === undefined) throw new Error("There is no store.");

  it("tells the handler, whose outcome does not count", async () => {
    const service = await openService(memory, office);
    const reasons: unknown[] = [];
    service.jobs.note.handle(async ({ id, signal }) => {
      const told = new Promise((resolve) => signal.addEventListener("abort", resolve));
      await service.ref(id).complete("by hand").orThrow();
      await told;
      reasons.push(signal.reason.reason);
      return "by the handler";
    });
    await service.start();
    expect(await service.jobs.note.run({}).orThrow()).toBe("by hand");
    await service.stop();
    expect(reasons).toEqual(["already_completed"]);
  });

  it("is refused by the service of another contract", async () => {
    const office1 = await openService(memory, office);
    const other = defineService("other", { approve: defineJob({ payload: z.object({}) }) });
    const elsewhere = await connect(other, { engine: office1.engine });
    onTestFinished(() => elsewhere.stop());
    const { id } = await office1.jobs.approve.create(payload).orThrow();
    expect(await elsewhere.ref(id).complete(5)).toMatchObject({
      error: { _tag: "InvalidOption", field: "id", message: expect.stringContaining("office") },
    });
    expect((await office1.ref(id).get().orThrow()).state).toBe("pending");
  });

  it("names what is no option and no transaction", async () => {
    const { jobs } = await openService(memory, office);
    const ref = await jobs.approve.create(payload).orThrow();
    const result = { approved: true };
    expect(await ref.complete(result, { force: true } as object)).toMatchObject({
      error: { _tag: "InvalidOption", field: "force" },
    });
    expect(await ref.complete(result, { tx: {} as never })).toMatchObject({
      error: { _tag: "TransactionsNotSupported" },
    });
    expect((await ref.get().orThrow()).state).toBe("pending");
  });

  it("of a chain is asked of the chain, and of a job that is none of the job", async () => {
    const { jobs, chains, ref } = await openService(memory, office).then((service) => ({
      jobs: service.jobs,
      chains: service.chains,
      ref: (id: string) => service.ref(id),
    }));
    const { id } = await jobs.approve.create(payload).orThrow();
    expect(await chains.complete(id, () => {})).toMatchObject({
      error: { _tag: "JobNotFound", id, message: `Job ${id} is no chain; complete it as a job.` },
    });
    const chain = await chains.start("review", {}).orThrow();
    const { current } = await chains
      .complete(chain, async ({ job, complete }) => {
        if (job.type !== "review") return;
        await complete(job, ({ continueWith }) => continueWith("file", {}));
      })
      .orThrow();
    expect(await chains.complete(current.id, () => {})).toMatchObject({
      error: { message: `Job ${current.id} is a part of chain ${chain.id}; complete that.` },
    });
    expect(await chains.complete("nobody", () => {})).toMatchObject({
      error: { message: "There is no chain nobody; it may have been deleted." },
    });
    const others = {
      read: (other: string) => chains.get(other),
      "wait for": (other: string) => chains.wait(other),
      delete: (other: string) => chains.delete(other),
    };
    for (const [verb, call] of Object.entries(others)) {
      const told = [await call(id), await call(current.id)];
      expect(told.map((answer) => answer.isErr() && answer.error.message)).toEqual([
        `Job ${id} is no chain; ${verb} it as a job.`,
        `Job ${current.id} is a part of chain ${chain.id}; ${verb} that.`,
      ]);
    }
    expect(await ref(current.id).complete("done")).toMatchObject({
      error: { _tag: "InvalidResult", message: expect.stringContaining("always continues") },
    });
    const { current: last } = await chains
      .complete(chain, async ({ job, complete }) => {
        if (job.type === "file")
          await complete(job, ({ continueWith }) => continueWith("review", {}));
      })
      .orThrow();
    await ref(last.id).complete("done").orThrow();
    expect((await chains.get(chain).orThrow()).state).toBe("completed");
  });

  it("takes what the type's schema takes", () => {
    const types = async ({ jobs, ref }: Service<(typeof office)["jobs"]>) => {
      const approval = await jobs.approve.create(payload).orThrow();
      void approval.complete({ approved: true });
      // @ts-expect-error: approved must be a boolean.
      void approval.complete({ approved: "yes" });
      // @ts-expect-error: there is no result.
      void approval.complete();
      const review = await jobs.review.create({}).orThrow();
      void review.complete("fine");
      const file = await jobs.file.create({}).orThrow();
      // @ts-expect-error: a file always continues, which chains.complete does.
      void file.complete("filed");
      void ref("any").complete({ any: "thing" });
      const refs = [approval, review, file];
      const blocked: ChainRef<"review"> = {} as never;
      void jobs.note.create({}, { blockers: [...refs, blocked] });
      expectTypeOf(approval.complete).returns.toHaveProperty("orThrow");
    };
    expectTypeOf(types).toBeFunction();
  });
});
