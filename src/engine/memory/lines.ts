/**
 * Lines: jobs kept in order, so that a claim takes from the front without sorting.
 */
import type { Job } from "../../core/job.js";
import { compareOrder } from "../../core/order.js";

/** Something that holds a job and can stand in a line. */
interface Holder {
  readonly job: Job;
}

type Compare = (a: Job, b: Job) => number;

const byOrder: Compare = compareOrder;
const byRunTime: Compare = (a, b) => a.runAt - b.runAt || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);

/** Jobs in a total order. A job must leave before its place in the order changes. */
class Line<Entry extends Holder> {
  readonly entries: Entry[] = [];
  readonly #compare: Compare;

  constructor(compare: Compare) {
    this.#compare = compare;
  }

  insert(entry: Entry): void {
    this.entries.splice(this.placeOf(entry), 0, entry);
  }

  remove(entry: Entry): void {
    const place = this.placeOf(entry);
    if (this.entries[place] !== entry) throw new Error(`Job ${entry.job.id} is not in its line.`);
    this.entries.splice(place, 1);
  }

  /** How many jobs come before this one. */
  placeOf(entry: Entry): number {
    let low = 0;
    let high = this.entries.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const other = this.entries[middle];
      if (other !== undefined && this.#compare(other.job, entry.job) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** The lines of one lane: what may be claimed, and what waits for its time. */
export class LaneLines<Entry extends Holder> {
  readonly ready = new Line<Entry>(byOrder);
  readonly delayed = new Line<Entry>(byRunTime);
}
