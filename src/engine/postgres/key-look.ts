/**
 * Looking at many keys at once, for creates that hold their locks: how many jobs each has, who is first in line, and whom a
 * create that finds it full is told of.
 */
import { mayTakeSlot } from "../../core/admission.js";
import type { JobKeyPolicy } from "../../core/job.js";
import { Overtaken } from "../sql/overtaken.js";
import { arrays, type SqlValue, type Step } from "../sql/statement.js";
import { compare, type FullKey, KeyLine, type Standing, type StoredLine } from "./key-line.js";
import { array, list, table } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

/** The most jobs of one key that creates let in besides their own. Where there may be more, they go step by step. */
const lineMax = 100;

const hashes = `unnest(${array("text")}) AS i (hash)`;

/** The first in line of a key `i.hash`, also of those whose time has come unnoticed; how many follows. */
const firstInLine = `SELECT n, id, rank, run_at, coalesce(key_max, 1) AS key_max FROM waiting
  WHERE key = i.hash AND (cause = 'key' OR (cause = 'due' AND run_at <= ?::bigint)) ORDER BY rank, run_at, id LIMIT`;

/** One statement, so that a job that moves from one table to the other meanwhile counts once. */
const selectKeys = `SELECT i.hash, (SELECT 1 FROM keys WHERE hash = i.hash) AS locked,
    (SELECT count(*) FROM slots WHERE scope = 'k:' || i.hash AND (until IS NULL OR until > ?::bigint)) AS taken,
    (SELECT count(*) FROM (SELECT 1 FROM waiting WHERE key = i.hash LIMIT i.most) AS line) AS waiting,
    f.n, f.id, f.rank, f.run_at, f.key_max
  FROM ${table("i", { hash: "text", most: "int" })} LEFT JOIN LATERAL (${firstInLine} 1) AS f ON true`;

/** Those who are to be let in. One that another transaction has locked is passed over: who has the key waits for no job. */
const selectLines = `SELECT i.hash, f.n, f.id, f.rank, f.run_at, f.key_max
  FROM ${hashes} CROSS JOIN LATERAL (${firstInLine} ${lineMax} FOR UPDATE SKIP LOCKED) AS f`;

/** The oldest job of each key that has not started, and the oldest that runs. */
const selectFull = `SELECT i.hash, q.id AS queued, r.id AS running FROM ${hashes}
  LEFT JOIN LATERAL (
    SELECT id FROM (
      SELECT n, id FROM waiting WHERE key = i.hash AND cause <> 'blocked'
      UNION ALL SELECT r.n, r.id FROM slots s JOIN jobs j ON j.id = s.job
        JOIN ready r ON r.lane = j.lane AND r.rank = -j.priority AND r.run_at = j.run_at AND r.id = j.id
        WHERE s.scope = 'k:' || i.hash
    ) AS queued ORDER BY n LIMIT 1
  ) AS q ON true
  LEFT JOIN LATERAL (
    SELECT l.id FROM slots s, LATERAL (SELECT id, n FROM held_by_job WHERE id = s.job OFFSET 0) AS l
    WHERE s.scope = 'k:' || i.hash ORDER BY l.n LIMIT 1
  ) AS r ON true`;

type StandingRow = readonly [n: number, id: string, rank: number, runAt: number, keyMax: number];
type KeyRow = readonly [
  hash: string,
  locked: 1 | null,
  taken: number,
  waiting: number,
  ...first: StandingRow | readonly [n: null, ...SqlValue[]],
];

/** What creates ask of one key. */
interface Asked {
  count: number;
  limitMin: number;
  limitMax: number;
}

/** The lines of the keys that jobs are created under, which are locked. */
export function* lookAtKeys(
  tx: PostgresTransaction,
  policies: readonly JobKeyPolicy[],
): Step<ReadonlyMap<string, KeyLine>> {
  const asked = askedOf(policies);
  const stored = yield* storedLines(tx, asked);
  const full: string[] = [];
  for (const [hash, { count, limitMin }] of asked) {
    const { taken, waiting } = stored.get(hash) ?? empty;
    if (taken + waiting + count > limitMin) full.push(hash);
  }
  const told = full.length > 0 ? yield* fullKeys(full) : new Map<string, FullKey>();
  const lines = new Map<string, KeyLine>();
  for (const hash of asked.keys())
    lines.set(hash, new KeyLine(stored.get(hash) ?? empty, told.get(hash)));
  return lines;
}

const empty: StoredLine = { taken: 0, waiting: 0, first: [], isWhole: true };

function askedOf(policies: readonly JobKeyPolicy[]): ReadonlyMap<string, Asked> {
  const asked = new Map<string, Asked>();
  for (const { hash, maxActive, maxQueued } of policies) {
    const limit = maxActive + maxQueued;
    const known = asked.get(hash);
    if (known === undefined) {
      asked.set(hash, { count: 1, limitMin: limit, limitMax: limit });
      continue;
    }
    known.count += 1;
    known.limitMin = Math.min(known.limitMin, limit);
    known.limitMax = Math.max(known.limitMax, limit);
  }
  return asked;
}

function* storedLines(
  tx: PostgresTransaction,
  asked: ReadonlyMap<string, Asked>,
): Step<ReadonlyMap<string, StoredLine>> {
  // Some may leave the line before the last create is decided, and all limits must still be told apart then.
  const most = [...asked.values()].map(({ limitMax }) => Math.min(limitMax + lineMax, intMax));
  const rows = yield {
    sql: selectKeys,
    values: [tx.now, list([...asked.keys()]), list(most), tx.now],
    raw: true,
    planned: true,
  };
  const stored = new Map<string, StoredLine>();
  const free: string[] = [];
  for (const [hash, locked, takenCount, waitingCount, ...row] of arrays<KeyRow>(rows)) {
    // Who removes keys that nobody used for long was faster, and what is not there is not locked.
    if (locked === null) throw new Overtaken(`Key ${hash} was removed while it was to be locked.`);
    const taken = Number(takenCount);
    const first = row[0] === null ? null : standing(row as StandingRow);
    stored.set(hash, {
      taken,
      waiting: Number(waitingCount),
      first: first === null ? [] : [first],
      isWhole: first === null,
    });
    // A slot came free, and nobody has let the next one in yet.
    if (first !== null && mayTakeSlot(first.keyMax, taken)) free.push(hash);
  }
  if (free.length === 0) return stored;
  const found = yield {
    sql: selectLines,
    values: [list(free), tx.now],
    raw: true,
    planned: true,
  };
  const lines = new Map<string, Standing[]>(free.map((hash) => [hash, []]));
  for (const [hash, ...row] of arrays<readonly [string, ...StandingRow]>(found))
    lines.get(hash)?.push(standing(row));
  for (const [hash, first] of lines)
    stored.set(hash, {
      ...(stored.get(hash) ?? empty),
      first: first.sort(compare),
      isWhole: first.length < lineMax,
    });
  return stored;
}

/** The largest number that a column of type `int` holds. */
const intMax = 2 ** 31 - 1;

function standing([n, id, rank, runAt, keyMax]: StandingRow): Standing {
  return { n: Number(n), id, rank, runAt: Number(runAt), keyMax };
}

function* fullKeys(keys: readonly string[]): Step<ReadonlyMap<string, FullKey>> {
  const rows = yield { sql: selectFull, values: [list(keys)], raw: true, planned: true };
  const full = new Map<string, FullKey>();
  for (const [hash, oldestQueued, running] of arrays<[string, string | null, string | null]>(rows))
    full.set(hash, { oldestQueued, running });
  return full;
}
