/**
 * Calling a hook: bounded in time, and whatever goes wrong is recorded in the job's history and nowhere else.
 */
import type { AnyHooks, Hook } from "../contract/hooks.js";
import { decide } from "../core/decide.js";
import type { Actor, HookName, Job } from "../core/job.js";
import { jobFields } from "../engine/logger.js";
import { jobError } from "./job-error.js";
import type { Runtime } from "./runtime.js";
import { DecryptionFailed, openJob } from "./vault.js";

/** How long a hook may take before it is recorded as failed and no longer waited for. */
const hookTimeoutMs = 60_000;

/** Calls a hook of a job, if there is one. Never rejects. */
export async function callHook(
  runtime: Runtime,
  actor: Actor,
  hooks: AnyHooks,
  name: HookName,
  job: Job,
): Promise<void> {
  // The contract's schemas gave what the job holds.
  const hook = hooks[name] as Hook<unknown, unknown> | undefined;
  if (hook === undefined) return;
  // Nobody is shown what a job holds that no known key has signed.
  if (job.error?.reason === "signature") return;
  try {
    const opened = openJob(runtime, job);
    if (opened instanceof DecryptionFailed) throw opened;
    await inTime(runtime, async () => hook(opened));
  } catch (thrown) {
    await report(runtime, actor, name, job, thrown);
  }
}

async function inTime({ clock }: Runtime, call: () => Promise<unknown>): Promise<void> {
  let callOff = () => {};
  const tooLong = new Promise<never>((_, reject) => {
    callOff = clock.after(hookTimeoutMs, () =>
      reject(new Error(`The hook took longer than ${hookTimeoutMs} ms.`)),
    );
  });
  try {
    await Promise.race([call(), tooLong]);
  } finally {
    callOff();
  }
}

/** Jobs keep no stack traces, so that the log is the place to find one. */
async function report(
  { engine, ids, logger }: Runtime,
  actor: Actor,
  hook: HookName,
  job: Job,
  thrown: unknown,
): Promise<void> {
  const fields = { ...jobFields(job), hook };
  logger.warn({ ...fields, error: thrown }, "A hook failed.");
  const error = jobError(thrown, "hook");
  const command = { command: "reportHook", eventId: ids.eventId(), actor, hook, error } as const;
  const decision = decide(job, command, engine.now());
  if (!decision.ok) return;
  try {
    await engine.note([decision.event]);
  } catch (fault) {
    logger.warn({ ...fields, error: fault }, "A failed hook could not be recorded.");
  }
}
