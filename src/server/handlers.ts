/**
 * The admin calls carried out over any engine. Lists come from the read model and single jobs from their logs;
 * a call that changes a job publishes an ordinary event and answers when the views show it, or when they take too long.
 */
import { command } from "../client/commands.js";
import { inTime } from "../client/in-time.js";
import { workerRows } from "../client/presence.js";
import { given } from "../client/reads.js";
import type { Command, CommandOf } from "../core/command.js";
import type { Actor, Job, JobState, LogEntry } from "../core/job.js";
import { isStoreError } from "../engine/errors.js";
import type { JobFilter, JobRow } from "../engine/query.js";
import { recordId } from "../engine/record.js";
import {
  checkInput,
  type DeadFilterInput,
  type FilterInput,
  type IdInput,
  type JobsCallName,
  type JobsCalls,
  type KeyInput,
  type OneJob,
  type PageInput,
} from "./calls.js";
import { NotFoundError, UnavailableError, ValidationError } from "./errors.js";
import type { Unfitted } from "./fitting.js";
import { type HealthSource, health } from "./health.js";
import { timeOf } from "./time-text.js";
import {
  type JobWire,
  jobWire,
  type KeyWire,
  keyWire,
  type PageWire,
  type ServiceWire,
  workerWires,
} from "./wire.js";

/** How long an answer waits for views that lag, and how often it looks. */
const viewPatienceMs = 5_000;
const viewPauseMs = 20;

/** What the calls are carried out with. */
export type JobsBackend = HealthSource;

/** The most services that are known by their contracts alone. */
const servicesMax = 1_000;

type Handlers = {
  readonly [Name in JobsCallName]: (
    backend: JobsBackend,
    input: JobsCalls[Name]["input"],
    actor: Actor,
  ) => Promise<Unfitted<Name>>;
};

const handlers: Handlers = {
  Health: health,
  ListServices: listServices,
  List: list,
  Get: get,
  GetKey: getKey,
  Retry: (backend, input, actor) => change(backend, input, actor, retry(backend)),
  Cancel: (backend, input, actor) => change(backend, input, actor, { command: "cancel" }),
  ListDLQ: (backend, input) => list(backend, { ...input, state: ["dead"] }),
  ReplayDLQ: (backend, input, actor) => change(backend, input, actor, retry(backend), "dead"),
  DismissDLQ: (backend, input, actor) =>
    change(backend, input, actor, { command: "dismiss" }, "dead"),
};

/** Carries out a call. What its caller is to be told is thrown as an `AdminError`. */
export async function carryOut<Name extends JobsCallName>(
  backend: JobsBackend,
  name: Name,
  input: unknown,
  actor: Actor,
): Promise<Unfitted<Name>> {
  checkInput(name, input);
  try {
    return await handlers[name](backend, input, actor);
  } catch (error) {
    if (isStoreError(error)) throw new UnavailableError({ message: error.message });
    throw error;
  }
}

async function listServices(
  { engine }: JobsBackend,
  { limit, offset = 0 }: PageInput,
): Promise<PageWire<ServiceWire>> {
  const [counts, presences, contracts] = await Promise.all([
    engine.query("counts", {}),
    workerRows(engine),
    engine.query("records", { prefix: recordId.contracts, limit: servicesMax }),
  ]);
  const workers = workerWires(presences);
  const accepted = contracts.map(({ id }) => ({ service: id.slice(recordId.contracts.length) }));
  const names = new Set([...counts, ...workers, ...accepted].map(({ service }) => service));
  const all = [...names].sort().map((name): ServiceWire => {
    const own = workers.filter(({ service }) => service === name);
    const jobs: { [State in JobState]?: number } = {};
    for (const { service, state, count } of counts)
      if (service === name) jobs[state] = (jobs[state] ?? 0) + count;
    const instances = new Set(own.map(({ instanceId }) => instanceId)).size;
    return { name, instances, workers: own, jobs };
  });
  const entries = all.slice(offset, offset + limit);
  return pageWire(entries, { count: all.length, offset, limit });
}

async function list(
  { engine }: JobsBackend,
  { limit, offset = 0, ...filter }: FilterInput & PageInput,
): Promise<PageWire<JobWire | null>> {
  const page = await engine.query("jobs", { filter: storeFilter(filter), limit, offset });
  const loaded = await engine.load(page.entries.map(({ id }) => id));
  const { state } = filter;
  // A job that was removed since, or has left the states that were asked for, is left out and counts as seen.
  const entries = page.entries.map((row, index) => {
    const job = loaded[index]?.job;
    return job && (state?.includes(job.state) ?? true) ? jobWire(job, { row }) : null;
  });
  return pageWire(entries, { count: page.count, offset, limit });
}

function pageWire<Entry>(
  entries: readonly Entry[],
  { count, offset, limit }: { count: number; offset: number; limit: number },
): PageWire<Entry> {
  const nextOffset = offset + entries.length;
  return { entries, count, offset, limit, ...(nextOffset < count && { nextOffset }) };
}

function storeFilter({ since, until, ...rest }: DeadFilterInput | FilterInput): JobFilter {
  const times = given({
    since: checkedTime(since),
    until: checkedTime(until),
  });
  return { ...rest, ...times };
}

/** Inputs are checked before, so that a text is a time. */
function checkedTime(text: string | undefined): number | undefined {
  return text === undefined ? undefined : (timeOf(text) ?? undefined);
}

async function get({ engine }: JobsBackend, { id }: IdInput): Promise<OneJob> {
  const [[loaded], row] = await Promise.all([
    engine.load([id], { history: true }),
    engine.query("job", { id }),
  ]);
  if (!loaded) throw jobNotFound(id);
  const { job, events = [] } = loaded;
  const logs: LogEntry[] = events.flatMap((event) =>
    event.name === "logged" ? event.entries : [],
  );
  const keyRow = job.key && (await engine.query("key", { hash: job.key.hash }));
  return {
    job: jobWire(job, { row, ...given({ keyRow, logs: logs.length > 0 ? logs : undefined }) }),
  };
}

/** Finds a key. The newest job under a readable key knows its hash. */
async function getKey({ engine }: JobsBackend, filter: KeyInput): Promise<KeyWire> {
  const { service, type, key } = filter;
  const { entries } = await engine.query("jobs", { filter: { service, type, key }, limit: 1 });
  const hash = entries[0]?.keyHash;
  const row = hash === undefined ? null : await engine.query("key", { hash });
  if (row) return keyWire(row);
  const message = `No job of ${service}/${type} runs or waits under the key ${key}.`;
  throw new NotFoundError({ resource: "key", id: key, message });
}

/** A command without the origin that every change adds. */
type Wish = {
  [Name in "retry" | "cancel" | "dismiss"]: Omit<CommandOf<Name>, "eventId" | "actor">;
}["retry" | "cancel" | "dismiss"];

function retry({ engine }: JobsBackend): Wish {
  return { command: "retry", runAt: engine.now() };
}

/** Gives a job a command, if need be only in one state, and answers with the job as it is then. */
async function change(
  backend: JobsBackend,
  { id }: IdInput,
  actor: Actor,
  wish: Wish,
  onlyIn?: JobState,
): Promise<OneJob> {
  const outcome = await command({ ...backend, service: "" }, id, (job) => {
    if (onlyIn !== undefined && job.state !== onlyIn)
      throw notPossible(`Job ${id} is ${job.state}, not ${onlyIn}.`);
    return { ...wish, eventId: backend.ids.eventId(), actor } as Command;
  });
  if (outcome.ok) return shown(backend, outcome.job);
  // Whoever asks again for what was asked for gets the same answer.
  if (wish.command === "cancel" && outcome.job?.state === "active")
    return shown(backend, outcome.job);
  if (outcome.job) throw notPossible(outcome.rejection.message);
  if (outcome.rejection.reason === "contended")
    throw new UnavailableError({ message: outcome.rejection.message });
  throw jobNotFound(id);
}

/**
 * Waits until the views have come to what was stored. It is stored, whatever becomes of the views: where they are late or
 * away, the answer is the job as its log has it by now.
 */
async function shown(backend: JobsBackend, job: Job): Promise<OneJob> {
  const { engine, clock, logger } = backend;
  const patience = new AbortController();
  const seeing = seen(backend, job, patience.signal);
  try {
    if (await inTime(clock, seeing, viewPatienceMs))
      return { job: jobWire(job, { row: await seeing }) };
  } catch (error) {
    logger.warn({ error, jobId: job.id }, "A change was stored, and the views cannot show it.");
  } finally {
    patience.abort();
  }
  const [loaded] = await engine.load([job.id]).catch(() => []);
  return { job: jobWire(loaded?.job ?? job) };
}

/** The row of a job when the views have come to its version, or when nobody waits for that any more. */
async function seen(
  { engine, clock }: JobsBackend,
  { id, version }: Job,
  signal: AbortSignal,
): Promise<JobRow | null> {
  for (;;) {
    const row = await engine.query("job", { id });
    if (signal.aborted || (row !== null && row.version >= version)) return row;
    await new Promise<void>((resolve) => clock.after(viewPauseMs, resolve));
  }
}

function notPossible(message: string): ValidationError {
  return new ValidationError({ field: "id", message });
}

function jobNotFound(id: string): NotFoundError {
  const message = `There is no job ${id}; it may have been deleted.`;
  return new NotFoundError({ resource: "job", id, message });
}
