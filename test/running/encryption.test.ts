// Encryption on every store: payloads and results are never stored in plain text, and who has the keys notices nothing.
import {
  connect,
  defineJob,
  defineService,
  type EncryptionOptions,
  type Engine,
  generateEncryptionKey,
  type JobEntries,
  openEngine,
  redactJob,
  type ServiceContract,
} from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import type { HookJob } from "#millrace/contract/hooks.js";
import { FakeClock } from "#millrace/testing/fake-clock.js";
import { everyStore, type Store } from "../support/every-store.js";

const keeper = { ttlMs: 2_000, renewMs: 200, tickMs: 50, resolveMs: 10 };

const hooked: HookJob<unknown, unknown>[] = [];
const payload = z.object({ card: z.string() });

const shop = defineService("shop", {
  charge: defineJob({
    payload,
    result: z.object({ receipt: z.string() }),
    continuations: ["mail"],
    retry: { maxTries: 2, backoff: [1] },
    hooks: { onSuccess: (job) => void hooked.push(job) },
  }),
  mail: defineJob({ payload }),
  report: defineJob({ payload, blockers: { charged: "charge" } }),
});

const sealing = defineService("sealing", { forge: defineJob({ payload: z.object({}) }) });

const nightly = defineService(
  "nightly",
  { mail: defineJob({ payload }) },
  {
    schedules: {
      often: { type: "mail", payload: { card: "no-4242-declared" }, everyMs: 100 },
      later: { type: "mail", payload: { card: "no-4242-later" }, everyMs: 60 * 60 * 1_000 },
    },
  },
);

const first = { id: "k1", key: generateEncryptionKey() };
const second = { id: "k2", key: generateEncryptionKey() };

function opener(store: Pick<Store, "freshUrl">) {
  return openerOf(shop, store);
}

async function openerOf<Entries extends JobEntries>(
  contract: ServiceContract<Entries>,
  store: Pick<Store, "freshUrl">,
) {
  const url = await store.freshUrl();
  const memory = url === "memory:" ? await openEngine(url) : null;
  if (memory) onTestFinished(() => memory.close());
  return async (encryption?: EncryptionOptions) => {
    const where = memory ? { engine: memory } : { url };
    const service = await connect(contract, {
      ...where,
      keeper,
      ...(encryption && { encryption }),
    });
    onTestFinished(() => service.stop());
    return service;
  };
}

type Shop = Awaited<ReturnType<Awaited<ReturnType<typeof opener>>>>;

/** All that the store holds of a job. */
async function stored(service: Shop, id: string): Promise<string> {
  const found = await service.engine.load([id], { history: true });
  return JSON.stringify([found, await service.engine.query("job", { id })]);
}

describe.for(everyStore)("encryption on $name", (store) => {
  it("gives handlers, waiters, hooks and those who wait for a job plain text, and the store none", async () => {
    const open = await opener(store);
    const service = await open({ keys: [first] });
    service.jobs.charge.handle(({ payload }) => ({ receipt: `for ${payload.card}` }));
    let seen: unknown;
    service.jobs.report.handle(({ payload, blockers }) => {
      seen = [payload, blockers.charged];
    });
    await service.start();
    const charge = await service.jobs.charge.create({ card: "no-4242-1" }).orThrow();
    const report = await service.jobs.report
      .create({ card: "no-4242-2" }, { blockers: { charged: charge } })
      .orThrow();
    expect(await charge.wait().orThrow()).toEqual({ receipt: "for no-4242-1" });
    await report.wait().orThrow();
    const result = { receipt: "for no-4242-1" };
    expect(seen).toEqual([{ card: "no-4242-2" }, { id: charge.id, state: "completed", result }]);
    const job = await charge.get().orThrow();
    expect(job).toMatchObject({ payload: { card: "no-4242-1" }, result });
    expect(hooked.find(({ id }) => id === charge.id)).toMatchObject({
      payload: job.payload,
      result,
    });
    for (const { id } of [charge, report])
      expect(await stored(service, id)).not.toContain("no-4242");
    expect((await service.reads.job(charge.id).orThrow()).payload).toEqual({ card: "no-4242-1" });
  });

  it("opens what older keys have sealed, and fails with a sentence where a key is missing", async () => {
    const open = await opener(store);
    const before = await open({ keys: [first] });
    const old = await before.jobs.charge.create({ card: "no-4242" }).orThrow();
    const after = await open({ keys: [second, first] });
    const young = await after.jobs.charge.create({ card: "4343" }).orThrow();
    const retired = await open({ keys: [second] });
    retired.jobs.charge.handle(({ payload }) => ({ receipt: payload.card }));
    await retired.start();
    expect(await young.wait().orThrow()).toEqual({ receipt: "4343" });
    await retired.ref(old.id).wait();
    const failed = await retired.ref(old.id).get().orThrow();
    expect(failed).toMatchObject({
      state: "dead",
      tries: 2,
      error: { reason: "encryption", code: "encryption_key_missing" },
    });
    expect(failed.error?.message).toContain("with the key k1, which this process does not have");
    await retired.stop();
    after.jobs.charge.handle(({ payload }) => ({ receipt: payload.card }));
    await after.start();
    await after.ref(old.id).retry().orThrow();
    expect(await after.ref(old.id).wait().orThrow()).toEqual({ receipt: "no-4242" });
  });
});

describe.for(everyStore)("schedules on $name", (store) => {
  it("store no payload in plain text, and give it to who has the key", async () => {
    const open = await openerOf(nightly, store);
    const service = await open({ keys: [first] });
    const seen = new Set<string>();
    let note = () => {};
    service.jobs.mail.handle(({ payload: { card } }) => {
      seen.add(card);
      note();
    });
    await service.start();
    const made = { type: "mail", payload: { card: "no-4242-made" }, everyMs: 100 };
    const shown = await service.schedules.create("made", made).orThrow();
    expect(shown.payload).toEqual(made.payload);
    await service.schedules.run("later").orThrow();
    await new Promise<void>((resolve) => {
      note = () => {
        if (seen.size === 3) resolve();
      };
    });
    expect([...seen].sort()).toEqual(["no-4242-declared", "no-4242-later", "no-4242-made"]);
    // A younger key comes first, and the older one still opens; who has none sees that there is something.
    const rotated = await open({ keys: [second, first] });
    const bare = await open();
    const payloads = async ({ schedules }: typeof service) =>
      (await schedules.list().orThrow()).map((schedule) => schedule.payload);
    expect(await payloads(rotated)).toEqual([...seen].sort(byPlace).map((card) => ({ card })));
    for (const hidden of await payloads(bare)) expect(hidden).toMatchObject({ $sealed: 1 });
    const refused = await bare.schedules.run("made");
    expect(refused.isErr() && refused.error).toMatchObject({ code: "encryption_key_missing" });
    for (const prefix of ["schedule/", "contract/"]) {
      const records = await service.engine.query("records", { prefix, limit: 100 });
      expect(JSON.stringify(records)).not.toContain("no-4242");
    }
    const contract = await service.contract.accepted().orThrow();
    expect(contract?.manifest).toMatchObject({ encrypted: true });
    expect(JSON.stringify(contract)).not.toContain("no-4242");
  });
});

/** The order of the schedules' names: later, made, often. */
function byPlace(a: string, b: string): number {
  const places = ["no-4242-later", "no-4242-made", "no-4242-declared"];
  return places.indexOf(a) - places.indexOf(b);
}

it("seals declared schedules anew with a ring that lacks the old key, and leaves them alone without keys", async () => {
  const open = await openerOf(nightly, memory);
  const record = async (service: { readonly engine: Engine }) => {
    const [found] = await service.engine.records(["schedule/nightly/later"]);
    return found?.body as { readonly payload: { readonly key: string } };
  };
  const before = await open({ keys: [first] });
  await before.start();
  const old = await record(before);
  expect(old.payload.key).toBe("k1");
  const both = await open({ keys: [second, first] });
  await both.start();
  expect((await record(both)).payload.key).toBe("k2");
  const after = await open({ keys: [second] });
  await after.start();
  expect((await record(after)).payload.key).toBe("k2");
  const declared = await openerOf({ ...nightly, encrypted: true }, { freshUrl: memory.freshUrl });
  const bare = await declared();
  await bare.start();
  expect(await bare.schedules.list().orThrow()).toEqual([]);
});

it("does not start without keys, unless the contract says that they are needed", async () => {
  const open = await opener(memory);
  await (await open({ keys: [first] })).start();
  const bare = await open();
  await expect(bare.start()).rejects.toThrow("stored in plain text again");
  const declaring = await openerOf({ ...shop, encrypted: true }, memory);
  const creator = await declaring();
  await creator.start();
  const refused = await creator.jobs.mail.create({ card: "no-4242" });
  expect(refused.isErr() && refused.error).toMatchObject({ _tag: "EncryptionRequired" });
  const schedule = { type: "mail", payload: { card: "no-4242" }, everyMs: 1_000 };
  const unmade = await creator.schedules.create("made", schedule);
  expect(unmade.isErr() && unmade.error).toMatchObject({ _tag: "EncryptionRequired" });
});

const memory = { freshUrl: async () => "memory:" };

it("stores nothing in plain text without keys once the accepted contract says that it is encrypted", async () => {
  const open = await opener(memory);
  const holder = await open({ keys: [first] });
  await holder.start();
  const bare = await open();
  const refused = await bare.jobs.mail.create({ card: "no-4242" });
  expect(refused.isErr() && refused.error).toMatchObject({ _tag: "EncryptionRequired" });
  const unnamed = await bare.untyped.create("elsewhere", { card: "no-4242" });
  expect(unnamed.isErr() && unnamed.error).toMatchObject({ _tag: "EncryptionRequired" });
  const schedule = { type: "mail", payload: { card: "no-4242" }, everyMs: 1_000 };
  const unmade = await bare.schedules.create("made", schedule);
  expect(unmade.isErr() && unmade.error).toMatchObject({ _tag: "EncryptionRequired" });
  expect(await bare.schedules.list().orThrow()).toEqual([]);
  expect((await bare.reads.jobs().orThrow()).entries).toEqual([]);
});

it.for(everyStore)(
  "is noticed by processes without keys that were connected before, on $name",
  async (store) => {
    const clock = new FakeClock();
    const engine = await openEngine(await store.freshUrl(), { clock });
    onTestFinished(() => engine.close());
    const open = async (encryption?: EncryptionOptions) => {
      const options = { engine, clock, keeper: false, ...(encryption && { encryption }) } as const;
      const service = await connect(shop, options);
      onTestFinished(() => service.stop());
      return service;
    };
    const [creator, scheduler, worker] = [await open(), await open(), await open()];
    worker.jobs.mail.handle(() => "done");
    await worker.start();
    await worker.jobs.mail.run({ card: "4242" }).orThrow();
    await (await open({ keys: [first] })).start();
    await clock.advance(5_000);
    const early = await creator.jobs.mail.create({ card: "no-4242" });
    const many = await creator.jobs.mail.createMany([{ payload: { card: "no-4242" } }]).orThrow();
    const spec = { type: "mail", payload: { card: "no-4242" }, everyMs: 60_000 };
    const scheduled = await scheduler.schedules.create("late", spec);
    for (const refused of [early, ...many, scheduled])
      expect(refused.isErr() && refused.error).toMatchObject({ _tag: "EncryptionRequired" });
    // What is claimed is left to others, because its result could only be stored in plain text.
    const holder = await open({ keys: [first] });
    const left = await holder.jobs.mail.create({ card: "no-4242" }).orThrow();
    const names = async () => (await left.events().orThrow()).map(({ name }) => name);
    while (!(await names()).includes("released")) await clock.advance(10);
    expect(await names()).not.toContain("completed");
    expect((await left.get().orThrow()).tries).toBe(0);
  },
);

it.for(everyStore)(
  "seals schedules of callers anew with the first key, on $name",
  async (store) => {
    for (const before of [undefined, { keys: [first] }]) {
      const open = await opener(store);
      const spec = { type: "mail", payload: { card: "no-4242" }, everyMs: 60 * 60 * 1_000 };
      await (await open(before)).schedules.create("early", spec).orThrow();
      await (await open({ keys: [second, first] })).start();
      // Only the first key is needed from now on.
      const after = await open({ keys: [second] });
      const records = await after.engine.query("records", { prefix: "", limit: 100 });
      expect(JSON.stringify(records)).not.toContain("no-4242");
      const job = await after.schedules.run("early").orThrow();
      expect((await job.get().orThrow()).payload).toEqual({ card: "no-4242" });
    }
  },
);

it("stores plain text again for who names that migration", async () => {
  const engine = await openEngine("memory:");
  onTestFinished(() => engine.close());
  const holder = await connect(shop, { engine, keeper: false, encryption: { keys: [first] } });
  await holder.start();
  const bare = await connect(shop, { engine, keeper: false });
  bare.jobs.mail.handle(() => {});
  const standing = await bare.contract.standing().orThrow();
  if (standing.standing !== "migration") throw new Error("There is nothing to accept.");
  await expect(bare.start()).rejects.toMatchObject({ _tag: "MigrationNotAccepted" });
  const acceptMigration = standing.migration;
  const plain = await connect(shop, { engine, keeper: false, acceptMigration });
  for (const service of [holder, bare, plain]) onTestFinished(() => service.stop());
  plain.jobs.mail.handle(() => {});
  await plain.start();
  await (await plain.jobs.mail.create({ card: "4242" }).orThrow()).wait().orThrow();
});

it("says of a plain schedule that its jobs must be encrypted, not that they must be signed", async () => {
  const open = await opener(memory);
  const schedule = { type: "mail", payload: { card: "4242" }, everyMs: 60 * 60 * 1_000 };
  const early = await open();
  await (await open({ keys: [first] })).start();
  // It does not know yet that the service is encrypted by now.
  await early.schedules.create("early", schedule).orThrow();
  const refused = await (await open()).schedules.run("early");
  expect(refused.isErr() && refused.error).toMatchObject({
    _tag: "EncryptionRequired",
    id: "early",
  });
});

it("seals what chains pass on and are completed with", async () => {
  const service = await (await opener(memory))({ keys: [first] });
  const chain = await service.chains.start("charge", { card: "no-4242" }).orThrow();
  const completed = await service.chains
    .complete(chain, async ({ job, complete }) => {
      if (job.type !== "charge") return;
      const next = await complete(job, ({ continueWith }) => continueWith("mail", job.payload));
      expect(next.payload).toEqual({ card: "no-4242" });
      await complete(next, () => ({ sent: "no-4242" }));
    })
    .orThrow();
  expect(completed.output).toEqual({ sent: "no-4242" });
  expect(await service.chains.wait(chain).orThrow()).toEqual({ sent: "no-4242" });
  for (const { id } of completed.jobs) expect(await stored(service, id)).not.toContain("no-4242");
});

it("does not open what was moved to another job", async () => {
  const open = await opener(memory);
  const service = await open({ keys: [first] });
  const { id } = await service.jobs.charge.create({ card: "no-4242" }).orThrow();
  const [sealed] = await service.engine.load([id], { history: true });
  const [created] = sealed?.events ?? [];
  if (created === undefined) throw new Error("The job has no history.");
  // Who can write to the store can put it into another job.
  const job = { service: created.service, type: created.type, id: "moved" };
  const event = { ...created, id: "moved-created", jobId: job.id };
  await service.engine.append([{ job, expect: { version: 0 }, event }]);
  service.jobs.charge.handle(() => ({ receipt: "opened" }));
  await service.start();
  await service.ref(job.id).wait();
  expect(await service.ref(job.id).get().orThrow()).toMatchObject({
    state: "failed",
    error: { reason: "encryption", code: "encryption_invalid" },
  });
});

it("takes no payload that looks like an encrypted one", async () => {
  const open = await opener(memory);
  const [service, plain] = [await open({ keys: [first] }), await open()];
  const { id } = await service.jobs.charge.create({ card: "no-4242" }).orThrow();
  const [sealed] = await service.engine.load([id]);
  const refused = await plain.untyped.create("elsewhere", sealed?.job.payload ?? null);
  expect(refused.isErr() && refused.error).toMatchObject({
    _tag: "InvalidPayload",
    issues: [{ path: "/$sealed" }],
  });
});

it("takes no result that looks like an encrypted one, which nobody could read", async () => {
  const service = await (await openerOf(sealing, memory))();
  service.jobs.forge.handle(() => ({ $sealed: 1, key: "k1", data: "" }));
  await service.start();
  const forged = await service.jobs.forge.create({}).orThrow();
  expect(await forged.wait()).toMatchObject({ error: { _tag: "JobEnded", state: "failed" } });
  const chain = await service.chains.start("forge", {}, { delayMs: 60_000 }).orThrow();
  const completed = await service.chains.complete(chain, async ({ job, complete }) => {
    if (job.type === "forge") await complete(job, () => ({ $sealed: 1, key: "k1", data: "" }));
  });
  expect(completed).toMatchObject({ error: { _tag: "InvalidResult" } });
});

it("runs jobs from before there were keys, and shows who has none that there is something", async () => {
  const open = await opener(memory);
  const plain = await open();
  const service = await open({ keys: [first] });
  service.jobs.charge.handle(({ payload }) => ({ receipt: payload.card }));
  await service.start();
  const early = await plain.jobs.charge.create({ card: "no-4242" }).orThrow();
  expect(await service.ref(early.id).wait().orThrow()).toEqual({ receipt: "no-4242" });
  const late = await plain.ref(early.id).wait();
  expect(late.isErr() && late.error).toMatchObject({
    _tag: "DecryptionFailed",
    code: "encryption_key_missing",
  });
  const shown = redactJob(await plain.ref(early.id).get().orThrow());
  expect(shown).toMatchObject({
    state: "completed",
    payload: { card: "no-4242" },
    result: "[encrypted]",
  });
});

it("does not start with handlers and without keys, and stores no contract then", async () => {
  const engine = await openEngine("memory:");
  onTestFinished(() => engine.close());
  const declaring = { ...shop, encrypted: true };
  const bare = async (contract: typeof shop) => {
    const service = await connect(contract, { engine, keeper });
    onTestFinished(() => service.stop());
    return service;
  };
  const plain = await bare(shop);
  await plain.start();
  const early = await plain.jobs.mail.create({ card: "no-4242" }, { maxTries: 1 }).orThrow();
  const refusal = { _tag: "EncryptionRequired", message: expect.stringContaining("no handlers") };
  const handling = await bare(declaring);
  handling.jobs.mail.handle(() => {});
  await expect(handling.start()).rejects.toMatchObject(refusal);
  const routing = await bare(declaring);
  routing.route("mail:", () => {});
  await expect(routing.start()).rejects.toMatchObject(refusal);
  expect((await plain.contract.accepted().orThrow())?.manifest).not.toHaveProperty("encrypted");
  // An earlier contract starts without a migration; with handlers it needs the keys as any other.
  await (await bare(declaring)).start();
  const earlier = await bare(shop);
  earlier.jobs.mail.handle(() => {});
  await expect(earlier.start()).rejects.toMatchObject(refusal);
  expect(await plain.ref(early.id).get().orThrow()).toMatchObject({ state: "pending", tries: 0 });
});

it("compares idempotent creates without storing what would tell the payload", async () => {
  const service = await (await opener(memory))({ keys: [first] });
  const create = (card: string) => service.jobs.mail.create({ card }, { idempotencyKey: "once" });
  const job = await create("1").orThrow();
  expect(await create("1").orThrow()).toMatchObject({ id: job.id, existing: true });
  const other = await create("2");
  expect(other.isErr() && other.error._tag).toBe("IdempotencyConflict");
  const { canonicalHash } = await import("#millrace/core/json.js");
  const records = await service.engine.query("records", { prefix: "idempotency/" });
  expect(JSON.stringify(records)).not.toContain(canonicalHash({ card: "1" }));
});

it("refuses rings that cannot work", async () => {
  const open = await opener(memory);
  await expect(open({ keys: [] })).rejects.toThrow("a list of 1 to 20 keys");
  await expect(open({ keys: [{ id: "k", key: "abc" }] })).rejects.toThrow(
    "encryption.keys[0].key: An encryption key is 64 hexadecimal digits",
  );
  await expect(open({ keys: [first, first] })).rejects.toThrow("Two keys have the same id");
});
