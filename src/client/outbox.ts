/**
 * Creates on their way through an outbox: what is put down in the caller's transaction, and how it becomes a job.
 * The ids of the job and of its first event are fixed when it is put down, so that publishing it twice makes it once.
 */
import { Result } from "better-result";
import { policyOutcome } from "../core/admission.js";
import { skippedAtOnce } from "../core/chains.js";
import type { EventOf } from "../core/event.js";
import type { AppendOutcome, Change, Engine } from "../engine/engine.js";
import { isStoreError } from "../engine/errors.js";
import type { OutboxEntry } from "../engine/outbox.js";
import type { PreparedCreate } from "./prepare.js";
import { runSteps } from "./store-steps.js";
import { createChange, followKey } from "./submit.js";

/** The version of what is put down. */
const formatVersion = 1;

/** What is put down for a create. */
export function outboxEntry(create: PreparedCreate): OutboxEntry {
  const body = JSON.stringify({ format: formatVersion, ...create });
  return { service: create.event.service, body };
}

/** What was put down for a create; `null` where another version of Millrace has put it down in another way. */
export function createOf(body: string): PreparedCreate | null {
  try {
    const { format, ...create } = JSON.parse(body) as PreparedCreate & { readonly format: number };
    return format === formatVersion ? create : null;
  } catch {
    return null;
  }
}

/** What became of a create that was published: it is in the log, it may be there already, or it has to be tried again. */
export type Published =
  | { readonly outcome: "published" }
  | { readonly outcome: "exists" }
  | { readonly outcome: "later"; readonly error: Error };

const published: Published = { outcome: "published" };

/** Publishes creates, of which no two have the same key and none waits for another, each on its own. */
export async function publishCreates(
  engine: Engine,
  creates: readonly PreparedCreate[],
): Promise<readonly Published[]> {
  const answers = await engine.append(creates.map((create) => createChange(create)));
  return Promise.all(
    creates.map((create, index) => {
      const answer = answers[index];
      if (answer === undefined) throw new Error("The store gave no answer to a create.");
      return outcomeOf(engine, create, answer);
    }),
  );
}

async function outcomeOf(
  engine: Engine,
  create: PreparedCreate,
  answer: AppendOutcome,
): Promise<Published> {
  switch (answer.outcome) {
    case "appended":
      return published;
    case "exists":
    case "conflict":
      return { outcome: "exists" };
    case "faulted":
      return { outcome: "later", error: answer.error };
    case "record_conflict":
      return followed(engine, create, answer);
    case "bad_blocker":
      return skip(engine, create, `blocker ${answer.blockerId} ${answer.reason}`);
    case "not_admitted":
      return skip(engine, create, `${answer.admission.outcome} late`, answer.admission);
  }
}

/** The idempotency key was used before: the job of that use stands for this one, or gives way to it. */
async function followed(
  engine: Engine,
  create: PreparedCreate,
  answer: AppendOutcome,
): Promise<Published> {
  const result = await runSteps(engine, undefined, followKey(create, answer, engine.url));
  if (Result.isError(result)) {
    const { error } = result;
    if (isStoreError(error)) return { outcome: "later", error };
    return error._tag === "JobExists" ? { outcome: "exists" } : skip(engine, create, error.message);
  }
  const done = result.value;
  switch (done.outcome) {
    case "accepted":
    case "replaced":
      return published;
    case "existing":
      if (done.id === create.event.jobId) return { outcome: "exists" };
      return skip(engine, create, `job ${done.id} has its idempotency key`);
    case "coalesced":
      return skip(engine, create, `coalesced late with job ${done.id}`);
    case "rejected":
      return skip(engine, create, `rejected late: the key ${done.key} is full`);
  }
}

type Admission = Extract<AppendOutcome, { outcome: "not_admitted" }>["admission"];

/**
 * The caller was told that the job is accepted, and may wait for it: so it is created and skipped at once,
 * without the key and the blockers that keep it out.
 */
async function skip(
  engine: Engine,
  { event }: PreparedCreate,
  reason: string,
  admission?: Admission,
): Promise<Published> {
  const { key: _key, ...rest } = event;
  const policy = admission === undefined ? null : { policy: policyOutcome(admission) };
  const created: EventOf<"created"> = { ...rest, ...policy, blockers: [], state: "pending" };
  const job = { service: event.service, type: event.type, id: event.jobId };
  const skipped: Change = {
    job,
    expect: { version: created.version },
    event: skippedAtOnce(created, reason),
  };
  const change: Change = { job, expect: { version: 0 }, event: created, follow: [skipped] };
  const [answer] = await engine.append([change]);
  switch (answer?.outcome) {
    case "appended":
      return published;
    case "exists":
    case "conflict":
      return { outcome: "exists" };
    case "faulted":
      return { outcome: "later", error: answer.error };
    default:
      throw new Error(`A job that is skipped at once met ${answer?.outcome}.`);
  }
}
