/**
 * Creating jobs under keys: any number of them in a handful of statements. The keys are locked in order and then looked at
 * together; core decides one job after the other; one statement stores them all.
 */
import { policyOutcome } from "../../core/admission.js";
import type { EventOf } from "../../core/event.js";
import type { JobKeyPolicy } from "../../core/job.js";
import { isKeepable } from "../../core/names.js";
import type { AppendOutcome, Change } from "../engine.js";
import { Overtaken } from "../sql/overtaken.js";
import { slimColumns } from "../sql/slim.js";
import { arrays, type Step } from "../sql/statement.js";
import { appendEach } from "./append-each.js";
import type { KeyLine } from "./key-line.js";
import { lookAtKeys } from "./key-look.js";
import { type KeyedJob, type KeyRecord, storeKeyed } from "./keyed-store.js";
import { letMovedIn } from "./keys.js";
import { lockKeysForLook } from "./lock-order.js";
import { array, list } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

/** A create under a key. */
export interface KeyedCreate extends Change {
  readonly event: EventOf<"created"> & { readonly key: JobKeyPolicy };
}

/** Whether a change creates a job under a key, and nothing is to be done besides. */
export function isKeyedCreate(change: Change): change is KeyedCreate {
  const { event } = change;
  return (
    event.name === "created" &&
    event.key !== undefined &&
    event.jobId === change.job.id &&
    change.records === undefined &&
    change.follow === undefined &&
    change.expect.version === 0 &&
    event.state === "pending" &&
    event.policy === undefined &&
    event.blockers.length === 0 &&
    // Such a key goes as it is in a statement of its own, but not in a list.
    event.key.key !== "" &&
    isKeepable(event.key.key)
  );
}

/** What becomes of creates: the answers, the jobs to store, what the keys' rows will say, and who is let in besides. */
interface Decided {
  readonly outcomes: readonly AppendOutcome[];
  readonly jobs: readonly KeyedJob[];
  readonly records: readonly KeyRecord[];
  readonly promoted: readonly number[];
}

/**
 * Creates jobs under keys, each decided as if those before it had been stored already. Where `trustsFresh`, ids that were made
 * for their jobs are not looked for; should one be taken after all, everything fails.
 */
export function* createKeyed(
  tx: PostgresTransaction,
  changes: readonly KeyedCreate[],
  trustsFresh: boolean,
): Step<readonly AppendOutcome[]> {
  const chosen = changes.filter(({ isFresh }) => !(isFresh && trustsFresh));
  const taken = yield* takenIds(
    tx,
    chosen.map(({ job }) => job.id),
  );
  // The key of a job that exists is not touched.
  const fresh = changes.filter(({ job }) => !taken.has(job.id));
  if (fresh.length === 0) return changes.map(() => exists);
  yield* lockKeysForLook(tx, new Set(fresh.map(({ event }) => event.key.hash)));
  // A statement sees what was committed before it began, so that this is another than the one that locks.
  const lines = yield* lookAtKeys(
    tx,
    fresh.map(({ event }) => event.key),
  );
  const decided = decideAll(tx, changes, lines, taken);
  if (decided === null) {
    // Who has a job that is to be replaced may wait for the key, and so it is not held for long.
    yield { sql: waitBriefly, values: [], silent: true };
    return yield* appendEach(tx, changes);
  }
  if (decided.promoted.length > 0) yield* promote(decided.promoted);
  if (decided.records.length > 0) yield storeKeyed(tx, decided.jobs, decided.records);
  if (decided.jobs.length > 0) tx.woke.ready = true;
  return decided.outcomes;
}

const exists: AppendOutcome = { outcome: "exists" };

/** For how long a job is waited for with its key in hand, in milliseconds. The create begins again after that, while its patience lasts. */
const waitBriefly = "SELECT set_config('lock_timeout', '100', true)";

const selectTaken = `SELECT id FROM jobs WHERE id = ANY(${array("text")})
  UNION ALL SELECT job FROM slots WHERE job = ANY(${array("text")}) AND until IS NOT NULL AND until > ?::bigint`;

/** Which ids are taken: by a job, or by a deleted one whose worker has not let go. */
function* takenIds(tx: PostgresTransaction, ids: readonly string[]): Step<Set<string>> {
  if (ids.length === 0) return new Set();
  const values = [list(ids), list(ids), tx.now];
  const rows = yield { sql: selectTaken, values, raw: true, planned: true };
  return new Set(arrays<[string]>(rows).map(([id]) => id));
}

/** Decides one create after the other; `null` where one has to do more than to be stored or refused. */
function decideAll(
  tx: PostgresTransaction,
  changes: readonly KeyedCreate[],
  lines: ReadonlyMap<string, KeyLine>,
  taken: Set<string>,
): Decided | null {
  const outcomes: AppendOutcome[] = [];
  const jobs: KeyedJob[] = [];
  const records = new Map<string, KeyRecord>();
  for (const { event } of changes) {
    if (taken.has(event.jobId)) {
      outcomes.push(exists);
      continue;
    }
    const line = lines.get(event.key.hash);
    if (!line) throw new Error(`The key of job ${event.jobId} was not looked at.`);
    const admission = line.admit(event.key);
    if (admission.outcome === "replaced") return null;
    const policy = policyOutcome(admission);
    records.set(event.key.hash, { event, policy });
    if (admission.outcome !== "accepted") {
      outcomes.push({ outcome: "not_admitted", admission });
      continue;
    }
    jobs.push({ event, policy, place: placeOf(tx, line, event) });
    taken.add(event.jobId);
    outcomes.push({ outcome: "appended", policy });
  }
  const all = [...lines.values()];
  if (!all.every(({ isKnown }) => isKnown)) return null;
  const promoted = all.flatMap((line) => line.promoted);
  return { outcomes, jobs, records: [...records.values()], promoted };
}

/** Where a job that is let in belongs: claimable, or waiting for its time or its key. */
function placeOf(
  tx: PostgresTransaction,
  line: KeyLine,
  { jobId, priority, runAt, key }: KeyedCreate["event"],
): KeyedJob["place"] {
  if (runAt > tx.now) {
    line.addLater(jobId);
    return "due";
  }
  const hasSlot = line.add({
    n: null,
    id: jobId,
    rank: -priority,
    runAt,
    keyMax: key.maxActive,
  });
  return hasSlot ? "ready" : "key";
}

/** Who ends a waiting job holds its row and waits for the key, so that nobody who has the key may wait for the row. */
const promoteWaiting = `WITH moved AS (
    DELETE FROM waiting WHERE ctid = ANY(ARRAY(
      SELECT ctid FROM waiting WHERE n = ANY(${array("bigint")}) FOR UPDATE SKIP LOCKED
    )) RETURNING ${slimColumns}
  ),
  ${letMovedIn}
  SELECT count(*) AS moved FROM moved`;

/** Lets stored jobs in, to whom a slot came free before. */
function* promote(numbers: readonly number[]): Step<void> {
  const rows = yield { sql: promoteWaiting, values: [list(numbers)], raw: true, planned: true };
  if (Number(arrays<[number]>(rows)[0]?.[0]) < numbers.length)
    throw new Overtaken("A waiting job moved on while it was to be let in.");
}
