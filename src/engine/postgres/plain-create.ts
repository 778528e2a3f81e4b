/**
 * Storing plain creates: any number of them in one statement, which is a transaction of its own.
 */
import type { AppendOutcome } from "../engine.js";
import type { PlainCreate } from "../sql/plain.js";
import { arrays, countOf, type SqlValue, type Step } from "../sql/statement.js";
import type { Transaction } from "../sql/transaction.js";
import { array, list, table } from "./text.js";

/** What is told of each job, in the order of a create's members. */
const types = {
  id: "text",
  lane: "int",
  priority: "int",
  run_at: "bigint",
  created_at: "bigint",
  deadline: "bigint",
  max_tries: "int",
  context: "text",
  created_id: "text",
  created_by: "text",
  created_body: "text",
} as const;

const input = table("i", types);
const given = Object.keys(types).join(", ");
const one = Object.values(types)
  .map((type) => `?::${type}`)
  .join(", ");
const columns = `n, ${given}, created_state`;

/** Puts stored jobs in line; where they come from follows. */
const lineUp = `
    INSERT INTO ready (n, id, lane, rank, run_at, state, version, run, tries, token, deadline, updated_at, noted)
    SELECT n, id, lane, -priority, run_at, 'pending', 1, 1, 0, 0, deadline, created_at, 0`;

/** What the jobs of most batches have in common, and is sent once then. They are due when they are created, too. */
const shared: ReadonlySet<string> = new Set([
  "lane",
  "priority",
  "deadline",
  "max_tries",
  "created_by",
]);

/** What is told of stored jobs to whoever puts them in line. */
const told = "RETURNING n, id, lane, priority, run_at, created_at, deadline";

/**
 * Numbers and stores all jobs, or fails if an id is taken. Without joins it is planned once for any number of jobs. Lists
 * are taken apart among the columns of a row: as a table, each of them would be stored first.
 */
function storeAll(areAlike: boolean): string {
  const placeOf = (name: string, type: string) =>
    areAlike && shared.has(name) ? `?::${type}` : `unnest(${array(type)})`;
  const sent = Object.entries(types).filter(([name]) => !areAlike || name !== "run_at");
  const stored = areAlike ? given.replace("run_at", "created_at") : given;
  return `INSERT INTO jobs (${columns}) SELECT nextval('events_seq'), ${stored}, 'pending'
    FROM (SELECT ${sent.map(([name, type]) => `${placeOf(name, type)} AS ${name}`).join(", ")}) AS i
    ${told}`;
}

/** The same, where an id may also be taken by a deleted job whose worker has not let go: there the division fails. */
function insertAll(areAlike: boolean): string {
  return `WITH stored AS (${storeAll(areAlike)}),
  lined AS (${lineUp} FROM stored)
  SELECT 1 / (1 - held.count) FROM (
    SELECT count(*) FROM (SELECT 1 FROM slots WHERE job = ANY(${array("text")}) AND until IS NOT NULL AND until > ? LIMIT 1) AS held
  ) AS held`;
}

const insertAlike = insertAll(true);
const insertUnlike = insertAll(false);

/** Jobs whose ids no others can have had. */
const insertFresh = (store: string) => `WITH stored AS (${store}) ${lineUp} FROM stored`;
const insertFreshAlike = insertFresh(storeAll(true));
const insertFreshUnlike = insertFresh(storeAll(false));
const insertFreshOne = insertFresh(
  `INSERT INTO jobs (${columns}) SELECT nextval('events_seq'), i.*, 'pending' FROM (VALUES (${one})) AS i (id) ${told}`,
);

/** Creates plain jobs, all of them or none: it fails where an id is taken. */
export function* createAllPlain(
  tx: Transaction,
  items: readonly PlainCreate[],
): Step<readonly AppendOutcome[]> {
  const [first] = items;
  if (first === undefined) return [];
  if (items.length === 1) return [yield* createOne(tx, first)];
  const areAlike = items.every((item) => isAlike(item, first));
  const lists = areAlike ? alikeColumns(tx, items, first) : columnsOf(tx, items);
  const values = [...lists, lists[0] as string, tx.now];
  const sql = areAlike ? insertAlike : insertUnlike;
  yield { sql, values, raw: true, planned: true, last: true };
  tx.woke.ready = true;
  return items.map(() => appended);
}

/** Creates plain jobs whose ids were made for them, all of them or none. */
export function* createAllFresh(
  tx: Transaction,
  items: readonly PlainCreate[],
): Step<readonly AppendOutcome[]> {
  const [first] = items;
  if (first === undefined) return [];
  let sql = insertFreshOne;
  let values = items.length === 1 ? columnsOfOne(tx, first) : null;
  if (values === null) {
    const areAlike = items.every((item) => isAlike(item, first));
    sql = areAlike ? insertFreshAlike : insertFreshUnlike;
    values = areAlike ? alikeColumns(tx, items, first) : columnsOf(tx, items);
  }
  yield { sql, values, counted: true, planned: true };
  tx.woke.ready = true;
  return items.map(() => appended);
}

/** Numbers the jobs, stores those whose ids are free, and gives the ids of the others. */
const insert = `WITH input AS MATERIALIZED (SELECT nextval('events_seq') AS n, i.* FROM ${input}),
  stored AS (
    INSERT INTO jobs (${columns}) SELECT n, ${given}, 'pending' FROM input
    WHERE NOT EXISTS (SELECT 1 FROM slots WHERE job = input.id AND until IS NOT NULL AND until > ?)
    ON CONFLICT (id) DO NOTHING RETURNING n
  ),
  lined AS (${lineUp} FROM input JOIN stored USING (n))
  SELECT id FROM input WHERE n NOT IN (SELECT n FROM stored)`;

/** The same for one job, without lists to take apart and join. It tells by their number whether there was one to put in line. */
const insertOne = `WITH stored AS (
    INSERT INTO jobs (${columns}) SELECT nextval('events_seq'), i.*, 'pending'
    FROM (VALUES (${one})) AS i (id)
    WHERE NOT EXISTS (SELECT 1 FROM slots WHERE job = i.id AND until IS NOT NULL AND until > ?)
    ON CONFLICT (id) DO NOTHING ${told}
  )
  ${lineUp} FROM stored`;

const appended: AppendOutcome = { outcome: "appended" };
const exists: AppendOutcome = { outcome: "exists" };

/** How many columns the table of creates has, and the first member of a create that is one as it stands. */
const width = 11;
const plainFrom = 5;

/** Where the values of columns stand in a create. Four members make the lane. */
const memberOf = {
  id: 0,
  priority: 5,
  run_at: 6,
  created_at: 7,
  deadline: 8,
  max_tries: 9,
  context: 10,
  created_id: 11,
  created_by: 12,
  created_body: 13,
} as const;
const sharedMembers = [1, 2, 3, 4, 5, 8, 9, 12] as const;

/** Creates plain jobs; one whose id is taken is left out and told so. Of two with the same id, one is stored. */
export function* createPlain(
  tx: Transaction,
  items: readonly PlainCreate[],
): Step<readonly AppendOutcome[]> {
  const values = [...columnsOf(tx, items), tx.now];
  const left = arrays<[string]>(yield { sql: insert, values, raw: true });
  tx.woke.ready = true;
  if (left.length === 0) return items.map(() => appended);
  return outcomesWithout(
    items,
    left.map(([id]) => id),
  );
}

/** Creates as lists, one for each column. */
function columnsOf(tx: Transaction, items: readonly PlainCreate[]): readonly string[] {
  const columns = Array.from({ length: width }, () => new Array<SqlValue>(items.length));
  const set = (row: number, column: number, value: SqlValue) => {
    (columns[column] as SqlValue[])[row] = value;
  };
  for (let row = 0; row < items.length; row++) {
    const item = items[row] as PlainCreate;
    set(row, 0, item[0]);
    set(row, 1, laneOf(tx, item));
    for (let member = plainFrom; member < item.length; member++)
      set(row, member - plainFrom + 2, item[member] as SqlValue);
  }
  return columns.map(list);
}

/** Whether a create has in common with another what alike ones share, and is due when it is created. */
function isAlike(item: PlainCreate, first: PlainCreate): boolean {
  for (const member of sharedMembers) if (item[member] !== first[member]) return false;
  return item[memberOf.run_at] === item[memberOf.created_at];
}

/** Alike creates, in the order of their statement's columns: lists where they differ, and once what they share. */
function alikeColumns(
  tx: Transaction,
  items: readonly PlainCreate[],
  first: PlainCreate,
): readonly SqlValue[] {
  const listOf = (member: number) => list(items.map((item) => item[member] as SqlValue));
  return [
    listOf(memberOf.id),
    laneOf(tx, first),
    first[memberOf.priority],
    listOf(memberOf.created_at),
    first[memberOf.deadline],
    first[memberOf.max_tries],
    listOf(memberOf.context),
    listOf(memberOf.created_id),
    first[memberOf.created_by],
    listOf(memberOf.created_body),
  ];
}

/** One create, in the order of its statement's columns. */
function columnsOfOne(tx: Transaction, item: PlainCreate): readonly SqlValue[] {
  const [id, , , , , ...plain] = item;
  return [id, laneOf(tx, item), ...plain];
}

function* createOne(tx: Transaction, item: PlainCreate): Step<AppendOutcome> {
  const values = [...columnsOfOne(tx, item), tx.now];
  const sql = insertOne;
  const stored = countOf(yield { sql, values, counted: true, planned: true, last: true });
  if (stored === 0) return exists;
  tx.woke.ready = true;
  return appended;
}

/** The number of a create's lane, which is known before anything is stored. */
function laneOf(tx: Transaction, [id, service, queue, type, typeVersion]: PlainCreate): number {
  const lane = tx.lanes.get(`${service}/${queue}/${type}@${typeVersion}`);
  if (lane === undefined) throw new Error(`The lane of job ${id} is not stored.`);
  return lane;
}

/** An id may be in the batch twice: it is told as often as it was left out, the last ones first. */
function outcomesWithout(
  items: readonly PlainCreate[],
  left: readonly string[],
): readonly AppendOutcome[] {
  const counts = new Map<string, number>();
  for (const id of left) counts.set(id, (counts.get(id) ?? 0) + 1);
  const outcomes = new Array<AppendOutcome>(items.length);
  for (let row = items.length - 1; row >= 0; row--) {
    const id = (items[row] as PlainCreate)[0];
    const count = counts.get(id) ?? 0;
    if (count > 0) counts.set(id, count - 1);
    outcomes[row] = count > 0 ? exists : appended;
  }
  return outcomes;
}
