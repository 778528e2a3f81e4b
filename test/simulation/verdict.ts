// What must be true when everything is over: the log obeys the rules, and what callers and handlers
// wrote down outside the system agrees with it.
import { LogChecker } from "millrace/conformance";
import type { BoundJob } from "#millrace/contract/definition.js";
import type { JobEvent } from "#millrace/core/event.js";
import { evolve } from "#millrace/core/evolve.js";
import { isEnded, type Job } from "#millrace/core/job.js";
import { transitions } from "#millrace/core/transitions.js";
import type { Engine } from "#millrace/engine/engine.js";
import { type JobRow, pageMax } from "#millrace/engine/query.js";
import { type CallersLedger, capLimits, type HandlerLedger } from "./ledger.js";

/** Everything that is known when all is over. */
export interface Evidence {
  readonly jobs: readonly BoundJob[];
  readonly engine: Engine;
  readonly events: readonly JobEvent[];
  readonly callers: CallersLedger;
  readonly handlers: HandlerLedger;
}

/** Every rule that was broken, in sentences. */
export async function judge(evidence: Evidence): Promise<readonly string[]> {
  const { jobs, engine, events, callers, handlers } = evidence;
  const checker = new LogChecker({
    finished: true,
    rows: await readRows(engine),
    ...capLimits(jobs),
  });
  for (const event of events) checker.see(event);
  const log = checker
    .finish()
    .map(({ rule, sentence, jobId }) => `${rule}: ${sentence} (${jobId})`);
  return [
    ...log,
    ...callers.violations,
    ...handlers.violations,
    ...checkCallers(evidence),
    ...checkHandlers(evidence),
    ...checkRepeatable(events),
    ...(await checkSlots(engine)),
  ];
}

/** The whole feed. Where a removal was broken off, events of a job are left without its creation, and mean nothing. */
export async function readFeed(engine: Engine): Promise<readonly JobEvent[]> {
  const events = await readAll(engine);
  const created = new Set<string>();
  const removedAt = new Map<string, number>();
  for (const [index, { name, jobId }] of events.entries())
    if (name === "deleted") removedAt.set(jobId, index);
  return events.filter(({ name, jobId }, index) => {
    if (name === "created") created.add(jobId);
    const isLeft = !created.has(jobId) && index < (removedAt.get(jobId) ?? 0);
    if (name === "deleted") created.delete(jobId);
    return !isLeft;
  });
}

/** The feed without the notes that the fold ignores. */
export function withoutLateNotes(events: readonly JobEvent[]): readonly JobEvent[] {
  const jobs = new Map<string, Job | null>();
  return events.filter((event) => {
    const { job, ignored } = evolve(jobs.get(event.jobId) ?? null, event);
    jobs.set(event.jobId, job);
    return ignored === null || transitions[event.name].kind === "change";
  });
}

async function readAll(engine: Engine): Promise<readonly JobEvent[]> {
  const events: JobEvent[] = [];
  const { signal } = new AbortController();
  for await (const { event } of engine.tail(null, signal, "stored")) events.push(event);
  return events;
}

/** All jobs as the read model has them. */
export async function readRows(engine: Pick<Engine, "query">): Promise<readonly JobRow[]> {
  const rows: JobRow[] = [];
  let cursor: string | undefined;
  do {
    const page = await engine.query("jobs", { limit: pageMax, ...(cursor && { cursor }) });
    rows.push(...page.entries);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return rows;
}

/** What callers were told is so. */
function checkCallers({ events, callers, handlers }: Evidence): string[] {
  const problems: string[] = [];
  const states = new Map<string, Set<string>>();
  const gone = new Set<string>();
  const known = new Set<string>();
  for (const event of events) {
    // A creation that was refused leaves a removal of no type; of one that was removed only the removal is left.
    if (event.type !== "_") known.add(event.jobId);
    if (event.name === "deleted") gone.add(event.jobId);
    states.set(event.jobId, (states.get(event.jobId) ?? new Set()).add(event.state));
  }
  for (const id of callers.acknowledged) {
    if (!states.has(id)) problems.push(`The acknowledged create of ${id} is lost.`);
  }
  for (const id of callers.named) {
    if (!known.has(id)) problems.push(`A caller was told of ${id}, which never was.`);
  }
  const ran = handlers.jobIds();
  for (const id of callers.refused) {
    if (states.has(id)) problems.push(`The create of ${id} was refused and the job exists.`);
    if (ran.has(id)) problems.push(`The create of ${id} was refused and the job ran.`);
  }
  for (const id of callers.removed) {
    if (!gone.has(id)) problems.push(`The removal of ${id} was acknowledged and the job is there.`);
  }
  for (const { id, state } of callers.told) {
    if (gone.has(id) || states.get(id)?.has(state)) continue;
    problems.push(`A caller was told that ${id} was ${state}, which the log does not know.`);
  }
  return problems;
}

/** What the log says of outcomes is what handlers did, and no handler ran without a start. */
function checkHandlers({ events, handlers }: Evidence): string[] {
  const problems: string[] = [];
  const meant: Readonly<Record<string, string>> = { completed: "returned", skipped: "skipped" };
  for (const event of events) {
    if (!("token" in event) || event.token === undefined) continue;
    const expected =
      event.name === "failed" && event.error.reason === "terminated"
        ? "terminated"
        : meant[event.name];
    const said = handlers.said(event.jobId, event.token);
    if (expected === undefined || said === expected) continue;
    const truth = said === undefined ? "never came back" : said;
    problems.push(
      `${event.jobId} ${event.name} under token ${event.token}, whose handler ${truth}.`,
    );
  }
  return problems;
}

/** A create with an idempotency key makes one job, however often it is sent. */
function checkRepeatable(events: readonly JobEvent[]): string[] {
  const problems: string[] = [];
  const first = new Map<string, string>();
  for (const event of events) {
    if (event.name !== "created" || event.idempotencyKey === undefined) continue;
    const other = first.get(event.idempotencyKey);
    if (other !== undefined) {
      problems.push(`${event.idempotencyKey} made both ${other} and ${event.jobId}.`);
    }
    first.set(event.idempotencyKey, event.jobId);
  }
  return problems;
}

/** When every job has ended and every lease has run out, nothing holds a slot any more. */
async function checkSlots(engine: Engine): Promise<string[]> {
  const { entries } = await engine.query("keys", { limit: pageMax });
  return entries
    .filter(({ active, queuedCount }) => active.length > 0 || queuedCount > 0)
    .map(
      ({ type, key, active }) => `The key ${type}/${key} is still held: ${JSON.stringify(active)}`,
    );
}

/** Whether every job has ended. */
export async function allEnded(engine: Engine): Promise<boolean> {
  const counts = await engine.query("counts", {});
  return counts.every(({ state, count }) => count === 0 || isEnded(state));
}
