/**
 * `decide` turns a command into the event that records it, or refuses it with a reason.
 * It reads nothing but its arguments: no clock, no randomness, no store.
 */
import type { Command, CommandOf, Origin } from "./command.js";
import type { EventData, EventName, EventOf, JobEvent } from "./event.js";
import { isEnded, type Job, type JobContext, type JobState } from "./job.js";
import { retryableStates, transitions } from "./transitions.js";

/** Why a command was refused. */
export interface Rejection {
  readonly reason: "not_found" | "exists" | "ended" | "stale_token" | "not_allowed" | "too_early";
  readonly message: string;
}

/** The outcome of deciding: the event to append, or the reason why there is none. */
export type Decision =
  | { readonly ok: true; readonly event: JobEvent }
  | { readonly ok: false; readonly rejection: Rejection };

/** Decides a command on a job as it is now. `job` is `null` when there is none. */
export function decide(job: Job | null, command: Command, now: number): Decision {
  if (command.command === "create")
    return job ? refuse("exists", `Job ${job.id} exists already.`) : created(command, now);
  if (job === null) return refuse("not_found", "There is no such job.");
  return decideOn(job, command, now);
}

function decideOn(job: Job, command: Exclude<Command, CommandOf<"create">>, now: number): Decision {
  switch (command.command) {
    case "ready":
      return legal(job, command, now, "ready", { cause: command.cause });
    case "unblock":
      return legal(job, command, now, "unblocked", {});
    case "blockerEndedBadly":
      return legal(job, command, now, "unreachable", { blockerId: command.blockerId });
    case "acknowledge":
      return legal(job, command, now, "acknowledged", { agent: command.agent });
    case "start":
      return start(job, command, now);
    case "progress":
      return held(job, command, now, "progress", { progress: command.progress });
    case "log":
      return held(job, command, now, "logged", { entries: command.entries });
    case "emit":
      return held(
        job,
        command,
        now,
        "emitted",
        compact({ topic: command.topic, data: command.data }),
      );
    case "heartbeat":
      return held(job, command, now, "heartbeat", {});
    case "complete":
      return complete(job, command, now);
    case "fail":
      return failTry(job, command, now);
    case "terminate":
      return outcome(
        job,
        command,
        now,
        "failed",
        compact({ error: command.error, aggregate: command.aggregate }),
      );
    case "release":
      return release(job, command, now);
    case "skip":
      return outcome(
        job,
        command,
        now,
        "skipped",
        compact({
          reason: command.reason,
          replacedBy: command.replacedBy,
          aggregate: command.aggregate,
        }),
      );
    case "cancel":
      return cancel(job, command, now);
    case "confirmCancel":
      return held(
        job,
        command,
        now,
        "cancelled",
        compact({ reason: command.reason ?? job.cancelRequest?.reason }),
      );
    case "expire":
      return expire(job, command, now);
    case "lapse":
      return lapse(job, command, now);
    case "exhaust":
      return job.state === "active"
        ? refuse("not_allowed", `Job ${job.id} runs, so that somebody could start it.`)
        : legal(job, command, now, "dead", { error: command.error });
    case "releaseKey":
      return job.keyBlocked
        ? legal(job, command, now, "stale", { token: job.token, cause: "key_released" })
        : refuse("not_allowed", `Job ${job.id} does not block its key.`);
    case "reportStale":
      return legal(job, command, now, "staleCompletionIgnored", {
        token: command.token,
        outcome: command.outcome,
      });
    case "reportHook":
      return legal(job, command, now, "hookFailed", { hook: command.hook, error: command.error });
    case "retry":
      return retryByHand(job, command, now);
    case "dismiss":
      return legal(job, command, now, "dismissed", compact({ reason: command.reason }));
    case "delete":
      return isEnded(job.state) || command.force
        ? legal(job, command, now, "deleted", { reason: command.reason })
        : refuse(
            "not_allowed",
            `Job ${job.id} is ${job.state}; cancel it first, or delete it with force.`,
          );
  }
}

/** The part of a job that starting it needs, so that an engine can start one from a slim row. */
export interface StartableJob {
  readonly id: string;
  readonly service: string;
  readonly type: string;
  readonly state: JobState;
  readonly version: number;
  readonly run: number;
  readonly tries: number;
  readonly token: number;
  readonly deadline?: number | undefined;
  readonly context: JobContext;
}

/** What a claim does with a job that it found: start it, or end it because its deadline has come. */
export function claimVerdict(
  job: { readonly deadline?: number | null | undefined },
  now: number,
): "start" | "expire" {
  return job.deadline != null && job.deadline <= now ? "expire" : "start";
}

/** The `started` event of a claim. The token is one more than the last, so it grows with each start. */
export function startedEvent(
  job: StartableJob,
  origin: Origin,
  worker: string,
  now: number,
): EventOf<"started"> {
  // Written out: an object that grows member by member takes four times as much memory.
  return {
    token: job.token + 1,
    worker,
    name: "started",
    id: origin.eventId,
    jobId: job.id,
    service: job.service,
    type: job.type,
    version: job.version + 1,
    run: job.run,
    tries: job.tries + 1,
    state: "active",
    previousState: job.state,
    at: now,
    actor: origin.actor,
    context: job.context,
  };
}

/** The `expired` event of a claim that came too late. */
export function expiredEvent(
  job: StartableJob & { readonly deadline: number },
  origin: Origin,
  now: number,
): EventOf<"expired"> {
  return envelope(job, origin, now, "expired", { deadline: job.deadline });
}

function start(job: Job, command: CommandOf<"start">, now: number): Decision {
  if (!transitions.started.from.includes(job.state)) return illegal(job, "started");
  if (job.runAt > now) return refuse("too_early", `Job ${job.id} is due later.`);
  if (claimVerdict(job, now) === "expire") return expire(job, command, now);
  return { ok: true, event: startedEvent(job, command, command.worker, now) };
}

function complete(job: Job, command: CommandOf<"complete">, now: number): Decision {
  const { token, result, continuation, completedBy, aggregate } = command;
  const { secret } = job;
  const isPlain = continuation === undefined && aggregate === undefined && secret === undefined;
  if (isPlain && token !== undefined && holds(job, token)) return completed(job, command, now);
  return outcome(
    job,
    command,
    now,
    "completed",
    compact({ result, continuation, completedBy, aggregate, secret }),
  );
}

/** The most frequent outcome of all, written out member by member as a creation is. The job is active under the token. */
function completed(job: Job, command: CommandOf<"complete">, now: number): Decision {
  const event: Writable<EventOf<"completed">> = {
    name: "completed",
    id: command.eventId,
    jobId: job.id,
    service: job.service,
    type: job.type,
    version: job.version + 1,
    run: job.run,
    tries: job.tries,
    state: "completed",
    previousState: job.state,
    at: now,
    actor: command.actor,
    context: job.context,
    token: job.token,
    completedBy: command.completedBy,
  };
  if (command.result !== undefined) event.result = command.result;
  return accept(event);
}

/** A failed try: stopped on request, tried again, or given up. */
function failTry(job: Job, command: CommandOf<"fail">, now: number): Decision {
  if (!holds(job, command.token)) return staleToken(job);
  return accept(afterFailure(job, command, now, command));
}

function afterFailure(
  job: Job,
  origin: Origin,
  now: number,
  failure: {
    readonly token: number;
    readonly error: EventData["retry"]["error"];
    readonly retryAt: number;
  },
): JobEvent {
  const { token, error } = failure;
  if (job.cancelRequest)
    return envelope(job, origin, now, "cancelled", cancelledOnRequest(job, token));
  if (job.deadline !== undefined && job.deadline <= now) {
    return envelope(job, origin, now, "expired", { deadline: job.deadline });
  }
  if (job.tries < job.maxTries)
    return envelope(job, origin, now, "retry", { token, error, runAt: whole(failure.retryAt) });
  return job.deadLetter
    ? envelope(job, origin, now, "dead", { token, error })
    : envelope(job, origin, now, "failed", { token, error });
}

/** An attempt that ended otherwise while it was asked to stop counts as stopped, for the reason that was asked. */
function cancelledOnRequest(job: Job, token: number): EventData["cancelled"] {
  return compact({ token, reason: job.cancelRequest?.reason });
}

function release(job: Job, command: CommandOf<"release">, now: number): Decision {
  if (!holds(job, command.token)) return staleToken(job);
  const { token, cause, reason } = command;
  if (job.cancelRequest)
    return accept(envelope(job, command, now, "cancelled", cancelledOnRequest(job, token)));
  const runAt = whole(command.runAt);
  return accept(envelope(job, command, now, "released", compact({ token, cause, runAt, reason })));
}

function cancel(job: Job, command: CommandOf<"cancel">, now: number): Decision {
  if (isEnded(job.state)) return refuse("ended", `Job ${job.id} has ended as ${job.state}.`);
  const data = compact({ reason: command.reason });
  if (job.state !== "active" || command.force) return legal(job, command, now, "cancelled", data);
  if (job.cancelRequest) return refuse("not_allowed", `Job ${job.id} is being cancelled already.`);
  return legal(job, command, now, "cancelRequested", data);
}

function expire(job: Job, command: Origin, now: number): Decision {
  if (isEnded(job.state)) return refuse("ended", `Job ${job.id} has ended as ${job.state}.`);
  if (job.deadline === undefined || job.deadline > now)
    return refuse("too_early", `Job ${job.id} has time left.`);
  return legal(job, command, now, "expired", { deadline: job.deadline });
}

/** A lapsed lease: the key's policy decides for a keyed job, the tries for another. */
function lapse(job: Job, command: CommandOf<"lapse">, now: number): Decision {
  const { token, retryAt } = command;
  if (!holds(job, token)) return staleToken(job);
  if (job.keyBlocked)
    return refuse("not_allowed", `Job ${job.id} blocks its key until it is released.`);
  if (job.cancelRequest)
    return accept(envelope(job, command, now, "cancelled", cancelledOnRequest(job, token)));
  if (job.key?.stalePolicy === "block")
    return accept(envelope(job, command, now, "keyBlocked", { token }));
  if (job.key?.stalePolicy === "fail-stale") {
    return accept(envelope(job, command, now, "stale", { token, cause: "lapsed" }));
  }
  const error = {
    message: `The lease of ${job.worker ?? "its worker"} lapsed.`,
    reason: "orphaned",
  } as const;
  return accept(afterFailure(job, command, now, { token, error, retryAt }));
}

function retryByHand(job: Job, command: CommandOf<"retry">, now: number): Decision {
  const allowed =
    retryableStates.includes(job.state) || (job.state === "completed" && command.force);
  if (!allowed) {
    const remedy = job.state === "completed" ? "; run it again with force" : "";
    return refuse("not_allowed", `Job ${job.id} is ${job.state} and cannot be retried${remedy}.`);
  }
  const runAt = whole(command.runAt);
  const data = command.force ? { runAt, forced: true as const } : { runAt };
  const state = hasBeenLetGo(job) ? "pending" : "blocked";
  return accept(
    envelope(job, command, now, "retried", data, { state, run: job.run + 1, tries: 0 }),
  );
}

/**
 * Whether a job need not wait for its blockers any more: it has none, or it has started once, under the first of its tokens. One
 * that ended between being let go and its start waits again, and is let go at once where its blockers are as they were.
 */
function hasBeenLetGo({ blockers, token }: Job): boolean {
  return blockers.length === 0 || token > 0;
}

/** Written out member by member, because every create comes through here and a spread costs more than all else. */
function created(command: CommandOf<"create">, now: number): Decision {
  const event: Writable<EventOf<"created">> = {
    name: "created",
    id: command.eventId,
    jobId: command.id,
    service: command.service,
    type: command.type,
    version: 1,
    run: 1,
    tries: 0,
    state: command.blockers.length > 0 ? "blocked" : "pending",
    previousState: null,
    at: now,
    actor: command.actor,
    context: command.context,
    typeVersion: command.typeVersion,
    queue: command.queue,
    payload: command.payload,
    maxTries: command.maxTries,
    priority: command.priority,
    runAt: whole(command.runAt),
    deadLetter: command.deadLetter,
    tags: command.tags,
    blockers: command.blockers,
  };
  if (command.deadline !== undefined) event.deadline = whole(command.deadline);
  if (command.key !== undefined) event.key = command.key;
  if (command.policy !== undefined) event.policy = command.policy;
  if (command.idempotencyKey !== undefined) event.idempotencyKey = command.idempotencyKey;
  if (command.chainId !== undefined) event.chainId = command.chainId;
  if (command.parentId !== undefined) event.parentId = command.parentId;
  if (command.agent !== undefined) event.agent = command.agent;
  if (command.signature !== undefined) event.signature = command.signature;
  if (command.secret !== undefined) event.secret = command.secret;
  return accept(event);
}

/** An outcome that a worker gives under its token, or that somebody else gives without one. */
function outcome<Name extends "completed" | "failed" | "skipped">(
  job: Job,
  command: Origin & { readonly token?: number },
  now: number,
  name: Name,
  data: Omit<EventData[Name], "token">,
): Decision {
  if (command.token !== undefined) return held(job, command as Held, now, name, data);
  if (isEnded(job.state)) return refuse("ended", `Job ${job.id} has ended as ${job.state}.`);
  return legal(job, command, now, name, data as EventData[Name]);
}

type Held = Origin & { readonly token: number };

/** An event that only the holder of the current token may cause. */
function held<Name extends EventName>(
  job: Job,
  command: Held,
  now: number,
  name: Name,
  data: Omit<EventData[Name], "token">,
): Decision {
  if (!holds(job, command.token)) return staleToken(job);
  (data as { token?: number }).token = command.token;
  return legal(job, command, now, name, data as unknown as EventData[Name]);
}

function legal<Name extends EventName>(
  job: Job,
  origin: Origin,
  now: number,
  name: Name,
  data: EventData[Name],
): Decision {
  if (!transitions[name].from.includes(job.state)) return illegal(job, name);
  return accept(envelope(job, origin, now, name, data));
}

/** Not every store can keep a part of a millisecond, so that whoever takes a time from a user makes it whole. */
function whole(time: number): number {
  if (Number.isSafeInteger(time)) return time;
  throw new Error(`The time ${time} of a command is not a whole number of milliseconds.`);
}

function holds(job: Job, token: number): boolean {
  return job.state === "active" && job.token === token;
}

function accept(event: unknown): Decision {
  return { ok: true, event: event as JobEvent };
}

function refuse(reason: Rejection["reason"], message: string): Decision {
  return { ok: false, rejection: { reason, message } };
}

function staleToken(job: Job): Decision {
  return refuse(
    "stale_token",
    `The token is not current: job ${job.id} is ${job.state} under token ${job.token}.`,
  );
}

function illegal(job: Job, name: EventName): Decision {
  if (isEnded(job.state)) return refuse("ended", `Job ${job.id} has ended as ${job.state}.`);
  return refuse("not_allowed", `Job ${job.id} is ${job.state}, where ${name} is not possible.`);
}

function envelope<Name extends EventName>(
  job: StartableJob,
  origin: Origin,
  now: number,
  name: Name,
  data: EventData[Name],
  after?: { readonly state: JobState; readonly run?: number; readonly tries?: number },
): EventOf<Name> {
  const { to, kind } = transitions[name];
  const stays = to === "same" || to === "gone" || typeof to !== "string";
  // The data becomes the event: one object instead of two, because this is done for every event there is.
  const event = data as unknown as Writable<JobEvent>;
  event.name = name;
  event.id = origin.eventId;
  event.jobId = job.id;
  event.service = job.service;
  event.type = job.type;
  event.version = kind === "change" ? job.version + 1 : job.version;
  event.run = after?.run ?? job.run;
  event.tries = after?.tries ?? (name === "released" ? job.tries - 1 : job.tries);
  event.state = after?.state ?? (stays ? job.state : to);
  event.previousState = job.state;
  event.at = now;
  event.actor = origin.actor;
  event.context = job.context;
  return event as unknown as EventOf<Name>;
}

type Writable<T> = { -readonly [Name in keyof T]: T[Name] };

/** Leaves out members that are `undefined`. */
function compact<T extends object>(value: T): { [Name in keyof T]: Exclude<T[Name], undefined> } {
  const result: Record<string, unknown> = {};
  for (const name in value) if (value[name] !== undefined) result[name] = value[name];
  return result as { [Name in keyof T]: Exclude<T[Name], undefined> };
}
