/**
 * What this process holds: the jobs that it claimed, as it knows them, each with the delivery to be acknowledged.
 */
import type { LoggedJob } from "./entry.js";
import type { Acknowledgeable } from "./port.js";

/** A claimed job. */
export interface HeldJob {
  readonly delivery: Acknowledgeable;
  logged: LoggedJob;
}

/** The claimed jobs of a process, by job and token. */
export class Held {
  readonly #jobs = new Map<string, HeldJob>();

  set(id: string, token: number, held: HeldJob): void {
    this.#jobs.set(nameOf(id, token), held);
  }

  get(id: string, token: number | undefined): HeldJob | undefined {
    return token === undefined ? undefined : this.#jobs.get(nameOf(id, token));
  }

  /** Lets go of a job; gives the delivery to be acknowledged. */
  take(id: string, token: number): Acknowledgeable | undefined {
    const held = this.get(id, token);
    this.#jobs.delete(nameOf(id, token));
    return held?.delivery;
  }
}

function nameOf(id: string, token: number): string {
  return `${token}/${id}`;
}
