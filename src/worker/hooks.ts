/**
 * The hooks that a worker calls around the tries of its jobs: `onStart` before the handler, `onSuccess` and `onFail`
 * once the outcome is stored. `onEnd` is the keeper's, which learns of every end.
 */
import { callHook } from "../client/hooks.js";
import type { Runtime } from "../client/runtime.js";
import { outcomeHook } from "../contract/hooks.js";
import type { JobEvent } from "../core/event.js";
import { evolve } from "../core/evolve.js";
import { isEnded, type Job } from "../core/job.js";
import type { Hold } from "./hold.js";

export class WorkerHooks {
  readonly #runtime: Runtime;
  readonly #underWay = new Set<Promise<void>>();

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  /** Calls `onStart`; the handler waits for it. */
  start({ job, lane }: Hold): Promise<void> | undefined {
    const { hooks } = lane.bound.definition;
    if (hooks?.onStart === undefined) return undefined;
    return callHook(this.#runtime, this.#actor, hooks, "onStart", job);
  }

  /** An outcome of the worker's is stored: calls what goes with it. Nobody waits but `idle`. */
  stored({ lane }: Hold, job: Job, event: JobEvent): void {
    const { hooks } = lane.bound.definition;
    if (hooks === undefined || !isEnded(event.state)) return;
    const name = outcomeHook(event);
    const ended = evolve(job, event).job;
    if (name === null || hooks[name] === undefined || ended === null) return;
    const call = callHook(this.#runtime, this.#actor, hooks, name, ended);
    this.#underWay.add(call);
    void call.finally(() => this.#underWay.delete(call));
  }

  /** Waits for the hooks that are under way. */
  async idle(): Promise<void> {
    await Promise.all(this.#underWay);
  }

  get #actor() {
    return `worker:${this.#runtime.instance}` as const;
  }
}
