// What a job may continue with, and what comes out of a chain, follows from the contract.
// The compiler is the judge here; what runs only shows that the values are there, too.
import { type ChainRef, type Chains, connect, defineJob, defineService, type Json } from "millrace";
import { describe, expect, expectTypeOf, it, onTestFinished } from "vitest";
import { z } from "zod";
import { chainShop } from "../client/chain-shop.js";

const o1 = { orderId: "1" };

async function service() {
  const connected = await connect(chainShop, { url: "memory:" });
  onTestFinished(() => connected.stop());
  return connected;
}

describe("continueWith", () => {
  it("takes declared types with payloads that fit", async () => {
    const { jobs } = await service();
    jobs.charge.handle((job) =>
      job.complete(({ continueWith }) => continueWith("ship", { orderId: "1", carrier: "air" })),
    );
    jobs.ship.handle(async ({ complete, payload }) =>
      payload.carrier === "air"
        ? complete(() => ({ parcel: "1" }))
        : complete(({ continueWith }) => continueWith("refund", payload, { priority: 5 })),
    );
  });

  it("refuses a wrong type, a wrong payload and a wrong option", async () => {
    const { jobs } = await service();
    jobs.charge.handle((job) =>
      // @ts-expect-error: charge does not continue with approve.
      job.complete(({ continueWith }) => continueWith("approve", { requestId: "1" })),
    );
    jobs.ship.handle((job) =>
      // @ts-expect-error: orderId must be a string.
      job.complete(({ continueWith }) => continueWith("refund", { orderId: 1 })),
    );
    jobs.approve.handle((job) =>
      job.complete(({ continueWith }) =>
        // @ts-expect-error: the id of a continuation is derived.
        continueWith("ship", { orderId: "1" }, { id: "mine" }),
      ),
    );
    jobs.lone.handle((job) =>
      // @ts-expect-error: lone continues with nothing.
      job.complete(({ continueWith }) => continueWith("ship", { orderId: "1" })),
    );
  });

  it("wants a value that fits, or a continuation", async () => {
    const { jobs } = await service();
    // @ts-expect-error: parcel must be a string.
    jobs.ship.handle((job) => job.complete(() => ({ parcel: 5 })));
    // @ts-expect-error: a type that names continuations and no result always continues.
    jobs.charge.handle(async () => ({ charged: true }));
    const other = await service();
    other.jobs.ship.handle(async () => ({ parcel: "1" }));
  });
});

describe("a completion without a worker", () => {
  it("takes what the type of the current job takes", async () => {
    const { chains } = await service();
    const chain = await chains.start("ship", { orderId: "1" }, { delayMs: 60_000 }).orThrow();
    await chains
      .complete(chain, async ({ job, complete }) => {
        if (job.type !== "ship") return;
        const next = await complete(job, ({ continueWith }) =>
          continueWith("refund", { orderId: job.payload.orderId }),
        );
        expectTypeOf(next.type).toEqualTypeOf<"refund">();
        const end = await complete(next, async () => ({ refunded: true }));
        expectTypeOf(end).toEqualTypeOf<null>();
      })
      .orThrow();
    const refund = await chains.start("refund", { orderId: "1" }, { delayMs: 60_000 }).orThrow();
    const { output } = await chains
      .complete(refund, ({ job, complete }) => complete(job, () => ({ refunded: false })))
      .orThrow();
    expect(output).toEqual({ refunded: false });
  });

  it("takes only what fits every type that the job may have", () => {
    const types = (chains: Chains<(typeof chainShop)["jobs"]>, shipped: ChainRef<"ship">) => {
      void chains.complete(shipped, async ({ job, complete }) => {
        // @ts-expect-error: the job may be a ship, which has a parcel.
        await complete(job, () => ({ refunded: true }));
        // @ts-expect-error: the job may be a refund, which continues with nothing.
        await complete(job, ({ continueWith }) => continueWith("refund", { orderId: "1" }));
        await complete(job, () => ({ parcel: "1", refunded: true }));
        // @ts-expect-error: a ship has no refund.
        if (job.type === "ship") await complete(job, () => ({ refunded: true }));
        // @ts-expect-error: a ship continues with no charge.
        if (job.type === "ship") await complete(job, (step) => step.continueWith("charge", o1));
        // @ts-expect-error: a refund continues with nothing.
        if (job.type === "refund") await complete(job, (step) => step.continueWith("refund", o1));
      });
      void chains.complete("a chain of any type", async ({ job, complete }) => {
        // @ts-expect-error: the job may be of another type.
        await complete(job, () => 5);
        if (job.type === "lone") await complete(job, () => 5);
      });
    };
    expectTypeOf(types).toBeFunction();
  });

  it("takes a continuation that every type names", () => {
    const both = defineService("both", {
      first: defineJob({ payload: z.object({}), continuations: ["second", "third"] }),
      second: defineJob({ payload: z.object({}), continuations: ["third", "fourth"] }),
      third: defineJob({ payload: z.object({}), continuations: ["third", "fourth"] }),
      fourth: defineJob({ payload: z.object({}), continuations: ["third"] }),
    });
    const types = (chains: Chains<(typeof both)["jobs"]>, first: ChainRef<"first">) =>
      chains.complete(first, async ({ job, complete }) => {
        await complete(job, ({ continueWith }) => continueWith("third", {}));
        // @ts-expect-error: the first and the last do not continue with the fourth.
        await complete(job, ({ continueWith }) => continueWith("fourth", {}));
        // @ts-expect-error: each of them always continues.
        await complete(job, () => ({ done: true }));
      });
    expectTypeOf(types).toBeFunction();
  });
});

describe("the output of a chain", () => {
  it("is the result of any job at which it can end", async () => {
    const { chains } = await service();
    type OutputOf<Started> = Started extends () => Promise<infer Output> ? Output : never;
    const charged = async () =>
      chains.wait(await chains.start("charge", { orderId: "1" }).orThrow()).orThrow();
    expectTypeOf<OutputOf<typeof charged>>().toEqualTypeOf<
      { parcel: string } | { refunded: boolean }
    >();
    const refunded = async () =>
      chains.wait(await chains.start("refund", { orderId: "1" }).orThrow()).orThrow();
    expectTypeOf<OutputOf<typeof refunded>>().toEqualTypeOf<{ refunded: boolean }>();
    const chain = await chains.start("approve", { requestId: "1" }).orThrow();
    const found = await chains.get(chain).orThrow();
    expectTypeOf(found.output).toEqualTypeOf<
      { approved: boolean } | { parcel: string } | { refunded: boolean } | undefined
    >();
    expectTypeOf(found.current.type).toEqualTypeOf<"approve" | "ship" | "refund">();
    expect(found.current.type).toBe("approve");
  });

  it("is bounded where types continue one another", async () => {
    const circle = defineService("circle", {
      tick: defineJob({ payload: z.object({}), continuations: ["tock"] }),
      tock: defineJob({
        payload: z.object({}),
        result: z.string(),
        continuations: ["tick", "tock"],
      }),
    });
    const connected = await connect(circle, { url: "memory:" });
    onTestFinished(() => connected.stop());
    const { chains } = connected;
    const ticked = async () => chains.wait(await chains.start("tick", {}).orThrow()).orThrow();
    expectTypeOf(ticked).returns.resolves.toEqualTypeOf<string>();
  });

  it("may be missing where a job was continued", async () => {
    const { jobs } = await service();
    const waited = async () =>
      (await jobs.ship.create({ orderId: "1" }).orThrow()).wait().orThrow();
    expectTypeOf(waited).returns.resolves.toEqualTypeOf<{ parcel: string } | undefined>();
    const charged = async () =>
      (await jobs.charge.create({ orderId: "1" }).orThrow()).wait().orThrow();
    expectTypeOf(charged).returns.resolves.toEqualTypeOf<Json | undefined>();
  });
});

describe("a contract", () => {
  it("names only its own jobs as continuations", () => {
    const send = defineJob({ payload: z.object({}), continuations: ["file"] });
    expect(() => defineService("mail", { send })).toThrow(
      "jobs.send.continuations names file, which is no job of the service; use send.",
    );
  });

  it("shows them in its manifest", async () => {
    const { manifest } = await import("millrace");
    const ship = manifest(chainShop).jobs.find(({ type }) => type === "ship");
    expect(ship?.settings.continuations).toEqual(["refund"]);
  });
});
