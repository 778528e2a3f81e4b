/**
 * Creating jobs: the wide row, which tells of the creation, and the slim row, after the key's policy has let the job in.
 */
import { type Admission, admit, type KeyFacts, policyOutcome } from "../../core/admission.js";
import { refusedContinuation } from "../../core/chains.js";
import { decide } from "../../core/decide.js";
import type { EventOf, JobEvent } from "../../core/event.js";
import { fold } from "../../core/evolve.js";
import type { JobKeyPolicy, PolicyOutcome } from "../../core/job.js";
import type { AppendOutcome } from "../engine.js";
import { blockerRefusal, storeBlockers } from "./blockers.js";
import { detailOf, type FlatChange, type NewJob } from "./change.js";
import { laneNumber, withPolicy } from "./log.js";
import { Overtaken } from "./overtaken.js";
import { endJob, endStatement } from "./place.js";
import {
  createdColumns,
  creationColumns,
  eventFrom,
  eventValues,
  headColumns,
  headOf,
  headValues,
  valuesOf,
} from "./rows.js";
import { keyScope, placeSlim, promoteKey, type Slim, takeWaiting } from "./slim.js";
import { int, type Step, text } from "./statement.js";
import type { Transaction } from "./transaction.js";

/** Writes the wide row of a new job under the number that this expression gives. */
export function insertJobAs(n: string): string {
  return `INSERT INTO jobs (n, id, lane, priority, run_at, created_at, deadline, max_tries, key, key_hash, key_max, tags,
    parent_id, chain_id, agent, ${creationColumns}) VALUES (${n},?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`;
}

/** The same under a number that is given. */
export const insertJob = insertJobAs("?");

/** Creates a job, unless its id is taken or its key's policy says otherwise. */
export function* createJob(tx: Transaction, change: FlatChange, job: NewJob): Step<AppendOutcome> {
  if (change.expectVersion !== 0) return { outcome: "conflict" };
  if (yield* isTaken(tx, change.id)) return { outcome: "exists" };
  const refusal = job.blockers && (yield* blockerRefusal(tx, job, job.blockers));
  if (refusal) return refusal;
  if (job.key === null) {
    yield* storeJob(tx, change, job, null);
    return { outcome: "appended" };
  }
  yield* tx.dialect.lockKey(job.key.hash);
  const admission = yield* admitToKey(tx, job.key);
  yield* recordKey(tx, job, job.key, policyOutcome(admission));
  if (admission.outcome === "rejected" || admission.outcome === "coalesced")
    return { outcome: "not_admitted", admission };
  if (admission.outcome === "replaced") yield* replaceJob(tx, admission.replacedJobId, change);
  const policy = policyOutcome(admission);
  yield* storeJob(tx, change, job, policy);
  return { outcome: "appended", policy };
}

/** Whether an id is taken: by a job, or by a deleted one whose worker has not let go and whose token would be used again. */
export function* isTaken(tx: Transaction, id: string): Step<boolean> {
  const taken = yield {
    sql: `SELECT id FROM jobs WHERE id = ?
      UNION ALL SELECT job FROM slots WHERE job = ? AND until IS NOT NULL AND until > ?`,
    values: [id, id, tx.now],
    planned: true,
  };
  return taken.length > 0;
}

/** Creates the continuation of a job; one that its key refuses is skipped at once. */
export function* createContinuation(tx: Transaction, change: FlatChange, job: NewJob): Step<void> {
  if (job.key === null) {
    yield* storeJob(tx, change, job, null);
    return;
  }
  yield* tx.dialect.lockKey(job.key.hash);
  const admission = yield* admitToKey(tx, job.key);
  const policy = policyOutcome(admission);
  yield* recordKey(tx, job, job.key, policy);
  if (admission.outcome === "rejected" || admission.outcome === "coalesced") {
    const { skipped } = refusedContinuation(createdEvent(change, job), admission);
    const { n, lane } = yield* storeWide(tx, change, job, policy);
    yield* tx.dialect.appendEvent(tx, n, eventValues(skipped));
    const after = { ...skipped, detail: detailOf(skipped), aggregate: null };
    yield endStatement({ n, lane, token: 0, startedAt: null }, after);
    tx.woke.ended = true;
    return;
  }
  if (admission.outcome === "replaced") yield* replaceJob(tx, admission.replacedJobId, change);
  yield* storeJob(tx, change, job, policy);
}

/** Creates a job that ends with the same append: it takes no place of its key, which is remembered all the same. */
export function* createEnded(tx: Transaction, change: FlatChange, job: NewJob): Step<void> {
  if (job.key !== null) {
    yield* tx.dialect.lockKey(job.key.hash);
    yield* recordKey(tx, job, job.key, { outcome: "accepted" });
  }
  yield* storeJob(tx, change, job, null);
}

function createdEvent(change: FlatChange, job: NewJob): EventOf<"created"> {
  const head = headOf([change.id, job.service, job.type, job.context]);
  return eventFrom(head, change.values) as EventOf<"created">;
}

/** Writes the wide row of a job. */
function* storeWide(
  tx: Transaction,
  change: FlatChange,
  job: NewJob,
  policy: PolicyOutcome | null,
): Step<{ readonly n: number; readonly lane: number }> {
  const lane = yield* laneNumber(tx, job);
  const values = policy ? withPolicy(change.values, policy) : change.values;
  const [, , , , state, , , eventId, actor, body] = values;
  const n = yield* tx.dialect.insertJob(tx, [
    change.id,
    lane,
    job.priority,
    change.runAt,
    change.at,
    job.deadline,
    job.maxTries,
    job.key?.key ?? null,
    job.key?.hash ?? null,
    job.key?.maxActive ?? null,
    job.tags && JSON.stringify(job.tags),
    job.parentId,
    job.chainId,
    job.agent,
    eventId,
    actor,
    state,
    job.context,
    body,
  ]);
  for (const tag of new Set(job.tags))
    yield { sql: "INSERT INTO tags (tag, n) VALUES (?,?)", values: [tag, n], silent: true };
  if (job.blockers) yield* storeBlockers(n, job.blockers);
  return { n, lane };
}

/** Stores a job that is let in: its wide row, and its place in line, which it gives. */
export function* storeJob(
  tx: Transaction,
  change: FlatChange,
  job: NewJob,
  policy: PolicyOutcome | null,
): Step<Slim> {
  const { n, lane } = yield* storeWide(tx, change, job, policy);
  const slim: Slim = {
    n,
    id: change.id,
    lane,
    rank: -job.priority,
    runAt: change.runAt,
    state: change.state,
    version: 1,
    run: 1,
    tries: 0,
    token: 0,
    deadline: job.deadline,
    updatedAt: change.at,
    startedAt: null,
    detail: null,
    key: job.key?.hash ?? null,
    keyMax: job.key?.maxActive ?? null,
    noted: 0,
  };
  yield* placeSlim(tx, slim);
  return slim;
}

/** Asks `core` whether the key has room, with the facts as they are in this transaction. */
function* admitToKey(tx: Transaction, policy: JobKeyPolicy): Step<Admission> {
  const limit = policy.maxActive + policy.maxQueued;
  // One statement, so that a job that moves from one table to the other meanwhile counts once.
  const [row] = yield {
    sql: `SELECT (SELECT count(*) FROM (SELECT 1 FROM slots WHERE scope = ? AND (until IS NULL OR until > ?) LIMIT ?) AS held) AS active,
      (SELECT count(*) FROM (SELECT 1 FROM waiting WHERE key = ? LIMIT ?) AS line) AS queued`,
    values: [keyScope(policy.hash), tx.now, limit, policy.hash, limit],
    planned: true,
  };
  const active = row ? int(row, "active") : 0;
  const occupied = active + (row ? int(row, "queued") : 0);
  const facts: KeyFacts = { occupied, active };
  if (occupied < limit) return admit(policy, facts);
  return admit(policy, { ...facts, ...(yield* jobsOfKey(policy.hash)) });
}

/** The oldest job of a key that has not started, and the oldest that runs. */
function* jobsOfKey(hash: string): Step<Pick<KeyFacts, "oldestQueued" | "running">> {
  const [queued] = yield {
    sql: `SELECT id FROM (
      SELECT n, id FROM waiting WHERE key = ? AND cause <> 'blocked'
      UNION ALL SELECT r.n, r.id FROM slots s JOIN jobs j ON j.id = s.job
        JOIN ready r ON r.lane = j.lane AND r.rank = -j.priority AND r.run_at = j.run_at AND r.id = j.id
        WHERE s.scope = ?
      ) AS queued ORDER BY n LIMIT 1`,
    values: [hash, keyScope(hash)],
  };
  const [running] = yield {
    sql: `SELECT j.id FROM slots s JOIN jobs j ON j.id = s.job
      WHERE s.scope = ? AND (SELECT 1 FROM held_by_job WHERE id = j.id LIMIT 1) IS NOT NULL ORDER BY j.n LIMIT 1`,
    values: [keyScope(hash)],
  };
  return {
    ...(queued && { oldestQueued: text(queued, "id") }),
    ...(running && { running: text(running, "id") }),
  };
}

/** Skips a queued job that a new one replaces. */
function* replaceJob(tx: Transaction, id: string, replacement: FlatChange): Step<void> {
  const [row] = yield {
    sql: `SELECT j.n, j.lane, j.priority, j.run_at, ${headColumns}, ${createdColumns} FROM jobs j
      JOIN lanes l ON l.id = j.lane WHERE j.id = ?`,
    values: [id],
  };
  if (!row) throw new Overtaken(`Job ${id} was removed while it was to be replaced.`);
  const n = int(row, "n");
  const log = [valuesOf(row), ...(yield* tx.dialect.readLater(n))];
  const head = headOf(headValues(row));
  const job = fold(log.map((values) => eventFrom(head, values)));
  const [, , , , , , , eventId, actor] = replacement.values;
  const decision = decide(
    job,
    {
      command: "skip",
      eventId: `${eventId}:skipped`,
      actor: actor as JobEvent["actor"],
      reason: "replaced",
      replacedBy: replacement.id,
    },
    tx.now,
  );
  // It may have run to its end since the line was looked at.
  if (!decision.ok || !job) throw new Overtaken(`Job ${id} moved on while it was to be replaced.`);
  const at = {
    n,
    lane: int(row, "lane"),
    rank: -int(row, "priority"),
    runAt: int(row, "run_at"),
    id,
  };
  const taken = yield* takeWaiting(at, job.version);
  if (!taken) throw new Overtaken(`Job ${id} was claimed while it was to be replaced.`);
  yield* tx.dialect.appendEvent(tx, n, eventValues(decision.event));
  yield* endJob(tx, taken, { ...decision.event, detail: "replaced", aggregate: null });
  if (taken.slim.key !== null) yield* promoteKey(tx, taken.slim.key);
}

/** Remembers the key, its limits and what its policy last did. */
export function* recordKey(
  tx: Transaction,
  job: Pick<NewJob, "service" | "type">,
  policy: JobKeyPolicy,
  outcome: PolicyOutcome,
): Step<void> {
  yield {
    sql: `INSERT INTO keys (hash, service, type, key, max_active, max_queued, when_full, takeovers, outcome, outcome_at)
      VALUES (?,?,?,?,?,?,?,0,?,?)
      ON CONFLICT (hash) DO UPDATE SET service = excluded.service, type = excluded.type, key = excluded.key, max_active = excluded.max_active, max_queued = excluded.max_queued,
        when_full = excluded.when_full, outcome = excluded.outcome, outcome_at = excluded.outcome_at`,
    values: [
      policy.hash,
      job.service,
      job.type,
      policy.key,
      policy.maxActive,
      policy.maxQueued,
      policy.whenFull,
      JSON.stringify(outcome),
      tx.now,
    ],
    planned: true,
    silent: true,
  };
}
