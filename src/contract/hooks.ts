/**
 * Hooks: functions of the user's that are called around the jobs of a type. They stand in the definition, because
 * every process that tends a service must know them, whether or not it handles the type.
 */
import type { HookName, Job } from "../core/job.js";
import type { Json } from "../core/json.js";

/** The job that a hook is called for: as it was started, or as it had ended. */
export interface HookJob<Payload = Json, Value = Json | undefined>
  extends Omit<Job, "payload" | "result"> {
  readonly payload: Payload;
  /** What its handler returned, once it has completed. */
  readonly result?: Value;
}

/** A hook. What it throws is recorded in the job's history and changes nothing else. */
export type Hook<Payload, Value> = (job: HookJob<Payload, Value>) => unknown;

/** The hooks of a job type. */
export interface JobHooks<Payload = Json, Value = Json | undefined> {
  /** Called by the worker before each try, which waits for it. */
  readonly onStart?: Hook<Payload, Value>;
  /** Called once the job has completed. */
  readonly onSuccess?: Hook<Payload, Value>;
  /** Called once the job has failed for good: `failed`, `dead` or `stale`. */
  readonly onFail?: Hook<Payload, Value>;
  /** Called at least once for every end of every run, whoever has written it and whoever crashed meanwhile. */
  readonly onEnd?: Hook<Payload, Value>;
}

/** Hooks whatever they take. */
export type AnyHooks = JobHooks<never, never>;

/** The names of all hooks. */
export const hookNames = [
  "onStart",
  "onSuccess",
  "onFail",
  "onEnd",
] as const satisfies readonly HookName[];

/** The hook that an outcome calls besides `onEnd`; `null` for an end that is neither a success nor a failure. */
export function outcomeHook({ state }: Pick<Job, "state">): "onSuccess" | "onFail" | null {
  if (state === "completed") return "onSuccess";
  return state === "failed" || state === "dead" || state === "stale" ? "onFail" : null;
}

/** Whether something is called when a job of these hooks ends. */
export function hasEndHooks(hooks: AnyHooks | undefined): hooks is AnyHooks {
  return hooks !== undefined && !!(hooks.onSuccess ?? hooks.onFail ?? hooks.onEnd);
}
