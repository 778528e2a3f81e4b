/**
 * A place in the feed that is kept in a record: everything before it is done with. Items may be done with in any order;
 * the place moves on to the first that is not. Beside it stands up to when jobs may be removed, for keepers that only know
 * the record.
 */
import type { Runtime } from "../client/runtime.js";
import type { Json } from "../core/json.js";
import { recordId } from "../engine/record.js";

/** How long a place is kept that nobody moves: whoever reads from it has been gone for good. */
const keptMs = 7 * 24 * 60 * 60 * 1_000;

/** How often a place is stored that has not moved, so that the time beside it goes on. */
const restMaxMs = 30_000;

interface Taken {
  readonly cursor: string;
  readonly at: number;
  isDone: boolean;
}

/** What is stored. */
interface StoredPlace {
  readonly cursor: string;
  /** The types whose jobs the reader needs, and the time up to which it has done with those that have ended. */
  readonly types: readonly string[];
  readonly doneUntil: number;
}

/** How far a reader of the feed has come. */
export class FeedPlace {
  readonly #runtime: Runtime;
  readonly #id: string;
  readonly #types: readonly string[];
  #version = 0;
  #cursor: string | null = null;
  #stored: StoredPlace | null = null;
  #taken: Taken[] = [];
  #storing: Promise<boolean> = Promise.resolve(true);
  /** The time of the newest event that was taken. */
  toldAt = Number.NEGATIVE_INFINITY;

  constructor(runtime: Runtime, types: readonly string[]) {
    this.#runtime = runtime;
    this.#id = hooksPlace(runtime.service);
    this.#types = types;
  }

  /** The time of the oldest event that is not done with; infinite where there is none. */
  get oldestOpenAt(): number {
    let oldest = Number.POSITIVE_INFINITY;
    for (const { at, isDone } of this.#taken) if (!isDone && at < oldest) oldest = at;
    return oldest;
  }

  /** Puts the place at the end of the feed, unless there is one already. */
  async establish(): Promise<void> {
    const { engine } = this.#runtime;
    const [found] = await engine.records([this.#id]);
    if (found) return;
    const cursor = await engine.head();
    // Who was faster has put it at about the same place.
    await engine.swap([this.#write(0, { cursor, types: this.#types, doneUntil: 0 })]);
  }

  /** Reads where to go on. */
  async read(): Promise<string | null> {
    await this.establish();
    const [found] = await this.#runtime.engine.records([this.#id]);
    const stored = (found?.body ?? null) as StoredPlace | null;
    this.#version = found?.version ?? 0;
    this.#cursor = stored?.cursor ?? null;
    this.#stored = stored;
    this.#taken = [];
    return this.#cursor;
  }

  /** Takes the next item. What it gives is to be called when the item is done with. */
  take(cursor: string, at: number): () => void {
    const taken: Taken = { cursor, at, isDone: false };
    this.#taken.push(taken);
    this.toldAt = Math.max(this.toldAt, at);
    return () => {
      taken.isDone = true;
      let done = 0;
      while (this.#taken[done]?.isDone) done += 1;
      if (done === 0) return;
      this.#cursor = this.#taken[done - 1]?.cursor ?? this.#cursor;
      this.#taken = this.#taken.slice(done);
    };
  }

  /** Stores the place, if it has moved or rested for so long. Gives whether it is still this reader's to move. */
  store(doneUntil: number, restMs = restMaxMs): Promise<boolean> {
    this.#storing = this.#storing.then(() => this.#store(doneUntil, restMs));
    return this.#storing;
  }

  async #store(doneUntil: number, restMs: number): Promise<boolean> {
    const { engine, logger } = this.#runtime;
    const cursor = this.#cursor;
    if (cursor === null || this.#version === 0) return true;
    const hasRested = doneUntil >= (this.#stored?.doneUntil ?? 0) + restMs;
    if (cursor === this.#stored?.cursor && !hasRested) return true;
    // Time that is not known yet leaves what was known before.
    const until = Math.max(doneUntil, this.#stored?.doneUntil ?? 0);
    const next = { cursor, types: this.#types, doneUntil: until };
    try {
      const [outcome] = await engine.swap([this.#write(this.#version, next)]);
      const current = outcome?.swapped === false ? outcome.current : null;
      const stored = current?.body as StoredPlace | undefined;
      // A write of ours may have been stored although its answer never came.
      if (!outcome?.swapped && stored?.cursor !== cursor) return false;
      this.#version = outcome?.swapped ? outcome.version : (current?.version ?? 0);
      this.#stored = next;
    } catch (error) {
      logger.warn({ error, place: this.#id }, "A place in the feed could not be stored.");
    }
    return true;
  }

  #write(expect: number, place: StoredPlace) {
    const expiresAt = this.#runtime.engine.now() + keptMs;
    return { id: this.#id, expect, body: place as unknown as Json, expiresAt };
  }
}

/** Gives the time up to which jobs of a type that have ended are not needed for hooks, whoever calls those. */
export async function hooksDone({ engine, service }: Runtime): Promise<(type: string) => number> {
  const [found] = await engine.records([hooksPlace(service)]);
  const { types = [], doneUntil = 0 } = (found?.body ?? {}) as Partial<StoredPlace>;
  const hooked = new Set(types);
  return (type) => (hooked.has(type) ? doneUntil : Number.POSITIVE_INFINITY);
}

function hooksPlace(service: string): string {
  return recordId.cursor(service, "hooks");
}
