// An approval: a job that rejects a request by itself after two hours, unless somebody decides before.
import { connect, defineJob, defineService } from "millrace";
import { z } from "zod";

const request = z.object({ requestId: z.string() });

const office = defineService("office", {
  // The first job of the chain. Its worker is asked only when nobody has decided in time.
  awaitApproval: defineJob({
    payload: request,
    result: z.object({ approved: z.boolean() }),
    continuations: ["processRequest"],
  }),
  processRequest: defineJob({
    payload: request.extend({ approvedBy: z.string() }),
    result: z.object({ approved: z.boolean(), processed: z.string() }),
  }),
  // Waits for the request to be dealt with, however it went, and finds the output under a name.
  notify: defineJob({
    payload: request,
    blockers: { request: "awaitApproval" },
  }),
});

const service = await connect(office, { url: "memory:" });
service.handle({
  awaitApproval: () => ({ approved: false }),
  processRequest: ({ payload }) => ({
    approved: true,
    processed: `${payload.requestId} for ${payload.approvedBy}`,
  }),
  notify: ({ payload, blockers }) => {
    console.log(`${payload.requestId}: ${JSON.stringify(blockers.request.result)}`);
  },
});
await service.start();
const { chains, jobs } = service;

async function ask(requestId: string, delayMs: number) {
  const chain = await chains.start("awaitApproval", { requestId }, { delayMs }).orThrow();
  const notify = await jobs.notify
    .create({ requestId }, { blockers: { request: chain } })
    .orThrow();
  console.log(`${requestId}: ${(await notify.why().orThrow()).reason}`);
  return { chain, notify };
}

// Somebody approves: the waiting job is completed without a worker, and the chain goes on.
const approved = await ask("r-1", 2 * 60 * 60 * 1_000);
await chains
  .complete(approved.chain, async ({ job, complete }) => {
    if (job.type !== "awaitApproval") return;
    await complete(job, ({ continueWith }) =>
      continueWith("processRequest", { ...job.payload, approvedBy: "Anna" }),
    );
  })
  .orThrow();
await approved.notify.wait().orThrow();

// Somebody rejects: the chain ends at once.
const rejected = await ask("r-2", 2 * 60 * 60 * 1_000);
const decided = await chains
  .complete(rejected.chain, async ({ job, complete }) => {
    if (job.type === "awaitApproval") await complete(job, () => ({ approved: false }));
  })
  .orThrow();
console.log(`r-2: ${decided.state}, by ${decided.current.completedBy ?? "nobody's worker"}`);
await rejected.notify.wait().orThrow();

// Nobody decides: the worker rejects it when its time has come.
const forgotten = await ask("r-3", 50);
await forgotten.notify.wait().orThrow();

// It is too late to approve it now.
const late = await chains.complete(forgotten.chain, () => {});
console.log(`r-3: ${late.isErr() ? late.error._tag : "completed"}`);
await service.stop();
