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
import { type AsyncResult, attempt, refusal } from "./async-result.js";
import {
  type AuditAsk,
  type AuditPage,
  auditActions,
  auditCursorPattern,
  auditPage,
} from "./audit.js";
import type { Client } from "./client.js";
import { InvalidOption, type JobNotFound, jobNotFound } from "./errors.js";
import { JobRef } from "./job-ref.js";
import { keepAlive } from "./keep-alive.js";
import {
  cursorProblem,
  feedCursorProblem,
  type OptionCheck,
  type OptionChecks,
  optionProblem,
  optionsProblem,
  signalProblem,
  stringProblem,
  timeMs,
  timeProblem,
  whole,
} from "./option-checks.js";
import { type WorkerRow, workerRows } from "./presence.js";
import { openedJob } from "./vault.js";

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

/** What narrows a list, each with its check. */
export const filterChecks: { readonly [Name in keyof ReadFilter]-?: OptionCheck } = {
  service: stringProblem,
  type: stringProblem,
  queue: stringProblem,
  state: statesProblem,
  tag: stringProblem,
  key: stringProblem,
  since: timeProblem,
  until: timeProblem,
  text: stringProblem,
  parentId: stringProblem,
  chainId: stringProblem,
};
/** What names a page, each with its check. */
export const pageChecks = { limit: whole(1, pageMax), offset: whole(0, Number.MAX_SAFE_INTEGER) };
const listChecks = { ...filterChecks, ...pageChecks, cursor: cursorProblem };
const auditChecks: { readonly [Name in keyof AuditAsk]-?: OptionCheck } = {
  service: stringProblem,
  action: actionProblem,
  actor: stringProblem,
  target: stringProblem,
  since: timeProblem,
  until: timeProblem,
  limit: pageChecks.limit,
  cursor: auditCursorProblem,
};
const keysChecks = { ...pageChecks, service: stringProblem, type: stringProblem };
const keyChecks = { hash: stringProblem, type: stringProblem, key: stringProblem };

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
    return this.#readUnless(listProblem(ask), (engine) => {
      const { limit, offset, cursor, ...filter } = ask;
      const page = given({ limit, offset, cursor });
      return engine.query("jobs", { filter: this.#filter(filter), ...page });
    });
  }

  /** How many jobs there are, by type, queue and state. */
  counts(filter: ReadFilter = {}): AsyncResult<readonly StateCount[], InvalidOption | StoreError> {
    return this.#readUnless(optionsProblem("a count", filter, filterChecks), (engine) =>
      engine.query("counts", { filter: this.#filter(filter) }),
    );
  }

  /** One job, with its payload, its result and its worker's last heartbeat. */
  job(id: string): AsyncResult<JobDetails, JobNotFound | InvalidOption | StoreError> {
    const problem = optionProblem("id", id, stringProblem);
    if (problem !== null) return refusal(problem);
    return attempt<JobDetails, JobNotFound>(async () => {
      const { engine } = this.#client.runtime;
      const [[loaded], row] = await Promise.all([engine.load([id]), engine.query("job", { id })]);
      if (!loaded) return Result.err(jobNotFound(id));
      const { heartbeatAt, leaseUntil } = row ?? {};
      const job = openedJob(this.#client.runtime, loaded.job);
      return Result.ok({ ...job, ...given({ heartbeatAt, leaseUntil }) });
    });
  }

  /** The history of a job, oldest first. */
  events(id: string): AsyncResult<readonly JobEvent[], JobNotFound | InvalidOption | StoreError> {
    const problem = optionProblem("id", id, stringProblem);
    if (problem !== null) return refusal(problem);
    return new JobRef(this.#client, id).events();
  }

  /** The keys under which jobs run or wait. */
  keys(
    ask: PageAsk & { readonly service?: string; readonly type?: string } = {},
  ): AsyncResult<Page<KeyRow>, InvalidOption | StoreError> {
    return this.#readUnless(optionsProblem("a list of keys", ask, keysChecks), (engine) => {
      const { service, ...rest } = ask;
      return engine.query("keys", { ...rest, ...this.#service(service) });
    });
  }

  /** One key; `null` when no job runs or waits under it. */
  key(ask: KeyAsk): AsyncResult<KeyRow | null, InvalidOption | StoreError> {
    return this.#readUnless(keyProblem(ask), () => keyRow(this.#client, ask));
  }

  /** The workers of the service, or of `"*"` all, with the age of their heartbeats. */
  workers(service?: string): AsyncResult<readonly WorkerRow[], StoreError> {
    return this.#read((engine) => workerRows(engine, this.#service(service).service));
  }

  /** The queues that hold jobs or have settings. */
  queues(service?: string): AsyncResult<readonly QueueRow[], StoreError> {
    return this.#read((engine) => engine.query("queues", this.#service(service)));
  }

  /** Who changed queues, keys, schedules, webhooks and the contract of the service, or of `"*"` all; newest first. */
  audit(
    ask: Omit<AuditAsk, "since" | "until"> & Pick<ReadFilter, "since" | "until"> = {},
  ): AsyncResult<AuditPage, InvalidOption | StoreError> {
    return this.#readUnless(optionsProblem("the audit trail", ask, auditChecks), (engine) => {
      const { since, until, service, ...rest } = ask;
      const times = storeTimes({ since, until });
      return auditPage(engine, { ...given(rest), ...this.#service(service), ...times });
    });
  }

  /**
   * Every event of the store after a cursor (from the beginning without one), then live, until the signal aborts.
   * No event is left out, and those of one job come in their order. Faults of the store are thrown,
   * and so is an `InvalidOption`, at once.
   */
  tail(signal: AbortSignal, cursor: string | null = null): AsyncIterable<FeedItem> {
    const problem =
      optionProblem("signal", signal, signalProblem) ??
      (cursor === null ? null : optionProblem("cursor", cursor, feedCursorProblem));
    if (problem !== null) throw problem;
    return this.#tail(signal, cursor);
  }

  async *#tail(signal: AbortSignal, cursor: string | null): AsyncIterable<FeedItem> {
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
    return problem === null ? this.#read(ask) : refusal(problem);
  }

  #service(service: string = this.#client.runtime.service): { readonly service?: string } {
    return service === "*" ? {} : { service };
  }

  #filter(filter: ReadFilter): JobFilter {
    return storeFilter(this.#client, filter);
  }
}

/** A filter as the store takes it: times in milliseconds, and the caller's own service unless another is named. */
export function storeFilter(
  { runtime }: Client,
  { service = runtime.service, since, until, ...rest }: ReadFilter,
): JobFilter {
  const times = storeTimes({ since, until });
  return { ...given(rest), ...(service === "*" ? null : { service }), ...times };
}

function storeTimes({
  since,
  until,
}: {
  since?: Date | number | undefined;
  until?: Date | number | undefined;
}) {
  return given({
    since: since === undefined ? undefined : timeMs(since),
    until: until === undefined ? undefined : timeMs(until),
  });
}

/** Finds a key. The newest job under a readable key knows its hash. */
export async function keyRow({ runtime }: Client, ask: KeyAsk): Promise<KeyRow | null> {
  const { engine, service } = runtime;
  if ("hash" in ask && ask.hash !== undefined) return engine.query("key", { hash: ask.hash });
  const { type, key } = ask as Extract<KeyAsk, { readonly key: string }>;
  const filter = { service, type, key };
  const { entries } = await engine.query("jobs", { filter, limit: 1 });
  const hash = entries[0]?.keyHash;
  return hash === undefined ? null : engine.query("key", { hash });
}

/** What is wrong with the naming of a key, or `null` when nothing is. */
export function keyProblem(ask: KeyAsk): InvalidOption | null {
  const problem = optionsProblem("a key", ask, keyChecks);
  if (problem !== null) return problem;
  const { hash, type, key }: { hash?: string; type?: string; key?: string } = ask;
  if (hash !== undefined || (type !== undefined && key !== undefined)) return null;
  return new InvalidOption({
    field: type === undefined && key === undefined ? "hash" : type === undefined ? "type" : "key",
    message: 'Name a key by its hash, or by type and key: { type: "send", key: "send/acme" }.',
  });
}

/** What is wrong with the asking for a page, or `null` when nothing is. */
export function listProblem(
  ask: PageAsk & { readonly cursor?: string },
  checks: OptionChecks = listChecks,
): InvalidOption | null {
  const problem = optionsProblem("a list", ask, checks);
  if (problem !== null) return problem;
  if (ask.cursor === undefined || ask.offset === undefined) return null;
  const message = "cursor and offset exclude each other; give one of them.";
  return new InvalidOption({ field: "cursor", message });
}

function statesProblem(states: unknown): string | null {
  const known: readonly unknown[] = jobStates;
  const good = Array.isArray(states) && states.every((state) => known.includes(state));
  return good ? null : `${said(states)} is not a list of states; use some of ${known.join(", ")}.`;
}

function actionProblem(action: unknown): string | null {
  const known: readonly unknown[] = auditActions;
  return known.includes(action) ? null : `${said(action)} is none of ${known.join(", ")}.`;
}

function auditCursorProblem(cursor: unknown): string | null {
  const good = typeof cursor === "string" && auditCursorPattern.test(cursor);
  return good ? null : "It must be a cursor as an earlier answer gave it.";
}

function said(value: unknown): string {
  return Array.isArray(value) ? `[${value.map(String).join(", ")}]` : String(value);
}

/** Leaves out members that are `undefined`. */
export function given<T extends object>(
  members: T,
): { [Name in keyof T]?: Exclude<T[Name], undefined> } {
  const entries = Object.entries(members).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as { [Name in keyof T]?: Exclude<T[Name], undefined> };
}
