/**
 * Which queues are paused, by their records. Whoever pauses a queue tells everybody that anything may have changed, so that
 * what was read is believed for a moment: a job that comes to an idle worker is started without asking.
 */
import type { ClaimLane } from "../engine.js";
import { type QueueSettings, recordId } from "../record.js";
import type { Where } from "./news.js";
import type { Records } from "./records.js";

/** For how long a queue is believed not to be paused. A hint may be lost, and so it is read again after that. */
const trustMs = 1_000;

/** The pauses that a process knows of. */
export class Pauses {
  readonly #records: Records;
  readonly #now: () => number;
  /** The queues that were paused when they were last looked at. */
  readonly #paused = new Set<string>();
  /** When others were last asked for and found open. */
  readonly #openAt = new Map<string, number>();
  /** How often hints have told that anything may have changed. */
  #told = 0;

  constructor(records: Records, now: () => number) {
    this.#records = records;
    this.#now = now;
  }

  /** A hint came. */
  add(where: Where): void {
    if (where !== null) return;
    this.#told += 1;
    this.#openAt.clear();
  }

  /** Reads which queues of some lanes are paused. */
  async read(lanes: readonly ClaimLane[]): Promise<ReadonlySet<string>> {
    const [told, askedAt] = [this.#told, this.#now()];
    const paused = new Set<string>();
    const look = async (id: string) => {
      const settings = (await this.#records.get(id)).record?.body as unknown;
      const isPaused = (settings as QueueSettings | undefined)?.paused === true;
      if (isPaused) paused.add(id);
      this.#note(id, isPaused, this.#told === told ? askedAt : null);
    };
    await Promise.all([...new Set(lanes.map(queueOf))].map(look));
    return paused;
  }

  /** Remembers a queue as it was found. Without a time, that may have changed meanwhile. */
  #note(id: string, isPaused: boolean, at: number | null): void {
    if (isPaused) this.#paused.add(id);
    else this.#paused.delete(id);
    if (isPaused || at === null) this.#openAt.delete(id);
    else this.#openAt.set(id, at);
  }

  /** Whether a queue of some lanes was paused when it was last looked at: it is asked about before anything is taken from it. */
  wasAny(lanes: readonly ClaimLane[]): boolean {
    return this.#paused.size > 0 && lanes.some((lane) => this.#paused.has(queueOf(lane)));
  }

  /** Whether the queues of some lanes were open a moment ago, and no hint has come since that may be about them. */
  areOpen(lanes: readonly ClaimLane[]): boolean {
    const now = this.#now();
    return lanes.every((lane) => {
      const at = this.#openAt.get(queueOf(lane));
      // A clock that has gone back must not make it believed for longer.
      return at !== undefined && at <= now && now < at + trustMs;
    });
  }
}

/** The record of a lane's queue. */
export function queueOf({ service, queue }: ClaimLane): string {
  return recordId.queue(service, queue);
}
