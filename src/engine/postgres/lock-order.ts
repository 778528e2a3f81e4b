/**
 * Locks what the changes of a batch will need, in one order that all processes keep,
 * so that batches wait for each other and never in a circle.
 */
import type { Change } from "../engine.js";
import { Overtaken } from "../sql/overtaken.js";
import { arrays, countOf, type SqlRow, type Statement, type Step } from "../sql/statement.js";
import { insertKeys, keyRemoved } from "./stand-in.js";
import { array, list } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

const selectKeys = `SELECT id, key_hash FROM jobs WHERE id = ANY(${array("text")}) AND key_hash IS NOT NULL`;

// What is not there cannot be locked, so stand-ins are made as for a single change.
const insertRecords = `INSERT INTO records (id, version, body, expires_at)
  SELECT id, 0, 'null', 0 FROM unnest(${array("text")}) AS i (id) ON CONFLICT (id) DO NOTHING`;
const lockRecords = `SELECT id FROM records WHERE id = ANY(${array("text")}) ORDER BY id FOR UPDATE`;
const insertMissing = insertKeys(`unnest(${array("text")})`);
const lockKeys = `SELECT hash FROM keys WHERE hash = ANY(${array("text")}) ORDER BY hash FOR UPDATE`;
const changeKeys = `UPDATE keys SET takeovers = takeovers WHERE hash = ANY(${array("text")})`;

const lockHeld = `SELECT id FROM leases WHERE id = ANY(${array("text")}) ORDER BY id FOR UPDATE`;

/** What happens to an existing job and leaves it its place under its key. */
const leavesKey: ReadonlySet<string> = new Set([
  "created",
  "cancelRequested",
  "keyBlocked",
  "dismissed",
]);

/** The keys of the jobs whose places under these may change, by the ids of the jobs. A job never gets another key. */
export function* keysOf(changes: readonly Change[]): Step<ReadonlyMap<string, string>> {
  const ids = new Set(
    changes.flatMap(({ job, event }) => (leavesKey.has(event.name) ? [] : job.id)),
  );
  if (ids.size === 0) return new Map();
  const rows = yield { sql: selectKeys, values: [list([...ids])], raw: true, planned: true };
  return new Map(arrays<[id: string, key: string]>(rows));
}

/** Whether a change lets a continuation wait for others, so that it will look for a circle. */
export function looksForCircle({ follow = [] }: Change): boolean {
  return follow.some(({ event }) => event.name === "created" && event.blockers.length > 0);
}

/** Locks what circles are looked for under, then records, then keys, each in the order of their names. */
export function* lockInOrder(tx: PostgresTransaction, changes: readonly Change[]): Step<void> {
  if (changes.some(looksForCircle)) yield* tx.dialect.lockCircles();
  const records = new Set<string>();
  const keys = new Set<string>();
  for (const { event, records: writes } of withFollow(changes)) {
    for (const { id } of [...(writes?.before ?? []), ...(writes?.after ?? [])]) records.add(id);
    if (event.name === "created" && event.key !== undefined) keys.add(event.key.hash);
  }
  for (const key of (yield* keysOf(changes)).values()) keys.add(key);
  if (records.size > 0) {
    const values = inOrder(records);
    yield { sql: insertRecords, values, planned: true, counted: true, silent: true };
    yield { sql: lockRecords, values, planned: true, counted: true, silent: true };
  }
  if (keys.size === 0) return;
  const locked = yield* takeKeys(tx, keys);
  if (countOf(locked) < keys.size) throw new Overtaken(keyRemoved);
  // A transaction of the caller's that sees less than what is stored under them next fails at their rows.
  yield { sql: changeKeys, values: inOrder(keys), planned: true, counted: true, silent: true };
}

/** The same with keys that are looked at next, where those that are not there any more will be noticed, and changed then. */
export function* lockKeysForLook(tx: PostgresTransaction, keys: ReadonlySet<string>): Step<void> {
  yield* takeKeys(tx, keys, true);
}

/** Locks keys, made where they are not there. Its answer tells how many, unless nobody waits for it. */
function* takeKeys(
  tx: PostgresTransaction,
  keys: ReadonlySet<string>,
  silent?: true,
): Step<readonly SqlRow[]> {
  const values = inOrder(keys);
  yield { sql: insertMissing, values, planned: true, counted: true, silent: true };
  for (const key of keys) tx.locked.add(key);
  const lock: Statement = { sql: lockKeys, values, planned: true, counted: true };
  return yield silent ? { ...lock, silent } : lock;
}

/** Locks the leases of jobs, in the order of their ids. Gives the changes whose jobs have one. */
export function* lockLeases(changes: readonly Change[]): Step<readonly Change[]> {
  const values = [list(changes.map(({ job }) => job.id))];
  const rows = arrays<[string]>(yield { sql: lockHeld, values, raw: true, planned: true });
  const held = new Set(rows.map(([id]) => id));
  return changes.filter(({ job }) => held.has(job.id));
}

/** Changes, and what follows from them. */
function withFollow(changes: readonly Change[]): readonly Change[] {
  return changes.flatMap((change) => [change, ...withFollow(change.follow ?? [])]);
}

/** Names as one list, in the order in which everybody locks them. */
function inOrder(names: ReadonlySet<string>): readonly [string] {
  return [list([...names].sort())];
}
