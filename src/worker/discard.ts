/**
 * Discards ended jobs of types that keep nothing of their state, right after they were settled.
 */
import { isLogRead } from "../client/log-readers.js";
import type { Runtime } from "../client/runtime.js";
import { hasEndHooks } from "../contract/hooks.js";
import { decide } from "../core/decide.js";
import type { JobEvent } from "../core/event.js";
import { evolve } from "../core/evolve.js";
import { isEnded, type Job } from "../core/job.js";
import type { Change } from "../engine/engine.js";
import type { Hold } from "./hold.js";

/** The removal of a job. */
export interface Removal {
  readonly change: Change;
  /** The ids under which others may wait for the job: its own, and that of its chain. */
  readonly awaitedAs: readonly string[];
}

/** The removal of a job which the event has ended, if its type does not keep it at all. */
export function removalOf(
  { hold, job }: { readonly hold: Hold; readonly job: Job },
  event: JobEvent,
  { ids, instance, engine }: Runtime,
): Removal | undefined {
  if (!isEnded(event.state) || hold.lane.settings.retention[event.state] !== 0) return undefined;
  // The keeper calls the hooks of its end, and removes it afterwards.
  if (hasEndHooks(hold.lane.bound.definition.hooks)) return undefined;
  const ended = evolve(job, event).job;
  const origin = { eventId: ids.eventId(), actor: `worker:${instance}` } as const;
  const command = { command: "delete", reason: "retention", ...origin } as const;
  const decision = decide(ended, command, engine.now());
  if (!decision.ok) return undefined;
  const change = { job: hold.key, expect: { version: event.version }, event: decision.event };
  const { id, chainId } = job;
  return { change, awaitedAs: chainId === undefined ? [id] : [id, chainId] };
}

/**
 * Removes jobs. Whatever this leaves behind, the keeper removes: what webhooks have yet to read, and, together with all that
 * ended at the same moment, what unfinished jobs wait for, because their handlers are given its results.
 */
export async function discard(removals: readonly Removal[], runtime: Runtime): Promise<void> {
  const { engine } = runtime;
  try {
    if (await isLogRead(runtime)) return;
    const ids = removals.flatMap(({ awaitedAs }) => awaitedAs);
    if ((await engine.query("dependents", { ids })).length > 0) return;
    await engine.append(removals.map(({ change }) => change));
  } catch (error) {
    const fields = { error, jobs: removals.length };
    runtime.logger.warn(fields, "Ended jobs could not be discarded; the keeper will do it.");
  }
}
