// Signing on every store: who may create what a worker runs, and what becomes of everything else.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  type ConnectOptions,
  connect,
  defineJob,
  defineService,
  generateSigningKeys,
  type Logger,
  openEngine,
  type SigningOptions,
  signJob,
} from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { everyStore, type Store } from "../support/every-store.js";

const keeper = { ttlMs: 2_000, renewMs: 200, tickMs: 50, resolveMs: 10 };

const shop = defineService("shop", {
  charge: defineJob({
    payload: z.object({ cents: z.number() }),
    continuations: ["ship"],
    result: z.any(),
  }),
  ship: defineJob({ payload: z.object({ cents: z.number() }) }),
});

const office = generateSigningKeys();
const stranger = generateSigningKeys();

/** Opens services on one store, as processes with different keys have them. */
async function opener(store: Pick<Store, "freshUrl">) {
  const url = await store.freshUrl();
  const memory = url === "memory:" ? await openEngine(url) : null;
  if (memory) onTestFinished(() => memory.close());
  return async (signing?: SigningOptions, options: ConnectOptions = {}) => {
    const where = memory ? { engine: memory } : { url };
    const service = await connect(shop, {
      ...where,
      ...options,
      keeper,
      ...(signing && { signing }),
    });
    onTestFinished(() => service.stop());
    return service;
  };
}

type Shop = Awaited<ReturnType<Awaited<ReturnType<typeof opener>>>>;

/** Starts a worker and gives what its handlers were called with. */
async function work(service: Shop) {
  const called: number[] = [];
  service.jobs.charge.handle(async (job) => {
    called.push(job.payload.cents);
    if (job.payload.cents > 100)
      return job.complete(({ continueWith }) => continueWith("ship", { cents: 1 }));
    return "charged";
  });
  service.jobs.ship.handle(({ payload }) => void called.push(payload.cents));
  await service.start();
  return called;
}

async function endOf(service: Shop, id: string) {
  await service.ref(id).wait();
  return service.ref(id).get().orThrow();
}

describe.for(everyStore)("signing on $name", (store) => {
  it("runs what was signed with a key that counts, and fails everything else at once", async () => {
    const open = await opener(store);
    const creator = await open({ sign: office.privateKey });
    const bad = await open({ sign: stranger.privateKey });
    const unsigned = await open();
    const worker = await open({ verify: [office.publicKey] });
    const called = await work(worker);
    const good = await creator.jobs.charge.create({ cents: 1 }).orThrow();
    expect(await endOf(worker, good.id)).toMatchObject({ state: "completed" });
    const foreign = await bad.jobs.charge.create({ cents: 2 }).orThrow();
    expect(await endOf(worker, foreign.id)).toMatchObject({
      state: "failed",
      tries: 1,
      error: { reason: "signature", code: "signature_invalid" },
    });
    const plain = await unsigned.jobs.charge.create({ cents: 3 }).orThrow();
    expect(await endOf(worker, plain.id)).toMatchObject({
      state: "failed",
      error: { code: "signature_required", message: `Job ${plain.id} bears no signature.` },
    });
    expect(called).toEqual([1]);
  });

  it("knows a signature that was moved to another job, or whose payload was changed", async () => {
    const open = await opener(store);
    const creator = await open({ sign: office.privateKey });
    const thief = await open();
    const worker = await open({ verify: [office.publicKey] });
    const called = await work(worker);
    const paid = await creator.jobs.charge.create({ cents: 5 }).orThrow();
    const { signature } = await endOf(worker, paid.id);
    if (signature === undefined) throw new Error("The job bears no signature.");
    const moved = await thief.jobs.charge
      .create({ cents: 5 }, { id: "moved", signature })
      .orThrow();
    expect(await endOf(worker, moved.id)).toMatchObject({ error: { code: "signature_invalid" } });
    const times = { createdAt: Date.now() };
    const job = {
      service: "shop",
      type: "charge",
      typeVersion: 1,
      id: "more",
      payload: { cents: 6 },
    };
    const own = signJob(office.privateKey, job, times);
    const more = await thief.jobs.charge
      .create({ cents: 600 }, { id: "more", signature: own })
      .orThrow();
    expect(await endOf(worker, more.id)).toMatchObject({ error: { code: "signature_invalid" } });
    expect(called).toEqual([5]);
  });

  it("signs continuations by the process that creates them, and refuses them where it has no key", async () => {
    const open = await opener(store);
    const creator = await open({ sign: office.privateKey });
    const signer = await open({ sign: office.privateKey, verify: [office.publicKey] });
    const called = await work(signer);
    const chain = await creator.chains.start("charge", { cents: 200 }).orThrow();
    await signer.chains.wait(chain.id).orThrow();
    expect(called).toEqual([200, 1]);
    await signer.stop();
    const reader = await open({ verify: [office.publicKey] });
    await work(reader);
    const broken = await creator.jobs.charge.create({ cents: 300 }, { maxTries: 1 }).orThrow();
    expect(await endOf(reader, broken.id)).toMatchObject({
      state: "dead",
      error: { name: "SignatureRequired" },
    });
  });
});

const memory = { freshUrl: async () => "memory:" };

it("keeps the signature over a manual retry, and lets it expire", async () => {
  const open = await opener(memory);
  const creator = await open({ sign: office.privateKey });
  const { id } = await creator.jobs.charge.create({ cents: 1 }).orThrow();
  const worker = await open({ verify: [office.publicKey] });
  const called = await work(worker);
  const { signature } = await endOf(worker, id);
  const again = await worker.ref(id).retry({ force: true }).orThrow();
  expect(again.signature).toEqual(signature);
  expect(await endOf(worker, id)).toMatchObject({ state: "completed", run: 2 });
  expect(called).toEqual([1, 1]);
  const hasty = await open({ sign: office.privateKey, expiresMs: 1 });
  const late = await hasty.jobs.charge.create({ cents: 2 }, { delayMs: 20 }).orThrow();
  expect(await endOf(worker, late.id)).toMatchObject({
    state: "failed",
    error: { message: `The signature of job ${late.id} has expired.` },
  });
});

it("takes several keys while they are changed, and jobs without a signature if it may", async () => {
  const open = await opener(memory);
  const before = await open({ sign: office.privateKey });
  const after = await open({ sign: stranger.privateKey });
  const unsigned = await open();
  const verify = [office.publicKey, stranger.publicKey];
  const worker = await open({ verify, optional: true });
  const called = await work(worker);
  for (const [index, service] of [before, after, unsigned].entries()) {
    const { id } = await service.jobs.charge.create({ cents: index }).orThrow();
    await worker.ref(id).wait().orThrow();
  }
  expect(called).toEqual([0, 1, 2]);
  const other = await open({ sign: generateSigningKeys().privateKey });
  const bad = await other.jobs.charge.create({ cents: 3 }).orThrow();
  expect(await endOf(worker, bad.id)).toMatchObject({ error: { code: "signature_invalid" } });
});

it("refuses at create what no worker would run", async () => {
  const open = await opener(memory);
  const service = await open({ verify: [office.publicKey] });
  const refused = await service.jobs.charge.create({ cents: 1 });
  expect(refused.isErr() && refused.error._tag).toBe("SignatureRequired");
  const job = {
    service: "shop",
    type: "charge",
    typeVersion: 1,
    id: "mine",
    payload: { cents: 1 },
  };
  const create = async (id: string, createdAt: number) => {
    const signature = signJob(office.privateKey, job, { createdAt });
    const created = await service.jobs.charge.create({ cents: 1 }, { id, signature });
    return created.isErr() ? created.error._tag : created.value.id;
  };
  expect(await create("other", Date.now())).toBe("SignatureInvalid");
  expect(await create("mine", Date.now() + 600_000)).toBe("SignatureInvalid");
  expect(await create("mine", Date.now())).toBe("mine");
  const signature = signJob(office.privateKey, job, { createdAt: Date.now() });
  const nameless = await service.jobs.charge.create({ cents: 1 }, { signature });
  expect(nameless.isErr() && nameless.error).toMatchObject({ _tag: "InvalidOption", field: "id" });
});

it("reads keys from text and files, and says what is wrong with one", async () => {
  const folder = await mkdtemp(join(tmpdir(), "millrace-keys-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const file = join(folder, "office.key");
  // Other tools write the public key behind the private one.
  await writeFile(file, `${office.privateKey}${office.publicKey}\n`);
  const open = await opener(memory);
  const creator = await open({ sign: file });
  const worker = await open({ verify: [office.publicKey.toUpperCase()] });
  await work(worker);
  const { id } = await creator.jobs.charge.create({ cents: 1 }).orThrow();
  await worker.ref(id).wait().orThrow();
  await expect(open({ sign: "abc" })).rejects.toThrow(
    "signing.sign: A private key is 64 or 128 hexadecimal digits",
  );
  await writeFile(file, "hello");
  await expect(open({ verify: [file] })).rejects.toThrow("the file holds something else");
  await expect(open({ sign: office.privateKey, verify: [stranger.publicKey] })).rejects.toThrow(
    "The public key of signing.sign is not among them",
  );
  await expect(open({})).rejects.toThrow("Give a private key");
});

it("signs what a schedule starts, also when a process without the key leads", async () => {
  const beats = defineService(
    "beats",
    { beat: defineJob({ payload: z.object({}) }) },
    { schedules: { often: { type: "beat", payload: {}, everyMs: 100 } } },
  );
  const engine = await openEngine("memory:");
  onTestFinished(() => engine.close());
  let isLeft = () => {};
  const left = new Promise<void>((resolve) => {
    isLeft = resolve;
  });
  const logger: Logger = {
    info: () => {},
    error: () => {},
    warn: (_, message) => {
      if (message.includes("left to a process that holds the keys")) isLeft();
    },
  };
  const open = async (signing: SigningOptions) => {
    const service = await connect(beats, { engine, keeper, signing, logger });
    onTestFinished(() => service.stop());
    return service;
  };
  const reader = await open({ verify: [office.publicKey] });
  await reader.start();
  await left;
  expect(await reader.schedules.get("often").orThrow()).not.toHaveProperty("lastSkipped");
  expect(await reader.reads.counts().orThrow()).toEqual([]);
  const signer = await open({ sign: office.privateKey, verify: [office.publicKey] });
  const beaten = new Promise<string>((resolve) => {
    signer.jobs.beat.handle(({ id }) => resolve(id));
  });
  await signer.start();
  const job = await signer
    .ref(await beaten)
    .get()
    .orThrow();
  expect(job.signature?.value).toMatch(/^[0-9a-f]{128}$/);
});
