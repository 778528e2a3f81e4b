/**
 * Storing plain creates, many in few statements.
 */
import type { AppendOutcome } from "../engine.js";
import { isTaken } from "../sql/create.js";
import { type LaneParts, laneNumber } from "../sql/log.js";
import type { PlainCreate } from "../sql/plain.js";
import { creationColumns } from "../sql/rows.js";
import { int, type SqlValue, type Step } from "../sql/statement.js";
import type { Transaction } from "../sql/transaction.js";

const row = "(?,?,?,?,?,?,?,?,?,?,'pending',?,?)";

const insertJobs = `INSERT INTO jobs
  (n, id, lane, priority, run_at, created_at, deadline, max_tries, ${creationColumns}) VALUES `;

/** Puts the jobs of some positions in line. */
const insertReady = `INSERT INTO ready
    (n, id, lane, rank, run_at, state, version, run, tries, token, deadline, updated_at, noted)
  SELECT n, id, lane, -priority, run_at, 'pending', 1, 1, 0, 0, deadline, created_at, 0
  FROM jobs WHERE n > ? AND n <= ?`;

/** How many jobs go into one statement at most. */
const chunkMax = 32;

/** The statements for up to so many jobs at once, each made when it is first needed. */
const inserts: string[] = [];

/** The statement for a number of jobs. A job whose id is taken is not inserted. */
function insertOf(rows: number): string {
  inserts[rows] ??=
    `${insertJobs}${new Array<string>(rows).fill(row).join(",")} ON CONFLICT (id) DO NOTHING`;
  return inserts[rows];
}

/** Creates plain jobs; one whose id is taken is left out and told so. */
export function* createPlain(
  tx: Transaction,
  items: readonly PlainCreate[],
): Step<readonly AppendOutcome[]> {
  const outcomes: AppendOutcome[] = [];
  const before = tx.seq;
  const isSafe = !(yield* holdsOfEnded(tx));
  for (let start = 0; start < items.length; start += chunkMax) {
    const chunk = items.length <= chunkMax ? items : items.slice(start, start + chunkMax);
    if (isSafe && (yield* insert(tx, chunk))) for (const _ of chunk) outcomes.push(appended);
    else for (const item of chunk) outcomes.push(yield* createOne(tx, item));
  }
  if (tx.seq > before) {
    yield { sql: insertReady, values: [before, tx.seq] };
    tx.woke.ready = true;
  }
  return outcomes;
}

const appended: AppendOutcome = { outcome: "appended" };
const exists: AppendOutcome = { outcome: "exists" };

/** Whether workers have not let go of jobs that were ended from outside. Their ids are taken even if the jobs are gone. */
function* holdsOfEnded(tx: Transaction): Step<boolean> {
  const sql = "SELECT 1 FROM slots WHERE until IS NOT NULL AND until > ? LIMIT 1";
  return (yield { sql, values: [tx.now] }).length > 0;
}

function* createOne(tx: Transaction, item: PlainCreate): Step<AppendOutcome> {
  if (yield* isTaken(tx, item[0])) return exists;
  return (yield* insert(tx, [item])) ? appended : exists;
}

/** Inserts all of a chunk, or nothing where an id is taken. */
function* insert(tx: Transaction, chunk: readonly PlainCreate[]): Step<boolean> {
  const values: SqlValue[] = [];
  const before = tx.seq;
  let n = before;
  let last: PlainCreate | null = null;
  let lane = 0;
  for (const item of chunk) {
    if (last === null || !isOfLane(item, last)) lane = yield* laneNumber(tx, laneOf(item));
    last = item;
    n += 1;
    const [id, , , , , priority, runAt, at, deadline, maxTries, context, eventId, actor, body] =
      item;
    values.push(n, id, lane, priority, runAt, at, deadline, maxTries);
    values.push(eventId, actor, context, body);
  }
  yield { sql: insertOf(chunk.length), values };
  const [stored] = yield { sql: "SELECT changes() AS count", values: [] };
  if (!stored || int(stored, "count") < chunk.length) {
    yield { sql: "DELETE FROM jobs WHERE n > ? AND n <= ?", values: [before, n] };
    return false;
  }
  tx.seq = n;
  return true;
}

function laneOf([, service, queue, type, typeVersion]: PlainCreate): LaneParts {
  return { service, queue, type, typeVersion };
}

/** Whether a job goes into the same lane as another one, as those of a batch mostly do. */
function isOfLane(item: PlainCreate, other: PlainCreate): boolean {
  return (
    item[3] === other[3] && item[2] === other[2] && item[1] === other[1] && item[4] === other[4]
  );
}
