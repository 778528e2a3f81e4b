/**
 * What this process holds: the jobs that it claimed, as it knows them, each with the delivery to be acknowledged.
 */
import type { LoggedJob } from "./entry.js";
import type { Acknowledgeable } from "./port.js";

/**
 * How many jobs share one sheet, the record that their renewals are written into. One job takes up to 145 bytes there, and
 * one that was lost is remembered beside those that took its place, so that this is well within a message of 1 MB.
 */
const sheetJobsMax = 2_500;

/** A claimed job. */
export interface HeldJob {
  readonly delivery: Acknowledgeable;
  logged: LoggedJob;
}

/** The claimed jobs of a process, by token and job. */
export class Held {
  readonly #jobs = new Map<number, Map<string, HeldJob>>();
  /** How many jobs are on each sheet: those that are held, and those that are about to be. */
  readonly #sheets = new Map<string, number>();

  /**
   * The first sheet of a session that has room for one more job, which is on it from now on. It is named where the job is
   * started, so that whoever reads of the start knows where its renewals are.
   */
  enter(session: string): string {
    for (let number = 0; ; number++) {
      const sheet = number === 0 ? session : `${session}.${number}`;
      const count = this.#sheets.get(sheet) ?? 0;
      if (count >= sheetJobsMax) continue;
      this.#sheets.set(sheet, count + 1);
      return sheet;
    }
  }

  /** A job that was to be on a sheet is not, or no longer. */
  leave(sheet: string): void {
    const count = this.#sheets.get(sheet) ?? 0;
    if (count > 1) this.#sheets.set(sheet, count - 1);
    else this.#sheets.delete(sheet);
  }

  set(id: string, token: number, held: HeldJob): void {
    const jobs = this.#jobs.get(token);
    if (jobs) jobs.set(id, held);
    else this.#jobs.set(token, new Map([[id, held]]));
  }

  get(id: string, token: number | undefined): HeldJob | undefined {
    return token === undefined ? undefined : this.#jobs.get(token)?.get(id);
  }

  /** Lets go of a job; gives the delivery to be acknowledged. */
  take(id: string, token: number): Acknowledgeable | undefined {
    const jobs = this.#jobs.get(token);
    const held = jobs?.get(id);
    if (jobs === undefined || held === undefined) return undefined;
    jobs.delete(id);
    if (jobs.size === 0) this.#jobs.delete(token);
    const sheet = held.logged.starts.get(token)?.sheet;
    if (sheet !== undefined) this.leave(sheet);
    return held.delivery;
  }
}
