/**
 * Storing plain creates, many in few statements.
 */
import type { AppendOutcome } from "../engine.js";
import { laneNumber } from "../sql/log.js";
import type { PlainCreate } from "../sql/plain.js";
import { type SqlValue, type Step, text } from "../sql/statement.js";
import type { Transaction } from "../sql/transaction.js";

/** How many jobs go into one statement. */
const chunkSize = 10;

const eventRow = "(?,?,'created',1,1,0,'pending',NULL,?,?,?,?,?)";
const jobRow = "(?,?,?,?,?,?,?,?)";
const readyRow = "(?,?,?,?,?,'pending',1,1,0,0,?,?,0)";

const insertEvents = `INSERT INTO events
  (seq, job, name, version, run, tries, state, previous, at, id, actor, body, context) VALUES `;
const insertJobs = `INSERT INTO jobs
  (n, id, lane, priority, run_at, created_at, deadline, max_tries) VALUES `;
const insertReady = `INSERT INTO ready
  (n, id, lane, rank, run_at, state, version, run, tries, token, deadline, updated_at, noted) VALUES `;

/** The statements for a number of rows at once. */
function statements(rows: number) {
  const repeat = (row: string) => new Array<string>(rows).fill(row).join(",");
  return {
    taken: `SELECT id FROM jobs WHERE id IN (${repeat("?")})
      UNION ALL SELECT job FROM slots WHERE job IN (${repeat("?")}) AND until IS NOT NULL AND until > ?`,
    events: insertEvents + repeat(eventRow),
    jobs: insertJobs + repeat(jobRow),
    ready: insertReady + repeat(readyRow),
  };
}

const many = statements(chunkSize);
const one = statements(1);

/** Creates plain jobs; one whose id is taken is left out and told so. */
export function* createPlain(
  tx: Transaction,
  items: readonly PlainCreate[],
): Step<readonly AppendOutcome[]> {
  const outcomes = new Array<AppendOutcome>(items.length);
  let start = 0;
  while (start < items.length) {
    const size = items.length - start >= chunkSize ? chunkSize : 1;
    const chunk = size === items.length ? items : items.slice(start, start + size);
    const ids = chunk.map(([id]) => id);
    const taken = yield* takenIds(tx, ids);
    if (taken.size === 0) {
      yield* insert(tx, chunk, size === 1 ? one : many);
      for (let index = 0; index < size; index++) outcomes[start + index] = appended;
    } else {
      for (let index = 0; index < size; index++)
        outcomes[start + index] = yield* createOne(tx, chunk[index], taken);
    }
    start += size;
  }
  return outcomes;
}

const appended: AppendOutcome = { outcome: "appended" };
const exists: AppendOutcome = { outcome: "exists" };

/**
 * The ids, one or a whole chunk of them, that are taken: by a job, by a deleted job whose worker has not let go
 * and whose token a new job would use again, or by another of the same chunk.
 */
function* takenIds(tx: Transaction, ids: readonly string[]): Step<Set<string>> {
  const sql = ids.length === 1 ? one.taken : many.taken;
  const rows = yield { sql, values: [...ids, ...ids, tx.now] };
  const taken = new Set(rows.map((row) => text(row, "id")));
  if (ids.length > 1 && new Set(ids).size < ids.length) {
    for (const [index, id] of ids.entries()) if (ids.indexOf(id) !== index) taken.add(id);
  }
  return taken;
}

function* createOne(
  tx: Transaction,
  item: PlainCreate | undefined,
  taken: ReadonlySet<string>,
): Step<AppendOutcome> {
  if (!item) return exists;
  if (taken.has(item[0]) && (yield* takenIds(tx, [item[0]])).size > 0) return exists;
  yield* insert(tx, [item], one);
  return appended;
}

function* insert(
  tx: Transaction,
  chunk: readonly PlainCreate[],
  sql: ReturnType<typeof statements>,
): Step<void> {
  const events: SqlValue[] = [];
  const jobs: SqlValue[] = [];
  const ready: SqlValue[] = [];
  for (const item of chunk) {
    const [
      id,
      service,
      queue,
      type,
      typeVersion,
      priority,
      runAt,
      at,
      deadline,
      maxTries,
      context,
      eventId,
      actor,
      body,
    ] = item;
    const name = `${service}/${queue}/${type}@${typeVersion}`;
    const lane =
      tx.lanes.get(name) ?? (yield* laneNumber(tx, { service, queue, type, typeVersion }));
    const n = ++tx.seq;
    events.push(n, n, at, eventId, actor, body, context);
    jobs.push(n, id, lane, priority, runAt, at, deadline, maxTries);
    ready.push(n, id, lane, -priority, runAt, deadline, at);
  }
  yield { sql: sql.events, values: events };
  yield { sql: sql.jobs, values: jobs };
  yield { sql: sql.ready, values: ready };
  tx.woke.ready = true;
}
