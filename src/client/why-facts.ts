/**
 * The facts around a job that say why it is not running: its queue, its key, its limits and its workers.
 */
import { isEnded, type Job } from "../core/job.js";
import type { OpenBlocker, WhyFacts } from "../core/why.js";
import { type QueueSettings, recordId } from "../engine/record.js";
import type { Client } from "./client.js";
import { workerRows } from "./presence.js";

/** Reads what `why` needs to know of a job. An ended or running job needs nothing but itself. */
export async function whyFacts(client: Client, job: Job): Promise<WhyFacts> {
  const { engine } = client.runtime;
  const now = engine.now();
  if (job.state === "blocked") return { now, openBlockers: await openBlockers(client, job) };
  if (job.state !== "pending" && job.state !== "retry") return { now };
  if (job.runAt > now) return { now };
  const [record] = await engine.records([recordId.queue(job.service, job.queue)]);
  const queue = record?.body as unknown as QueueSettings | undefined;
  const [key, workers, ahead, limits] = await Promise.all([
    job.key === undefined ? null : engine.query("key", { hash: job.key.hash }),
    workerRows(engine, job.service),
    engine.query("ahead", { id: job.id }),
    limitFacts(client, job, queue),
  ]);
  const keyHeld = key?.active.filter((holder) => holder.jobId !== job.id).length ?? 0;
  return {
    now,
    ahead,
    workers: workers.filter((worker) => worker.fresh && handles(worker.types, job)).length,
    ...(queue ? { queuePaused: queue.paused } : null),
    ...(key && {
      keyLimit: { active: keyHeld, maxActive: key.maxActive },
      keyBlocked: key.blocked,
    }),
    ...limits,
  };
}

async function openBlockers({ runtime }: Client, { id }: Job): Promise<readonly OpenBlocker[]> {
  const [rows = []] = await runtime.engine.query("blockers", { ids: [id] });
  return rows
    .filter(({ state }) => !isEnded(state))
    .map((row) => ({ id: row.id, isChain: row.isChain, state: row.state }));
}

/** The cluster-wide limits of the job's type and queue, where the contract or an operator names any. */
async function limitFacts(
  client: Client,
  job: Job,
  queue: QueueSettings | undefined,
): Promise<Pick<WhyFacts, "typeLimit" | "queueLimit">> {
  const { engine } = client.runtime;
  const settings = client.boundJob(job.type, job.typeVersion)?.definition.settings;
  const typeMax = settings?.maxActive;
  const queueMax = queue?.maxActive ?? settings?.queue.maxActive;
  if (typeMax === undefined && queueMax === undefined) return {};
  const { service, type, queue: name } = job;
  const held = await engine.query("held", { service, type, queue: name });
  return {
    ...(typeMax === undefined ? null : { typeLimit: { active: held.type, maxActive: typeMax } }),
    ...(queueMax === undefined
      ? null
      : { queueLimit: { active: held.queue, maxActive: queueMax } }),
  };
}

function handles(
  types: readonly { readonly type: string; readonly version: number }[],
  job: Pick<Job, "type" | "typeVersion">,
): boolean {
  return types.some(({ type, version }) => type === job.type && version === job.typeVersion);
}
