// Payloads are checked before the handler and results after it; what is bad fails at once.
import { expect, it } from "vitest";
import { z } from "zod";
import { createClient } from "#millrace/client/client.js";
import { encryptionDemanded } from "#millrace/client/encryption-demand.js";
import { UntypedJobs } from "#millrace/client/untyped.js";
import { generateEncryptionKey, Vault } from "#millrace/client/vault.js";
import { defineJob, defineService } from "#millrace/contract/define.js";
import { boundJobs } from "#millrace/contract/definition.js";
import { createWorker } from "#millrace/worker/worker.js";
import { Workshop } from "./workshop.js";

function shop() {
  return new Workshop(
    defineService("shop", {
      mail: defineJob({
        payload: z.object({ to: z.string(), copies: z.number().default(1) }),
        result: z.object({ messageId: z.string() }),
      }),
      slowCheck: defineJob({
        payload: z.object({ to: z.string() }).refine(async ({ to }) => to.includes("@"), "no @"),
        result: z.object({ id: z.string() }).refine(async ({ id }) => id !== "", "empty"),
      }),
      free: defineJob({ payload: z.unknown() }),
    }),
  );
}

it("gives the handler what the schema gives", async () => {
  const workshop = shop();
  await workshop.create("mail", { to: "a@b", extra: true });
  const payloads: unknown[] = [];
  await workshop.start({
    mail: (job) => {
      payloads.push(job.payload);
      return { messageId: "m-1" };
    },
  });
  expect(payloads).toEqual([{ to: "a@b", copies: 1 }]);
});

it("fails a job with a bad payload at once, without calling the handler", async () => {
  const workshop = shop();
  const id = await workshop.create("mail", { to: 7 });
  let calls = 0;
  await workshop.start({
    mail: () => {
      calls++;
    },
  });
  const job = await workshop.job(id);
  expect(calls).toBe(0);
  expect(job).toMatchObject({ state: "failed", tries: 1, error: { reason: "payload" } });
  expect(job.error?.message).toContain("/to");
});

it("fails a job with a bad result and does not try it again", async () => {
  const workshop = shop();
  const id = await workshop.create("mail", { to: "a@b" });
  await workshop.start({ mail: () => ({ messageId: 7 }) });
  const job = await workshop.job(id);
  expect(job).toMatchObject({ state: "failed", error: { reason: "result" } });
  expect(job.error?.message).toContain("/messageId");
});

it("waits for schemas that check asynchronously", async () => {
  const workshop = shop();
  const good = await workshop.create("slowCheck", { to: "a@b" });
  const bad = await workshop.create("slowCheck", { to: "nobody" });
  const empty = await workshop.create("slowCheck", { to: "empty@b" });
  await workshop.start({
    slowCheck: (job) => ({ id: (job.payload as { to: string }).to === "a@b" ? "1" : "" }),
  });
  expect((await workshop.job(good)).state).toBe("completed");
  expect((await workshop.job(bad)).error).toMatchObject({ reason: "payload" });
  expect((await workshop.job(empty)).error).toMatchObject({ reason: "result" });
});

it.each([
  ["too large", "x".repeat(300_000), "bytes as JSON"],
  ["no JSON", { at: { deep: 1n } }, "/at/deep"],
  ["a cycle of no end", nested(40), "nested deeper"],
])("fails a job whose result is %s", async (_what, result, told) => {
  const workshop = shop();
  const id = await workshop.create("free");
  await workshop.start({ free: () => result });
  const job = await workshop.job(id);
  expect(job).toMatchObject({ state: "failed", error: { reason: "result" } });
  expect(job.error?.message).toContain(told);
});

function nested(depth: number): unknown {
  return depth === 0 ? null : { inner: nested(depth - 1) };
}

const vault = new Vault({ keys: [{ id: "k1", key: generateEncryptionKey() }] });
const keyless = [
  ["encrypted jobs", { vault }, {}, "the key k1"],
  [
    "plain jobs whose results must be encrypted",
    {},
    { encryptionDemand: encryptionDemanded },
    "must be encrypted",
  ],
] as const;

it.each(keyless)(
  "leaves %s to who has keys, at the cost of no try",
  async (_, made, known, why) => {
    const workshop = shop();
    const { contract } = workshop;
    const creator = createClient({ ...workshop.runtime("creator"), ...made }, contract);
    const { id } = await new UntypedJobs(creator, contract)
      .create("free", "4242", { maxTries: 1 })
      .orThrow();
    const seen: unknown[] = [];
    const worker = (instance: string, keys: object) => {
      const client = createClient({ ...workshop.runtime(instance), ...keys }, contract);
      const handler = (job: { readonly payload: unknown }) => void seen.push(job.payload);
      const jobs = boundJobs(contract).filter(({ type }) => type === "free");
      return createWorker({ client, jobs: jobs.map((bound) => ({ bound, handler })) });
    };
    const bare = worker("bare", known);
    await bare.start();
    await workshop.clock.advance(4_000);
    // It rests meanwhile, so that the one without keys does not take it in a circle.
    expect(await workshop.names(id)).toEqual(["created", "started", "released"]);
    const reason = expect.stringContaining(why);
    expect(await workshop.job(id)).toMatchObject({ state: "pending", tries: 0, reason });
    expect(workshop.logged("holds the encryption keys")).toMatchObject([{ level: "warn" }]);
    await bare.stop();
    await worker("holder", { ...known, vault }).start();
    await workshop.clock.advance(4_000);
    expect(seen).toEqual(["4242"]);
    expect(await workshop.job(id)).toMatchObject({ state: "completed", tries: 1 });
  },
);
