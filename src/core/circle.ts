/**
 * Looks for a circle of blockers: whether a job that joins a chain would wait for that very chain, through whatever its
 * blockers wait for in turn. Stores tell what waits for what; the walk knows where it has been and when it has seen enough.
 */
import type { Blocker } from "./job.js";

/** How many jobs and chains are looked at for a circle. */
export const circleWalkMax = 10_000;

/** A job or a chain that is waited for. */
export interface Blocking {
  readonly jobId: string;
  readonly chain?: boolean;
}

/** One that the walk has reached, and the blocker of the new job through which it has. */
export interface Reached extends Blocking {
  readonly via: string;
}

/** Why the new job may not wait for one of its blockers: it closes a circle, or too many stand behind it to tell. */
export interface CircleRefusal {
  readonly reason: "cycle" | "too_many";
  readonly blockerId: string;
}

/** The walk from the blockers of a new job to what they wait for. Ask for the next, and tell what those wait for. */
export class CircleWalk {
  readonly #chainId: string;
  readonly #seen = new Set<string>();
  readonly #jobs: Reached[] = [];
  readonly #chains: Reached[] = [];
  #refusal: CircleRefusal | null = null;

  constructor(chainId: string, blockers: readonly Blocker[]) {
    this.#chainId = chainId;
    for (const blocker of blockers) this.reach(blocker, blocker.jobId);
  }

  /** What was found so far; `null` where nothing keeps the job from waiting. */
  get refusal(): CircleRefusal | null {
    return this.#refusal;
  }

  /** Something that is waited for through a blocker of the new job waits for this. */
  reach({ jobId, chain = false }: Blocking, via: string): void {
    if (this.#refusal !== null) return;
    if (chain && jobId === this.#chainId) {
      this.#refusal = { reason: "cycle", blockerId: via };
      return;
    }
    const name = `${chain}/${jobId}`;
    if (this.#seen.has(name)) return;
    if (this.#seen.size === circleWalkMax) {
      this.#refusal = { reason: "too_many", blockerId: via };
      return;
    }
    this.#seen.add(name);
    (chain ? this.#chains : this.#jobs).push({ jobId, chain, via });
  }

  /** What to look behind next, at most so many, all of them jobs or all of them chains. None when the walk is over. */
  next(limit: number): readonly Reached[] {
    if (this.#refusal !== null) return [];
    return (this.#jobs.length > 0 ? this.#jobs : this.#chains).splice(0, limit);
  }
}
