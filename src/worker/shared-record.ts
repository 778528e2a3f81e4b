/**
 * A record that many attempts of many processes change. Changes of one process that come while another is being stored go
 * together as the next, so that processes meet at the compare, and not their jobs.
 */
import { TaggedError } from "better-result";
import type { Json } from "../core/json.js";
import type { Engine } from "../engine/engine.js";

/** How often a change is compared before it gives way to others who keep changing the record. */
const comparesMax = 100;

/** Others kept changing a record, so that a change of it was not stored. */
export class RecordContended extends TaggedError("RecordContended")<{ readonly message: string }> {}

/** What the record becomes: its new body and the time at which it means nothing any more. */
export interface NextBody<Body> {
  readonly body: Body;
  readonly expiresAt: number;
}

interface Waiting<Body> {
  readonly apply: (body: Body) => void;
  readonly done: () => void;
  readonly failed: (error: unknown) => void;
}

export class SharedRecord<Body extends object> {
  readonly #engine: Engine;
  readonly #id: string;
  readonly #read: (body: Json | null) => Body;
  readonly #next: (body: Body) => NextBody<Body> | null;
  #waiting: Waiting<Body>[] = [];
  #isStoring = false;
  /** The record as it was last seen; a guess that the compare checks. */
  #seen: { readonly version: number; readonly body: Json | null } | undefined;

  /**
   * `read` makes a body that may be changed of what is stored, and `next` what is stored of it; `null` leaves the record
   * as it is.
   */
  constructor(
    engine: Engine,
    id: string,
    read: (body: Json | null) => Body,
    next: (body: Body) => NextBody<Body> | null,
  ) {
    this.#engine = engine;
    this.#id = id;
    this.#read = read;
    this.#next = next;
  }

  /**
   * Changes the record. `apply` changes the body that it is given, and may be called again with a newer one.
   * What it last gave counts, once it is stored.
   */
  change<Answer>(apply: (body: Body) => Answer): Promise<Answer> {
    return new Promise((resolve, reject) => {
      let answer: { readonly value: Answer } | undefined;
      this.#waiting.push({
        apply: (body) => {
          answer = { value: apply(body) };
        },
        done: () => resolve((answer as { readonly value: Answer }).value),
        failed: reject,
      });
      if (!this.#isStoring) void this.#storeAll();
    });
  }

  async #storeAll(): Promise<void> {
    this.#isStoring = true;
    while (this.#waiting.length > 0) {
      const batch = this.#waiting;
      this.#waiting = [];
      try {
        await this.#store(batch);
        for (const { done } of batch) done();
      } catch (error) {
        this.#seen = undefined;
        for (const { failed } of batch) failed(error);
      }
    }
    this.#isStoring = false;
  }

  async #store(batch: readonly Waiting<Body>[]): Promise<void> {
    for (let compares = 0; compares < comparesMax; compares++) {
      const isGuess = this.#seen !== undefined;
      this.#seen ??= await this.#load();
      const body = this.#read(this.#seen.body);
      for (const { apply } of batch) apply(body);
      const next = this.#next(body);
      if (next === null) {
        if (!isGuess) return;
        // No compare tells whether the guess was right, so that it is read.
        this.#seen = undefined;
        continue;
      }
      const stored = next.body as unknown as Json;
      const write = { id: this.#id, expect: this.#seen.version, body: stored };
      const [outcome] = await this.#engine.swap([{ ...write, expiresAt: next.expiresAt }]);
      if (outcome?.swapped) {
        this.#seen = { version: outcome.version, body: stored };
        return;
      }
      const current = outcome?.current ?? null;
      this.#seen = { version: current?.version ?? 0, body: current?.body ?? null };
    }
    const message = `Record ${this.#id} was changed by others ${comparesMax} times in a row.`;
    throw new RecordContended({ message });
  }

  async #load() {
    const [found] = await this.#engine.records([this.#id]);
    return { version: found?.version ?? 0, body: found?.body ?? null };
  }
}

/** The records of one kind by their ids, as many as were used last. */
export class SharedRecords<Body extends object> {
  readonly #byEngine = new WeakMap<Engine, Map<string, SharedRecord<Body>>>();
  readonly #make: (engine: Engine, id: string) => SharedRecord<Body>;

  constructor(make: (engine: Engine, id: string) => SharedRecord<Body>) {
    this.#make = make;
  }

  /** The one through which this process changes a record. */
  of(engine: Engine, id: string): SharedRecord<Body> {
    let records = this.#byEngine.get(engine);
    if (records === undefined) {
      records = new Map();
      this.#byEngine.set(engine, records);
    }
    const found = records.get(id) ?? this.#make(engine, id);
    records.delete(id);
    records.set(id, found);
    const oldest = records.keys().next();
    if (records.size > keptMax && !oldest.done) records.delete(oldest.value);
    return found;
  }
}

/** How many records a process remembers; one that is forgotten is read again. */
const keptMax = 1_000;
