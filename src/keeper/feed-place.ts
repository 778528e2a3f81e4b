/**
 * A place in the feed that is kept in a record: everything before it is done with. Items may be done with in any order;
 * the place moves on to the first that is not.
 */
import type { Runtime } from "../client/runtime.js";
import { recordId } from "../engine/record.js";

interface Taken {
  readonly cursor: string;
  readonly at: number;
  isDone: boolean;
}

/** How far a reader of the feed has come. */
export class FeedPlace {
  readonly #runtime: Runtime;
  readonly #id: string;
  #version = 0;
  #cursor: string | null = null;
  #stored: string | null = null;
  #taken: Taken[] = [];
  #storing: Promise<boolean> = Promise.resolve(true);
  /** The time of the newest event that was taken. */
  toldAt = Number.NEGATIVE_INFINITY;

  constructor(runtime: Runtime, name: string) {
    this.#runtime = runtime;
    this.#id = recordId.cursor(runtime.service, name);
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
    const body = { cursor: await engine.head() };
    // Who was faster has put it at about the same place.
    await engine.swap([{ id: this.#id, expect: 0, body }]);
  }

  /** Reads where to go on. */
  async read(): Promise<string | null> {
    await this.establish();
    const [found] = await this.#runtime.engine.records([this.#id]);
    const { cursor = null } = (found?.body ?? {}) as { readonly cursor?: string };
    this.#version = found?.version ?? 0;
    this.#cursor = cursor;
    this.#stored = cursor;
    this.#taken = [];
    return cursor;
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

  /** Stores the place, if it has moved. Gives whether it is still this reader's to move. */
  store(): Promise<boolean> {
    this.#storing = this.#storing.then(() => this.#store());
    return this.#storing;
  }

  async #store(): Promise<boolean> {
    const { engine, logger } = this.#runtime;
    const cursor = this.#cursor;
    if (cursor === null || cursor === this.#stored || this.#version === 0) return true;
    try {
      const write = { id: this.#id, expect: this.#version, body: { cursor } };
      const [outcome] = await engine.swap([write]);
      if (outcome?.swapped) {
        this.#version = outcome.version;
        this.#stored = cursor;
        return true;
      }
      const current = outcome?.current?.body as { readonly cursor?: string } | undefined;
      if (current?.cursor !== cursor) return false;
      // A write of ours was stored although its answer never came.
      this.#version = outcome?.current?.version ?? 0;
      this.#stored = cursor;
      return true;
    } catch (error) {
      logger.warn({ error, place: this.#id }, "A place in the feed could not be stored.");
      return true;
    }
  }
}
