/**
 * When jobs became claimable and when their tries began, as far as the feed has told it. The feed may speak of any number
 * of jobs, so that only so many are timed at once; of the others everything is counted and nothing timed.
 */

/** How many jobs are timed at once. */
const timedMax = 100_000;

/** At least so many jobs are remembered that ended a moment ago, and at most twice as many. */
const endedMin = 5_000;

/** A job that waits or runs. */
export interface TimedJob {
  readonly isRunning: boolean;
  /** When it became claimable, or when its try began. Not known of a job that waits for others. */
  readonly since: number | null;
  readonly isKeyed: boolean;
}

/** The jobs that are timed. */
export class JobTimes {
  readonly #jobs = new Map<string, TimedJob>();
  /** The jobs that ended last, and those before them: to forget a whole set costs less than one job at a time. */
  #ended = new Set<string>();
  #endedBefore = new Set<string>();
  readonly #max: number;

  constructor(max = timedMax) {
    this.#max = max;
  }

  get(jobId: string): TimedJob | undefined {
    return this.#jobs.get(jobId);
  }

  /** Remembers where a job stands. Gives `false` where there is no room for one more. */
  set(jobId: string, job: TimedJob): boolean {
    if (this.#jobs.size >= this.#max && !this.#jobs.has(jobId)) return false;
    this.#jobs.set(jobId, job);
    return true;
  }

  /** The job has ended. */
  end(jobId: string): void {
    this.#jobs.delete(jobId);
    this.#ended.add(jobId);
    if (this.#ended.size < endedMin) return;
    this.#endedBefore = this.#ended;
    this.#ended = new Set();
  }

  /** The job is gone; gives whether its end was seen a moment ago. */
  forget(jobId: string): boolean {
    this.#jobs.delete(jobId);
    return this.#ended.has(jobId) || this.#endedBefore.has(jobId);
  }
}
