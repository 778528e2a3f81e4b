/**
 * Looking at a store: lists, counts, single jobs, keys, workers, queues and the feed.
 */
import { Result } from "better-result";
import type { JobEvent } from "../core/event.js";
import { type Job, jobStates } from "../core/job.js";
import type { Engine, FeedItem } from "../engine/engine.js";
import type { StoreError } from "../engine/errors.js";
import {
  type JobFilter,
  type JobRow,
  type KeyRow,
  type Page,
  pageMax,
  type QueueRow,
  type StateCount,
} from "../engine/query.js";
import { AsyncResult, attempt } from "./async-result.js";
import type { Client } from "./client.js";
import { timeMs } from "./create-options.js";
import { InvalidOption, type JobNotFound, jobNotFound } from "./errors.js";
import { JobRef } from "./job-ref.js";
import { keepAlive } from "./keep-alive.js";
import { type WorkerRow, workerRows } from "./presence.js";

/** Narrows a list. Without a `service` it is the caller's own; `"*"` stands for all of them. */
export interface ReadFilter extends Omit<JobFilter, "since" | "until"> {
  readonly since?: Date | number;
  readonly until?: Date | number;
}

/** A page of a list: by offset, or after the cursor that the page before gave. */
export interface PageAsk {
  /** 10 by default, at most 100. */
  readonly limit?: number;
  readonly offset?: number;
}

/** Names a key: by its hash, or by a type and the readable key. */
export type KeyAsk = { readonly hash: string } | { readonly type: string; readonly key: string };

/** A job with all that is known of it, its worker's last heartbeat included. */
export interface JobDetails extends Job {
  readonly heartbeatAt?: number;
  readonly leaseUntil?: number;
}

/** The questions that a service can ask its store. */
export class Reads {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  /** Jobs, newest first. Rows hold no payloads; `job` does. */
  jobs(
    ask: ReadFilter & PageAsk & { readonly cursor?: string } = {},
  ): AsyncResult<Page<JobRow>, InvalidOption | StoreError> {
    const { limit, offset, cursor, ...filter } = ask;
    return this.#readUnless(pageProblem(ask) ?? filterProblem(filter), (engine) =>
      engine.query("jobs", { filter: this.#filter(filter), ...given({ limit, offset, cursor }) }),
    );
  }

  /** How many jobs there are, by type, queue and state. */
  counts(filter: ReadFilter = {}): AsyncResult<readonly StateCount[], InvalidOption | StoreError> {
    return this.#readUnless(filterProblem(filter), (engine) =>
      engine.query("counts", { filter: this.#filter(filter) }),
    );
  }

  /** One job, with its payload, its result and its worker's last heartbeat. */
  job(id: string): AsyncResult<JobDetails, JobNotFound | StoreError> {
    return attempt(async () => {
      const { engine } = this.#client.runtime;
      const [[loaded], row] = await Promise.all([engine.load([id]), engine.query("job", { id })]);
      if (!loaded) return Result.err(jobNotFound(id));
      const { heartbeatAt, leaseUntil } = row ?? {};
      return Result.ok({ ...loaded.job, ...given({ heartbeatAt, leaseUntil }) });
    });
  }

  /** The history of a job, oldest first. */
  events(id: string): AsyncResult<readonly JobEvent[], JobNotFound | StoreError> {
    return new JobRef(this.#client, id).events();
  }

  /** The keys under which jobs run or wait. */
  keys(
    ask: PageAsk & { readonly service?: string; readonly type?: string } = {},
  ): AsyncResult<Page<KeyRow>, InvalidOption | StoreError> {
    const { service, ...rest } = ask;
    return this.#readUnless(pageProblem(ask), (engine) =>
      engine.query("keys", { ...rest, ...this.#service(service) }),
    );
  }

  /** One key; `null` when no job runs or waits under it. */
  key(ask: KeyAsk): AsyncResult<KeyRow | null, StoreError> {
    return attempt(async () => Result.ok(await keyRow(this.#client, ask)));
  }

  /** The workers of the service, or of `"*"` all, with the age of their heartbeats. */
  workers(service?: string): AsyncResult<readonly WorkerRow[], StoreError> {
    return this.#read((engine) => workerRows(engine, this.#service(service).service));
  }

  /** The queues that hold jobs or have settings. */
  queues(service?: string): AsyncResult<readonly QueueRow[], StoreError> {
    return this.#read((engine) => engine.query("queues", this.#service(service)));
  }

  /**
   * Every event of the store after a cursor (from the beginning without one), then live, until the signal aborts.
   * No event is left out, and those of one job come in their order. Faults of the store are thrown.
   */
  async *tail(signal: AbortSignal, cursor: string | null = null): AsyncIterable<FeedItem> {
    const release = keepAlive();
    try {
      yield* this.#client.runtime.engine.tail(cursor, signal);
    } finally {
      release();
    }
  }

  /** The cursor of the newest event. */
  head(): AsyncResult<string, StoreError> {
    return this.#read((engine) => engine.head());
  }

  #read<Answer>(ask: (engine: Engine) => Promise<Answer>): AsyncResult<Answer, StoreError> {
    return attempt(async () => Result.ok(await ask(this.#client.runtime.engine)));
  }

  #readUnless<Answer>(
    problem: InvalidOption | null,
    ask: (engine: Engine) => Promise<Answer>,
  ): AsyncResult<Answer, InvalidOption | StoreError> {
    return problem === null
      ? this.#read(ask)
      : new AsyncResult(Promise.resolve(Result.err(problem)));
  }

  #service(service: string = this.#client.runtime.service): { readonly service?: string } {
    return service === "*" ? {} : { service };
  }

  #filter({ service, since, until, ...rest }: ReadFilter): JobFilter {
    const times = given({
      since: since === undefined ? undefined : timeMs(since),
      until: until === undefined ? undefined : timeMs(until),
    });
    return { ...rest, ...this.#service(service), ...times };
  }
}

/** Finds a key. The newest job under a readable key knows its hash. */
export async function keyRow({ runtime }: Client, ask: KeyAsk): Promise<KeyRow | null> {
  const { engine, service } = runtime;
  if ("hash" in ask) return engine.query("key", { hash: ask.hash });
  const filter = { service, type: ask.type, key: ask.key };
  const { entries } = await engine.query("jobs", { filter, limit: 1 });
  const hash = entries[0]?.keyHash;
  return hash === undefined ? null : engine.query("key", { hash });
}

function pageProblem({ limit, offset }: PageAsk): InvalidOption | null {
  if (limit !== undefined && !(Number.isInteger(limit) && limit >= 1 && limit <= pageMax)) {
    return new InvalidOption({
      field: "limit",
      message: `limit is ${limit}; ask for 1 to ${pageMax} entries.`,
    });
  }
  if (offset !== undefined && !(Number.isInteger(offset) && offset >= 0)) {
    return new InvalidOption({
      field: "offset",
      message: `offset is ${offset}; it must be 0 or more.`,
    });
  }
  return null;
}

function filterProblem({ state, since, until }: ReadFilter): InvalidOption | null {
  const unknown = state?.find((name) => !jobStates.includes(name));
  if (unknown !== undefined) {
    const message = `state: "${unknown}" is not a state; use some of ${jobStates.join(", ")}.`;
    return new InvalidOption({ field: "state", message });
  }
  for (const [field, time] of Object.entries({ since, until })) {
    if (time === undefined || Number.isFinite(timeMs(time))) continue;
    return new InvalidOption({
      field,
      message: `${field} must be a valid Date or milliseconds since 1970.`,
    });
  }
  return null;
}

/** Leaves out members that are `undefined`. */
function given<T extends object>(members: T): { [Name in keyof T]?: Exclude<T[Name], undefined> } {
  const entries = Object.entries(members).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as { [Name in keyof T]?: Exclude<T[Name], undefined> };
}
