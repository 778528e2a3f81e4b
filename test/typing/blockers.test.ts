// Where a definition names its blockers, no job of it is made without them.
// The compiler is the judge here, so that nothing runs.
import {
  type BetterSqliteClient,
  type ChainRef,
  type CreateOptions,
  defineJob,
  defineService,
  type JobRef,
  type Service,
} from "millrace";
import { expectTypeOf, it } from "vitest";
import { z } from "zod";

const order = z.object({ orderId: z.string() });

const shop = defineService("shop", {
  invoice: defineJob({ payload: order, result: z.object({ number: z.number() }) }),
  charge: defineJob({ payload: order, continuations: ["thank", "invoice"] }),
  thank: defineJob({ payload: order, blockers: { invoice: "invoice", delivery: "charge" } }),
});

type Shop = Service<(typeof shop)["jobs"]>;

interface Given {
  readonly service: Shop;
  readonly invoice: JobRef<{ orderId: string }, { number: number }>;
  readonly delivery: ChainRef<"charge">;
  readonly tx: BetterSqliteClient;
}

const o1 = { orderId: "o-1" };

it("every create wants the blockers that the definition names", () => {
  const types = ({ service: { jobs, chains }, invoice, delivery, tx }: Given) => {
    const blockers = { invoice, delivery };
    void jobs.thank.create(o1, { blockers });
    void jobs.thank.create(o1, { blockers, priority: 5, idempotencyKey: { key: "k" } });
    // @ts-expect-error: there are no options.
    void jobs.thank.create(o1);
    // @ts-expect-error: there are no options.
    void jobs.thank.create(o1, undefined);
    // @ts-expect-error: there are no blockers.
    void jobs.thank.create(o1, {});
    // @ts-expect-error: there is no delivery.
    void jobs.thank.create(o1, { blockers: { invoice } });
    // @ts-expect-error: there are no blockers.
    void jobs.thank.create(o1, { priority: 5 });

    void jobs.thank.submit(o1, { blockers });
    // @ts-expect-error: there are no options.
    void jobs.thank.submit(o1);
    void jobs.thank.run(o1, { blockers, timeoutMs: 5 });
    // @ts-expect-error: there are no options.
    void jobs.thank.run(o1);
    // @ts-expect-error: there are no blockers.
    void jobs.thank.run(o1, { timeoutMs: 5 });
    void jobs.thank.createMany([{ payload: o1, blockers }]);
    // @ts-expect-error: there are no blockers.
    void jobs.thank.createMany([{ payload: o1 }]);

    void jobs.thank.createSync(o1, { tx, blockers });
    // @ts-expect-error: there are no blockers.
    void jobs.thank.createSync(o1, { tx });
    // @ts-expect-error: there are no blockers.
    void jobs.thank.submitSync(o1, { tx });
    // @ts-expect-error: there are no blockers.
    void jobs.thank.createManySync([{ payload: o1 }], { tx });

    void chains.start("thank", o1, { blockers });
    // @ts-expect-error: there are no options.
    void chains.start("thank", o1);
    // @ts-expect-error: there are no blockers.
    void chains.start("thank", o1, { tags: ["vip"] });
  };
  expectTypeOf(types).toBeFunction();
});

it("so does a continuation", () => {
  const types = ({ service: { jobs, chains }, invoice, delivery }: Given) => {
    const blockers = { invoice, delivery };
    jobs.charge.handle(({ complete }) =>
      complete(({ continueWith }) => continueWith("thank", o1, { blockers, delayMs: 5 })),
    );
    jobs.charge.handle(({ complete }) =>
      // @ts-expect-error: there are no options.
      complete(({ continueWith }) => continueWith("thank", o1)),
    );
    jobs.charge.handle(({ complete }) =>
      // @ts-expect-error: there are no blockers.
      complete(({ continueWith }) => continueWith("thank", o1, { delayMs: 5 })),
    );
    jobs.charge.handle(({ complete }) =>
      complete(({ continueWith }) => continueWith("invoice", o1)),
    );
    void chains.complete(delivery, async ({ job, complete }) => {
      if (job.type !== "charge") return;
      await complete(job, ({ continueWith }) => continueWith("thank", o1, { blockers }));
      // @ts-expect-error: there are no options.
      await complete(job, ({ continueWith }) => continueWith("thank", o1));
    });
  };
  expectTypeOf(types).toBeFunction();
});

it("other definitions go without options", () => {
  const types = ({ service: { jobs, chains, untyped }, invoice, delivery }: Given) => {
    const options: CreateOptions = { blockers: [invoice, delivery] };
    void jobs.invoice.create(o1);
    void jobs.invoice.create(o1, undefined);
    void jobs.invoice.create(o1, options);
    void jobs.invoice.createMany([{ payload: o1 }, { payload: o1, blockers: [invoice] }]);
    void chains.start("charge", o1);
    void untyped.create("thank", o1);
    void untyped.create("invoice", o1, { blockers: [invoice] });
  };
  expectTypeOf(types).toBeFunction();
});

it("creates by name take blockers by name, too", () => {
  const types = ({ service: { untyped }, invoice, delivery, tx }: Given) => {
    const blockers = { invoice, delivery: { chain: delivery, onBadEnd: "continue" } } as const;
    void untyped.create("thank", {}, { blockers });
    void untyped.submit("thank", {}, { blockers, priority: 5 });
    void untyped.run("thank", {}, { blockers, timeoutMs: 5 });
    void untyped.createMany("thank", [
      { payload: {}, blockers },
      { payload: {}, blockers: [] },
    ]);
    void untyped.createSync("thank", {}, { tx, blockers });
    void untyped.submitSync("thank", {}, { tx, blockers });
    void untyped.createManySync("thank", [{ payload: {}, blockers }], { tx });
    // @ts-expect-error: a number is no blocker.
    void untyped.create("thank", {}, { blockers: { invoice: 7 } });
  };
  expectTypeOf(types).toBeFunction();
});

it("code for several types or for any says what it knows", () => {
  const types = ({ service: { chains, jobs } }: Given, type: "invoice" | "thank") => {
    void chains.start(type, o1);
    void chains.start(type, o1, { priority: 5 });
    const anyService = {} as Service;
    void anyService.jobs.thank?.create(o1);
    void anyService.chains.start("thank", o1);
    expectTypeOf(jobs.thank.create).parameter(1).toHaveProperty("blockers");
  };
  expectTypeOf(types).toBeFunction();
});
