/**
 * Where a busy worker goes on claiming. Rows that were claimed stay in the index until they are vacuumed, and a claim that
 * begins at the front steps over all of them. So while many jobs are claimed from a lane, most claims begin behind the last
 * one; the front, where a more urgent job may have come, is looked at again after a while that its look costs a tenth of.
 */

/** A place in the order of claims. */
export interface Mark {
  readonly rank: number;
  readonly runAt: number;
  readonly id: string;
}

/** Comes before every job. */
export const front: Mark = { rank: -(2 ** 31), runAt: 0, id: "" };

/** From so many jobs within a minute on a lane counts as busy. Below, every claim begins at the front. */
const busyJobs = 5_000;
const minuteMs = 60_000;

/** How much longer than its look the front is left alone, and for how long at least and at most. */
const restShare = 10;
const restMinMs = 5;
const restMaxMs = 250;

interface LaneMarks {
  mark: Mark | null;
  lookAt: number;
  jobs: number;
  countedFrom: number;
}

export class Marks {
  readonly #lanes = new Map<number, LaneMarks>();
  /** Lanes with caps that had jobs when they were last looked at. */
  readonly #lined = new Set<number>();

  /** The place behind which to look for the next jobs of a lane, or `null` for its front. */
  from(lane: number): Mark | null {
    const found = this.#lanes.get(lane);
    if (!found || found.jobs < busyJobs || performance.now() >= found.lookAt) return null;
    return found.mark;
  }

  /** The front of a lane was looked at, and it took so long. */
  looked(lane: number, tookMs: number): void {
    const found = this.#of(lane);
    const rest = Math.min(Math.max(tookMs * restShare, restMinMs), restMaxMs);
    found.lookAt = performance.now() + rest;
  }

  /** Jobs of a lane were found up to a place; `null` where there are no more behind it, and the next come anywhere. */
  found(lane: number, jobs: number, last: Mark | null): void {
    const found = this.#of(lane);
    const now = performance.now();
    if (now - found.countedFrom > minuteMs) {
      // What was claimed long ago has been vacuumed; half of it is remembered, so that a busy lane stays one.
      found.jobs = Math.floor(found.jobs / 2);
      found.countedFrom = now;
    }
    found.jobs += jobs;
    found.mark = last;
  }

  /** Whether a lane with caps had jobs, so that these are worth counting at once. */
  isLined(lane: number): boolean {
    return this.#lined.has(lane);
  }

  /** A lane with caps has jobs, or has none. */
  lined(lane: number, isLined: boolean): void {
    if (isLined) this.#lined.add(lane);
    else this.#lined.delete(lane);
  }

  #of(lane: number): LaneMarks {
    const known = this.#lanes.get(lane);
    if (known) return known;
    const fresh = { mark: null, lookAt: 0, jobs: 0, countedFrom: performance.now() };
    this.#lanes.set(lane, fresh);
    return fresh;
  }
}
