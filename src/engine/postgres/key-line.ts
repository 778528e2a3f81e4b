/**
 * A key while creates are decided: what it held when it was looked at under its lock, and what those before have added.
 * The rules are core's; this only counts, so that a job that comes next meets what it would have found stored.
 */
import { type Admission, admit, mayTakeSlot } from "../../core/admission.js";
import type { JobKeyPolicy } from "../../core/job.js";

/** A job that waits for a slot of its key, with its place in the order of claims. */
export interface Standing {
  /** Its number in the store; a job that is being created has none yet. */
  readonly n: number | null;
  readonly id: string;
  readonly rank: number;
  readonly runAt: number;
  readonly keyMax: number;
}

/** What is stored of a key. */
export interface StoredLine {
  /** How many slots are taken. */
  readonly taken: number;
  /** How many jobs wait, counted at least as far as any create may have to know. */
  readonly waiting: number;
  /** The first of those that wait for a slot, in order. */
  readonly first: readonly Standing[];
  /** Whether no others stand behind these. */
  readonly isWhole: boolean;
}

/** The jobs of a key that a create which finds it full may be told of. */
export interface FullKey {
  readonly oldestQueued: string | null;
  readonly running: string | null;
}

export class KeyLine {
  #taken: number;
  #waiting: number;
  /** Those that wait for a slot. Behind one that has to wait nobody is looked for, so that who comes later is left out. */
  readonly #line: Standing[];
  /** How many of the stored ones may be let in before one would come that is not known. */
  #known: number;
  #oldestQueued: string | null;
  readonly #running: string | null;
  /** The numbers of stored jobs that are let in. */
  readonly promoted: number[] = [];

  constructor({ taken, waiting, first, isWhole }: StoredLine, full: FullKey | undefined) {
    this.#taken = taken;
    this.#waiting = waiting;
    this.#line = [...first];
    this.#known = isWhole ? Number.POSITIVE_INFINITY : first.length;
    this.#oldestQueued = full?.oldestQueued ?? null;
    this.#running = full?.running ?? null;
  }

  /** Whether all that was decided here was decided on what is known. */
  get isKnown(): boolean {
    return this.#known > 0;
  }

  /** Asks core whether the key has room, with counts that go as far as those of a single create. */
  admit(policy: JobKeyPolicy): Admission {
    const limit = policy.maxActive + policy.maxQueued;
    const active = Math.min(this.#taken, limit);
    return admit(policy, {
      occupied: active + Math.min(this.#waiting, limit),
      active,
      ...(this.#oldestQueued !== null && { oldestQueued: this.#oldestQueued }),
      ...(this.#running !== null && { running: this.#running }),
    });
  }

  /** A job that was let in and waits for its time. */
  addLater(id: string): void {
    this.#oldestQueued ??= id;
    this.#waiting += 1;
  }

  /** A job that was let in and may run. Gives whether it has a slot; others that stood before it may get one, too. */
  add(job: Standing): boolean {
    this.addLater(job.id);
    const [first] = this.#line;
    if (first && !this.#hasSlotFor(first) && compare(first, job) < 0) return false;
    const behind = this.#line.findIndex((other) => compare(job, other) < 0);
    this.#line.splice(behind < 0 ? this.#line.length : behind, 0, job);
    return this.#letIn().includes(job);
  }

  /** Lets the first in line in while slots are free. */
  #letIn(): readonly Standing[] {
    const free = this.#line.findIndex((job, before) => !this.#hasSlotFor(job, before));
    const letIn = this.#line.splice(0, free < 0 ? this.#line.length : free);
    this.#taken += letIn.length;
    this.#waiting -= letIn.length;
    for (const { n } of letIn) {
      if (n === null) continue;
      this.promoted.push(n);
      this.#known -= 1;
    }
    return letIn;
  }

  #hasSlotFor({ keyMax }: Standing, before = 0): boolean {
    return mayTakeSlot(keyMax, this.#taken + before);
  }
}

/** The order of claims. */
export function compare(a: Standing, b: Standing): number {
  return a.rank - b.rank || a.runAt - b.runAt || (a.id < b.id ? -1 : 1);
}
