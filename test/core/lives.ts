// Random lives of a job: commands as arbitrary as they come, played through decide and evolve.
import fc from "fast-check";
import type { Command, CommandName } from "#millrace/core/command.js";
import { type Decision, decide } from "#millrace/core/decide.js";
import type { EventName, JobEvent } from "#millrace/core/event.js";
import { evolve } from "#millrace/core/evolve.js";
import { type Actor, type Job, type JobKeyPolicy, jobStates } from "#millrace/core/job.js";
import { transitions } from "#millrace/core/transitions.js";

const context = {
  requestId: "request-1",
  traceId: "4bf92f3577b34da6a3ce929d0e0e4736",
  traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
};

const error = { message: "no luck", reason: "error" } as const;
const actor: Actor = "client:test";

/** A command to create a job, plain unless told otherwise. */
export function createCommand(options: Partial<Extract<Command, { command: "create" }>> = {}) {
  return {
    command: "create",
    eventId: "event-0",
    actor,
    id: "job-1",
    service: "shop",
    type: "mail",
    context,
    typeVersion: 1,
    queue: "mail",
    payload: { to: "a@b.example" },
    maxTries: 3,
    priority: 0,
    runAt: 0,
    deadLetter: true,
    tags: [],
    blockers: [],
    ...options,
  } satisfies Command;
}

/** The job that a sequence of commands leads to; throws where one is refused. */
export function jobAfter(now: number, ...commands: readonly Command[]): Job {
  let job: Job | null = null;
  for (const command of commands) {
    const decision = decide(job, command, now);
    if (!decision.ok) throw new Error(`${command.command}: ${decision.rejection.message}`);
    job = evolve(job, decision.event).job;
  }
  if (job === null) throw new Error("The job was deleted.");
  return job;
}

/** The event of an accepted decision; throws where it was refused. */
export function eventOf(decision: Decision): JobEvent {
  if (!decision.ok) throw new Error(decision.rejection.message);
  return decision.event;
}

export const policies: fc.Arbitrary<JobKeyPolicy> = fc.record({
  key: fc.constant("customer/7"),
  hash: fc.constant("hash"),
  maxActive: fc.integer({ min: 1, max: 3 }),
  maxQueued: fc.integer({ min: 0, max: 3 }),
  whenFull: fc.constantFrom("reject", "coalesce", "replace-oldest"),
  stalePolicy: fc.constantFrom("fail-stale", "requeue", "block"),
});

/** How a random command gets its token: the job's own, or one that is wrong. */
const tokens = fc.oneof(
  { weight: 4, arbitrary: fc.constant("own" as const) },
  { weight: 1, arbitrary: fc.integer({ min: 0, max: 6 }) },
);

/** A command as data, before it knows the job that it meets. */
export interface Wish {
  readonly name: Exclude<CommandName, "create">;
  readonly token: "own" | number;
  readonly workerless: boolean;
  readonly force: boolean;
  readonly passMs: number;
}

const wishNames = [
  "ready",
  "unblock",
  "blockerEndedBadly",
  "acknowledge",
  "start",
  "progress",
  "log",
  "emit",
  "heartbeat",
  "complete",
  "fail",
  "terminate",
  "release",
  "skip",
  "cancel",
  "confirmCancel",
  "expire",
  "lapse",
  "exhaust",
  "releaseKey",
  "reportStale",
  "reportHook",
  "retry",
  "dismiss",
  "delete",
] as const satisfies readonly Wish["name"][];

const wishes: fc.Arbitrary<Wish> = fc.record({
  // Starting is what most of the others need, so it comes more often.
  name: fc.oneof(
    { weight: 2, arbitrary: fc.constant("start" as const) },
    { weight: 5, arbitrary: fc.constantFrom(...wishNames) },
  ),
  token: tokens,
  workerless: fc.boolean(),
  force: fc.boolean(),
  passMs: fc.integer({ min: 0, max: 40 }),
});

/** How a life begins. */
const beginnings = fc.record({
  maxTries: fc.integer({ min: 1, max: 3 }),
  deadLetter: fc.boolean(),
  blocked: fc.boolean(),
  deadline: fc.option(fc.integer({ min: 0, max: 200 }), { nil: undefined }),
  key: fc.option(policies, { nil: undefined }),
});

/** One step of a life. */
export interface LifeStep {
  readonly before: Job | null;
  readonly command: Command;
  readonly decision: Decision;
  readonly after: Job | null;
}

/** Lives of jobs, as the steps that were taken. */
export const lives: fc.Arbitrary<readonly LifeStep[]> = fc
  .tuple(beginnings, fc.array(wishes, { maxLength: 40, size: "max" }))
  .map(([beginning, list]) => live(beginning, list));

/** The events of a life. */
export function logOf(life: readonly LifeStep[]): readonly JobEvent[] {
  return life.flatMap(({ decision }) => (decision.ok ? [decision.event] : []));
}

function live(
  beginning: typeof beginnings extends fc.Arbitrary<infer Value> ? Value : never,
  list: readonly Wish[],
): readonly LifeStep[] {
  const { maxTries, deadLetter, blocked, deadline, key } = beginning;
  const create = createCommand({
    maxTries,
    deadLetter,
    blockers: blocked ? [{ jobId: "other", onBadEnd: "unreachable" }] : [],
    ...(deadline !== undefined && { deadline }),
    ...(key && { key }),
  });
  const steps: LifeStep[] = [];
  let job: Job | null = null;
  let now = 0;
  const step = (command: Command) => {
    const decision = decide(job, command, now);
    const after: Job | null = decision.ok ? evolve(job, decision.event).job : job;
    steps.push({ before: job, command, decision, after });
    job = after;
  };
  step(create);
  for (const [index, wish] of list.entries()) {
    now += wish.passMs;
    step(commandOf(wish, job, `event-${index + 1}`, now));
  }
  return steps;
}

/** The command that a wish becomes for a job as it is. */
function commandOf(wish: Wish, job: Job | null, eventId: string, now: number): Command {
  const origin = { eventId, actor };
  const token = wish.token === "own" ? (job?.token ?? 0) : wish.token;
  const optionalToken = wish.workerless ? {} : { token };
  switch (wish.name) {
    case "ready":
      return { command: "ready", ...origin, cause: "due" };
    case "unblock":
      return { command: "unblock", ...origin };
    case "blockerEndedBadly":
      return { command: "blockerEndedBadly", ...origin, blockerId: "other" };
    case "acknowledge":
      return { command: "acknowledge", ...origin, agent: "agent-1" };
    case "start":
      return { command: "start", ...origin, worker: "worker-1" };
    case "progress":
      return { command: "progress", ...origin, token, progress: { current: now } };
    case "log":
      return { command: "log", ...origin, token, entries: [] };
    case "emit":
      return { command: "emit", ...origin, token, topic: "news" };
    case "heartbeat":
      return { command: "heartbeat", ...origin, token };
    case "complete":
      return { command: "complete", ...origin, ...optionalToken, result: now, completedBy: null };
    case "fail":
      return { command: "fail", ...origin, token, error, retryAt: now + 5 };
    case "terminate":
      return { command: "terminate", ...origin, ...optionalToken, error };
    case "release":
      return { command: "release", ...origin, token, cause: "shutdown", runAt: now };
    case "skip":
      return { command: "skip", ...origin, ...optionalToken, reason: "not needed" };
    case "cancel":
      return { command: "cancel", ...origin, force: wish.force };
    case "confirmCancel":
      return { command: "confirmCancel", ...origin, token };
    case "expire":
      return { command: "expire", ...origin };
    case "lapse":
      return { command: "lapse", ...origin, token, retryAt: now + 5 };
    case "exhaust":
      return { command: "exhaust", ...origin, error };
    case "releaseKey":
      return { command: "releaseKey", ...origin };
    case "reportStale":
      return { command: "reportStale", ...origin, token, outcome: "completed" };
    case "reportHook":
      return { command: "reportHook", ...origin, hook: "onEnd", error };
    case "retry":
      return { command: "retry", ...origin, runAt: now, force: wish.force };
    case "dismiss":
      return { command: "dismiss", ...origin };
    case "delete":
      return { command: "delete", ...origin, reason: "test", force: wish.force };
  }
}

/** The data of an event of each name, apart from tokens. */
const eventData: { readonly [Name in EventName]: object } = {
  created: {
    typeVersion: 1,
    queue: "mail",
    payload: null,
    maxTries: 3,
    priority: 0,
    runAt: 0,
    deadLetter: true,
    tags: [],
    blockers: [],
  },
  ready: { cause: "due" },
  unblocked: {},
  unreachable: { blockerId: "other" },
  acknowledged: { agent: "agent-1" },
  started: { worker: "worker-1" },
  progress: { progress: {} },
  logged: { entries: [] },
  emitted: { topic: "news" },
  heartbeat: {},
  retry: { error, runAt: 0 },
  released: { cause: "shutdown", runAt: 0 },
  completed: { completedBy: null },
  failed: { error },
  cancelRequested: {},
  cancelled: {},
  expired: { deadline: 0 },
  skipped: { reason: "not needed" },
  stale: { cause: "lapsed" },
  keyBlocked: {},
  staleCompletionIgnored: { outcome: "completed" },
  hookFailed: { hook: "onEnd", error },
  dead: { error },
  retried: { runAt: 0 },
  dismissed: {},
  deleted: { reason: "test" },
};

/** Events with every name, also unknown ones, and with envelopes that may say anything. */
export const anyEvents: fc.Arbitrary<JobEvent> = fc
  .record({
    name: fc.oneof(
      fc.constantFrom(...(Object.keys(transitions) as EventName[])),
      fc.constantFrom("teleported", "toString", "__proto__", "constructor", ""),
    ),
    id: fc.string(),
    jobId: fc.oneof({ weight: 9, arbitrary: fc.constant("job-1") }, fc.constant("job-2")),
    service: fc.oneof({ weight: 9, arbitrary: fc.constant("shop") }, fc.constant("bank")),
    type: fc.constant("mail"),
    version: fc.integer({ min: -1, max: 12 }),
    run: fc.integer({ min: 0, max: 5 }),
    tries: fc.integer({ min: -1, max: 9 }),
    state: fc.constantFrom(...jobStates),
    previousState: fc.option(fc.constantFrom(...jobStates)),
    at: fc.integer(),
    actor: fc.constant(actor),
    token: fc.option(fc.integer({ min: 0, max: 6 }), { nil: undefined }),
  })
  .map(({ token, ...event }) => {
    const data = Object.hasOwn(eventData, event.name) ? eventData[event.name as EventName] : {};
    const held = token === undefined ? {} : { token };
    return { ...event, context, ...data, ...held } as unknown as JobEvent;
  });
