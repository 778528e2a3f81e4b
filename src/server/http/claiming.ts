/**
 * Claims over HTTP: one look, or a look that goes on until there is a job or the caller's patience ends.
 */
import { DecryptionFailed, openPart } from "../../client/vault.js";
import { queueOf } from "../../contract/definition.js";
import { resolveSettings } from "../../contract/settings.js";
import type { Job } from "../../core/job.js";
import { laneOf } from "../../core/order.js";
import type { ClaimAnswer, ClaimAsk, ClaimedJob, ClaimLane } from "../../engine/engine.js";
import { type QueueSettings, recordId } from "../../engine/record.js";
import type { Backend } from "./backend.js";
import { badArgument, type Refused } from "./refusal.js";
import { boundJob, settleJob, type WorkOutcome } from "./settling.js";

/** How long a look waits for a hint before it looks by itself. */
const pollMs = 1_000;

/** A type that a worker asks for. */
export interface WantedType {
  readonly type: string;
  readonly version: number;
  readonly queue?: string | undefined;
  readonly limit: number;
}

/** What a worker asks for. */
export interface WorkAsk {
  readonly service: string;
  readonly worker: string;
  readonly types: readonly WantedType[];
  readonly limit: number;
  readonly waitMs: number;
  readonly leaseMs?: number | undefined;
}

/** Claims jobs, and waits for some while there are none. What nobody is there to take is given back. */
export async function claimWork(
  backend: Backend,
  ask: WorkAsk,
  signal: AbortSignal,
): Promise<ClaimAnswer> {
  const { engine, clock } = backend;
  const endsAt = clock.monotonic() + ask.waitMs;
  let wake = () => {};
  let isWoken = false;
  const stopListening = engine.wake("ready", () => {
    isWoken = true;
    wake();
  });
  const onAbort = () => wake();
  signal.addEventListener("abort", onAbort);
  try {
    for (;;) {
      isWoken = false;
      const answer = await usableOnly(backend, await engine.claim(await claimAsk(backend, ask)));
      if (signal.aborted) return await giveBack(backend, answer);
      const left = endsAt - clock.monotonic();
      if (answer.jobs.length > 0 || left <= 0) return answer;
      const dueMs =
        answer.nextDueAt === null ? pollMs : Math.max(answer.nextDueAt - engine.now(), 0);
      if (isWoken) continue;
      await new Promise<void>((resolve) => {
        const callOff = clock.after(Math.min(left, dueMs, pollMs), resolve);
        wake = () => {
          callOff();
          resolve();
        };
      });
      if (signal.aborted) return { jobs: [], nextDueAt: null };
    }
  } finally {
    signal.removeEventListener("abort", onAbort);
    stopListening();
  }
}

async function claimAsk(backend: Backend, ask: WorkAsk): Promise<ClaimAsk> {
  const lanes = await Promise.all(ask.types.map((wanted) => claimLane(backend, ask, wanted)));
  const names = lanes.map(({ lane }) => lane);
  const repeated = lanes.find(({ lane }, index) => names.indexOf(lane) !== index);
  if (repeated !== undefined) throw typeRepeated(repeated);
  return { worker: ask.worker, lanes, limit: ask.limit };
}

/** One lane asked twice could give one job twice. Only the contract tells which queue a type without one is in. */
function typeRepeated({ type, queue }: ClaimLane): Refused {
  const message = `The type ${type} in the queue ${queue} is named twice in one version; name it once, with the limit of both.`;
  return badArgument("type_repeated", message, "types");
}

async function claimLane(backend: Backend, ask: WorkAsk, wanted: WantedType): Promise<ClaimLane> {
  const { service, leaseMs } = ask;
  const { type, version: typeVersion, limit } = wanted;
  const bound = await boundJob(backend, { service, type, typeVersion });
  const settings = bound?.definition.settings ?? resolveSettings({ version: typeVersion });
  const queue = wanted.queue ?? bound?.queue ?? queueOf(type, { settings });
  const [record] = await backend.engine.records([recordId.queue(service, queue)]);
  const queueMaxActive =
    (record?.body as unknown as QueueSettings | undefined)?.maxActive ?? settings.queue.maxActive;
  return {
    ...{ lane: laneOf({ service, queue, type, typeVersion }), service, queue, type, free: limit },
    // A key's hold lapses with the lease, so that only its type may say how long that is.
    leaseMs: settings.keyConcurrency ? settings.leaseMs : (leaseMs ?? settings.leaseMs),
    ...(settings.maxActive === undefined ? null : { typeMaxActive: settings.maxActive }),
    ...(queueMaxActive === undefined ? null : { queueMaxActive }),
  };
}

/** What a worker may see: decrypted, and signed by a known key where signatures count. The rest has failed. */
async function usableOnly(backend: Backend, answer: ClaimAnswer): Promise<ClaimAnswer> {
  const { signing, vault } = backend;
  const needsNothing = signing === undefined && vault === undefined;
  if (needsNothing || answer.jobs.length === 0) return answer;
  const jobs = await Promise.all(answer.jobs.map((claimed) => usableClaim(backend, claimed)));
  return { ...answer, jobs: jobs.filter((claimed) => claimed !== null) };
}

/** A claim as its worker gets it, or none. A try whose failure cannot be stored lapses, and holds up no other job. */
async function usableClaim(backend: Backend, claimed: ClaimedJob): Promise<ClaimedJob | null> {
  const { id, token } = claimed.job;
  try {
    const usable = usableJob(backend, claimed.job);
    if (!("outcome" in usable)) return { ...claimed, job: usable };
    await settleJob(backend, { id, token, said: usable });
  } catch (error) {
    backend.logger.warn({ error, jobId: id }, "A job that no worker may see could not be settled.");
  }
  return null;
}

/** A job as its worker gets it, or how its try ends without one. */
function usableJob(backend: Backend, stored: Job): Job | WorkOutcome {
  const { signing, engine } = backend;
  const payload = openPart(backend, stored, "payload", stored.payload);
  if (payload instanceof DecryptionFailed) {
    const { message, code } = payload;
    // Another process may have the key; what was tampered with stays so.
    const outcome = code === "encryption_invalid" ? "terminated" : "failed";
    return { outcome, error: { message, code, reason: "encryption" } };
  }
  const job = { ...stored, payload };
  const problem = signing?.problem(job, engine.now()) ?? null;
  if (problem === null) return job;
  const { message, code } = problem;
  return { outcome: "terminated", error: { message, code, reason: "signature" } };
}

/** Gives jobs back whose caller went while they were claimed; no try is spent. */
async function giveBack(backend: Backend, { jobs }: ClaimAnswer): Promise<ClaimAnswer> {
  await Promise.all(jobs.map(({ job }: ClaimedJob) => release(backend, job)));
  return { jobs: [], nextDueAt: null };
}

async function release(backend: Backend, { id, token }: Job): Promise<void> {
  try {
    await settleJob(backend, { id, token, said: { outcome: "released" } });
  } catch (error) {
    backend.logger.warn(
      { error, jobId: id },
      "A job whose caller had gone could not be given back.",
    );
  }
}
