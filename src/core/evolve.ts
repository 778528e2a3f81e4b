/**
 * `evolve` folds one event into a job. It is total: whatever it is given, it gives a job,
 * and an event that is not legal changes nothing and is reported as ignored.
 */
import type { EventData, EventName, EventOf, JobEvent } from "./event.js";
import { isEnded, type Job } from "./job.js";
import { canonicalHash } from "./json.js";
import { transitions } from "./transitions.js";

/** What folding one event gave: the job (`null` once it is gone), and why the event was ignored, if it was. */
export interface Evolution {
  readonly job: Job | null;
  readonly ignored: IgnoredReason | null;
}

/** Why an event changed nothing. */
export type IgnoredReason =
  | "unknown event"
  | "other job"
  | "not legal in this state"
  | "not the current token"
  | "out of order";

/** Folds one event into a job. */
export function evolve(job: Job | null, event: JobEvent): Evolution {
  const ignored = ignoredReason(job, event);
  return ignored ? { job, ignored } : { job: apply(job, event), ignored: null };
}

/** Folds a whole log. */
export function fold(events: Iterable<JobEvent>, from: Job | null = null): Job | null {
  let job = from;
  for (const event of events) job = evolve(job, event).job;
  return job;
}

/** The hash of a folded job's canonical form: equal for equal folds, whatever stored the log. */
export function jobHash(job: Job): string {
  return canonicalHash(job);
}

/** What decides of a job whether an event is legal. */
export type JobStanding = Pick<Job, "id" | "service" | "state" | "version" | "token">;

/** What decides of an event whether it is legal. */
export type EventStanding = Pick<JobEvent, "name" | "jobId" | "service" | "version"> & {
  readonly token?: number;
};

/** Why folding an event into a job would change nothing; `null` if it is legal. */
export function ignoredReason(job: JobStanding | null, event: EventStanding): IgnoredReason | null {
  if (!Object.hasOwn(transitions, event.name)) return "unknown event";
  const transition = transitions[event.name];
  if (job && (event.jobId !== job.id || event.service !== job.service)) return "other job";
  if (!transition.from.includes(job ? job.state : null)) return "not legal in this state";
  if (transition.kind === "change" && job && event.version !== job.version + 1)
    return "out of order";
  if (transition.token !== "none" && job && !tokenIsCurrent(job, event))
    return "not the current token";
  return null;
}

/** A token is current only while the job is active under it. An event without one comes from outside. */
function tokenIsCurrent(job: JobStanding, { name, token }: EventStanding): boolean {
  if (token === undefined) return transitions[name].token === "optional";
  return job.state === "active" && token === job.token;
}

function apply(job: Job | null, event: JobEvent): Job | null {
  if (event.name === "created") return create(event);
  if (event.name === "deleted" || job === null) return null;
  if (event.name === "started" && job.progress === undefined && job.reason === undefined)
    return start(job, event);
  const effect = effects[event.name] as (job: Job, event: JobEvent) => Changes;
  const next = changed(job, effect(job, event));
  if (transitions[event.name].kind !== "change") return next;
  next.version = job.version + 1;
  next.updatedAt = event.at;
  return next;
}

/** The most frequent change of all, written out because every claim folds it: copying member by member is ten times as fast. */
function start(job: Job, event: EventOf<"started">): Job {
  const started: Job = {
    id: job.id,
    service: job.service,
    type: job.type,
    typeVersion: job.typeVersion,
    queue: job.queue,
    state: "active",
    version: job.version + 1,
    run: job.run,
    tries: job.tries + 1,
    maxTries: job.maxTries,
    token: event.token,
    priority: job.priority,
    runAt: job.runAt,
    createdAt: job.createdAt,
    updatedAt: event.at,
    payload: job.payload,
    context: job.context,
    tags: job.tags,
    deadLetter: job.deadLetter,
    blockers: job.blockers,
    worker: event.worker,
    startedAt: event.at,
  };
  return isPlain(job) ? started : { ...job, ...started };
}

/**
 * The fold of a creation and of the first start that follows it, in one step, because nearly every claim makes it: two events
 * and a job less than one after the other.
 */
export function startedFirst(created: EventOf<"created">, worker: string, at: number): Job {
  const job = create(created);
  if (job.state !== "pending") return job;
  job.state = "active";
  job.version = 2;
  job.tries = 1;
  job.token = 1;
  job.updatedAt = at;
  job.worker = worker;
  job.startedAt = at;
  return job;
}

/** Whether a job has none of the members that only some jobs have. */
function isPlain(job: Job): boolean {
  return (
    job.run === 1 &&
    job.token === 0 &&
    job.deadline === undefined &&
    job.key === undefined &&
    job.policy === undefined &&
    job.idempotencyKey === undefined &&
    job.chainId === undefined &&
    job.parentId === undefined &&
    job.agent === undefined &&
    job.signature === undefined &&
    job.secret === undefined &&
    job.acknowledgedBy === undefined
  );
}

/** What an event changes of a job; a member that is `undefined` goes. */
type Changes = { [Name in keyof Job]?: Job[Name] | undefined };

type Writable<T> = { -readonly [Name in keyof T]: T[Name] };

/** A job with changes made. Members that are `undefined` are left out, so that equal jobs are equal as JSON. */
function changed(job: Job, changes: Changes): Writable<Job> {
  const next: Record<string, unknown> = { ...job };
  for (const name in changes) {
    const value = changes[name as keyof Job];
    if (value !== undefined) next[name] = value;
    else if (name in next) delete next[name];
  }
  return next as unknown as Writable<Job>;
}

function create(event: EventOf<"created">): Writable<Job> {
  const job: Writable<Job> = {
    id: event.jobId,
    service: event.service,
    type: event.type,
    typeVersion: event.typeVersion,
    queue: event.queue,
    state: event.blockers.length > 0 ? "blocked" : "pending",
    version: 1,
    run: 1,
    tries: 0,
    maxTries: event.maxTries,
    token: 0,
    priority: event.priority,
    runAt: event.runAt,
    createdAt: event.at,
    updatedAt: event.at,
    payload: event.payload,
    context: event.context,
    tags: event.tags,
    deadLetter: event.deadLetter,
    blockers: event.blockers,
  };
  for (const name of optionalNames) setIfGiven(job, name, event[name]);
  return job;
}

function setIfGiven<Name extends keyof Job>(
  job: Writable<Job>,
  name: Name,
  value: Job[Name] | undefined,
): void {
  if (value !== undefined) job[name] = value;
}

/** The members of a `created` event that a job has only if they were given. */
const optionalNames = [
  "deadline",
  "key",
  "policy",
  "idempotencyKey",
  "chainId",
  "parentId",
  "agent",
  "signature",
  "secret",
] as const;

/** What leaves with an attempt, however it ends. */
const attemptOver = { worker: undefined, cancelRequest: undefined, keyBlocked: undefined } as const;

type Effect<Name extends EventName> = (job: Job, event: EventOf<Name>) => Changes;

const effects: { [Name in Exclude<EventName, "created" | "deleted">]: Effect<Name> } = {
  ready: () => ({}),
  unblocked: () => ({ state: "pending" }),
  unreachable: (_, event) =>
    ended(event, { state: "unreachable", reason: unreachableReason(event) }),
  acknowledged: (_, event) => ({ acknowledgedBy: event.agent, acknowledgedAt: event.at }),
  started: (job, event) => ({
    state: "active",
    tries: job.tries + 1,
    token: event.token,
    worker: event.worker,
    startedAt: event.at,
    progress: undefined,
    reason: undefined,
  }),
  progress: (_, event) => ({ progress: event.progress }),
  logged: () => ({}),
  emitted: () => ({}),
  heartbeat: () => ({}),
  retry: (_, event) => ({ ...attemptOver, state: "retry", error: event.error, runAt: event.runAt }),
  released: (job, event) => ({
    ...attemptOver,
    state: "pending",
    tries: job.tries - 1,
    runAt: event.runAt,
    reason: event.reason ?? event.cause,
  }),
  completed: (_, event) =>
    ended(event, {
      state: "completed",
      result: event.result,
      continuedBy: event.continuation?.jobId,
      completedBy: event.completedBy,
      aggregate: event.aggregate,
      error: undefined,
    }),
  failed: (_, event) =>
    ended(event, { state: "failed", error: event.error, aggregate: event.aggregate }),
  cancelRequested: (_, event) => ({ cancelRequest: cancelRequest(event) }),
  cancelled: (_, event) => ended(event, { state: "cancelled", reason: event.reason }),
  expired: (_, event) => ended(event, { state: "expired" }),
  skipped: (_, event) =>
    ended(event, { state: "skipped", reason: event.reason, aggregate: event.aggregate }),
  stale: (_, event) => ended(event, { state: "stale", reason: event.cause }),
  keyBlocked: () => ({ keyBlocked: true }),
  staleCompletionIgnored: () => ({}),
  hookFailed: () => ({}),
  dead: (_, event) => ended(event, { state: "dead", error: event.error }),
  retried: (job, event) => ({
    ...attemptOver,
    // The event says where it leads, so that logs which were decided by other rules fold as they did.
    state: event.state === "blocked" ? "blocked" : "pending",
    run: job.run + 1,
    tries: 0,
    runAt: event.runAt,
    deadline: undefined,
    result: undefined,
    error: undefined,
    reason: undefined,
    progress: undefined,
    endedAt: undefined,
    aggregate: undefined,
    completedBy: undefined,
    continuedBy: undefined,
  }),
  dismissed: (job, event) => ({ state: "dismissed", reason: event.reason ?? job.reason }),
};

function ended(event: EventData[EventName] & { readonly at: number }, changes: Changes): Changes {
  return { ...attemptOver, ...changes, endedAt: event.at };
}

/** Why an unreachable job can never run, in words. */
export function unreachableReason({ blockerId }: EventData["unreachable"]): string {
  return `blocker ${blockerId} ended badly`;
}

function cancelRequest(event: EventOf<"cancelRequested">) {
  return event.reason === undefined
    ? { at: event.at, by: event.actor }
    : { at: event.at, by: event.actor, reason: event.reason };
}

/** Whether the fold says that nobody will run the job any more. */
export function hasEnded(job: Job | null): boolean {
  return job === null || isEnded(job.state);
}
