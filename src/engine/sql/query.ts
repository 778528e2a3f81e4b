/**
 * The read model in SQL: lists, counts, keys and queues, from one view over the wide and the slim rows.
 */
import type { Aggregate, JobState, PolicyOutcome, WhenFull } from "../../core/job.js";
import { isEnded } from "../../core/job.js";
import type {
  JobFilter,
  JobRow,
  JobsAsk,
  KeyHolder,
  KeyRow,
  Page,
  QueueRow,
  RecordsAsk,
  StateCount,
} from "../query.js";
import { checkFilter, pageDefault, pageMax, recordOwnersMax } from "../query.js";
import type { QueueSettings, StoredRecord } from "../record.js";
import { ownerOf, recordId } from "../record.js";
import { recordFromRow } from "./records.js";
import { keyScope } from "./slim.js";
import { int, optional, type SqlRow, type SqlValue, type Step, text } from "./statement.js";

/** Joins that find the one row of a job which says where it is: its end, or its slim row. */
export function joinSlim(job: string): string {
  return `LEFT JOIN ended d ON d.n = ${job}.n
  LEFT JOIN waiting w ON w.n = ${job}.n AND d.n IS NULL
  LEFT JOIN ready r ON d.n IS NULL AND r.lane = ${job}.lane AND r.rank = -${job}.priority
    AND r.run_at = ${job}.run_at AND r.id = ${job}.id
  LEFT JOIN held_by_job s ON d.n IS NULL AND s.id = ${job}.id`;
}

/** Whether a job has not ended, by the expression of its number. */
export function isOpen(number: string): string {
  return `NOT EXISTS (SELECT 1 FROM ended x WHERE x.n = ${number})`;
}

const slimJoins = joinSlim("j");

const stateColumn = "coalesce(d.state, w.state, r.state, 'active')";

const rowColumns = `j.n, j.id, l.service, l.queue, l.type, l.type_version, ${stateColumn} AS state,
  coalesce(w.version, r.version, s.version, d.version) AS version, coalesce(w.run, r.run, s.run, d.run) AS run,
  coalesce(w.tries, r.tries, s.tries, d.tries) AS tries, j.max_tries, j.priority, j.run_at, j.created_at,
  coalesce(w.updated_at, r.updated_at, s.updated_at, d.updated_at) AS updated_at, j.tags, j.deadline,
  coalesce(w.started_at, r.started_at, s.started_at, d.started_at) AS started_at, d.ended_at, j.key, j.key_hash,
  coalesce(w.detail, r.detail, d.detail) AS detail, j.parent_id, j.chain_id, j.agent, d.aggregate,
  s.worker, s.heartbeat_at, s.until, s.cancel`;

/** A list row from its columns. */
function jobRow(row: SqlRow): JobRow {
  return {
    id: text(row, "id"),
    service: text(row, "service"),
    type: text(row, "type"),
    typeVersion: int(row, "type_version"),
    queue: text(row, "queue"),
    state: row.state as JobState,
    version: int(row, "version"),
    run: int(row, "run"),
    tries: int(row, "tries"),
    maxTries: int(row, "max_tries"),
    priority: int(row, "priority"),
    runAt: int(row, "run_at"),
    createdAt: int(row, "created_at"),
    updatedAt: int(row, "updated_at"),
    tags: row.tags === null ? [] : (JSON.parse(text(row, "tags")) as string[]),
    ...optional<"deadline", number>("deadline", row.deadline),
    ...optional<"startedAt", number>("startedAt", row.started_at),
    ...optional<"endedAt", number>("endedAt", row.ended_at),
    ...optional<"key", string>("key", row.key),
    ...optional<"keyHash", string>("keyHash", row.key_hash),
    ...optional<"detail", string>("detail", row.state === "completed" ? null : row.detail),
    ...optional<"parentId", string>("parentId", row.parent_id),
    ...optional<"chainId", string>("chainId", row.chain_id),
    ...optional<"agent", string>("agent", row.agent),
    ...optional<"aggregate", Aggregate>("aggregate", row.aggregate),
    ...optional<"worker", string>("worker", row.worker),
    ...optional<"heartbeatAt", number>("heartbeatAt", row.heartbeat_at),
    ...optional<"leaseUntil", number>("leaseUntil", row.until),
    ...(row.cancel === 1 ? { cancelRequested: true as const } : null),
  };
}

/** Conditions with their values, joined by AND. */
export interface Where {
  readonly sql: string;
  readonly values: readonly SqlValue[];
}

/** The conditions of a filter on `jobs j`. */
export function where(filter: JobFilter, cursor?: number): Where {
  checkFilter(filter);
  const parts: string[] = [];
  const values: SqlValue[] = [];
  const add = (sql: string, ...more: SqlValue[]) => {
    parts.push(sql);
    values.push(...more);
  };
  const lanes = laneCondition(filter, isOfEnds(filter) ? "d.lane" : "j.lane");
  if (lanes) add(lanes.sql, ...lanes.values);
  if (filter.state) addStates(filter.state, add);
  if (filter.tag !== undefined) add("j.n IN (SELECT n FROM tags WHERE tag = ?)", filter.tag);
  if (filter.key !== undefined) {
    add("j.key_hash IN (SELECT hash FROM keys WHERE key = ?)", filter.key);
  }
  if (filter.since !== undefined) add("j.created_at >= ?", filter.since);
  if (filter.until !== undefined) add("j.created_at < ?", filter.until);
  if (filter.text !== undefined)
    add("j.id LIKE ? ESCAPE '!'", `%${filter.text.replaceAll(/[%_!]/g, "!$&")}%`);
  if (filter.parentId !== undefined) add("j.parent_id = ?", filter.parentId);
  if (filter.chainId !== undefined) add("j.chain_id = ?", filter.chainId);
  if (cursor !== undefined) add("j.n < ?", cursor);
  return { sql: parts.length > 0 ? `WHERE ${parts.join(" AND ")}` : "", values };
}

/** Names live in lanes, of which there are few, so that a filter by name becomes one by lane. */
function laneCondition(filter: JobFilter, lane: string): Where | null {
  const parts: string[] = [];
  const values: SqlValue[] = [];
  for (const column of ["service", "type", "queue"] as const) {
    const value = filter[column];
    if (value === undefined) continue;
    parts.push(`${column} = ?`);
    values.push(value);
  }
  if (parts.length === 0) return null;
  return { sql: `${lane} IN (SELECT id FROM lanes WHERE ${parts.join(" AND ")})`, values };
}

/** Ended states stand beside the lane, where an index finds them; the others in the slim rows, which are few. */
function addStates(
  states: readonly JobState[],
  add: (sql: string, ...values: SqlValue[]) => void,
): void {
  const wanted = [...new Set(states)];
  const marks = wanted.map(() => "?").join(",");
  if (wanted.length === 0) add("1 = 0");
  else if (wanted.every(isEnded)) add(`d.state IN (${marks})`, ...wanted);
  else if (wanted.some(isEnded)) add(`${stateColumn} IN (${marks})`, ...wanted);
  else {
    const active = wanted.includes("active") ? "UNION ALL SELECT n FROM held" : "";
    const sql = `j.n IN (SELECT n FROM waiting WHERE state IN (${marks})
      UNION ALL SELECT n FROM ready WHERE state IN (${marks}) ${active})`;
    add(sql, ...wanted, ...wanted);
  }
}

/** Whether a filter asks for ended jobs only. */
function isOfEnds({ state = [] }: JobFilter): boolean {
  return state.length > 0 && state.every(isEnded);
}

/** What is counted: the end of a job stands for it where only ends are asked for, and the wide row is not always needed. */
function counted(filter: JobFilter): string {
  const { state, ...rest } = filter;
  if (!isOfEnds(filter)) return "FROM jobs j";
  return onlyNames(rest) ? "FROM ended d" : "FROM ended d JOIN jobs j ON j.n = d.n";
}

/** Ended jobs and all others are found by different rows, and so a filter for both is two, whose pages are put together. */
function partsOf(filter: JobFilter): readonly JobFilter[] {
  const ended = filter.state?.filter(isEnded) ?? [];
  const open = filter.state?.filter((state) => !isEnded(state)) ?? [];
  if (ended.length === 0 || open.length === 0) return [filter];
  return [
    { ...filter, state: open },
    { ...filter, state: ended },
  ];
}

/** Which part of a list is asked for. */
interface PageAsk {
  readonly limit?: number;
  readonly offset?: number;
  readonly cursor?: string;
}

/** Some of the entries of a list. */
interface ListPart {
  /** What is counted. */
  readonly counted: string;
  readonly where: (cursor?: number) => Where;
}

/** A list that can be counted and read in pages, the newest job `j` first. No job is in two of its parts. */
interface Listing<Entry> {
  readonly parts: readonly ListPart[];
  /** What is read: the columns with all the joins that they need. */
  readonly select: string;
  readonly entry: (row: SqlRow) => Entry;
}

/** Reads one page of a list. */
export function* readPage<Entry>(ask: PageAsk, listing: Listing<Entry>): Step<Page<Entry>> {
  const limit = Math.min(ask.limit ?? pageDefault, pageMax);
  const offset = ask.offset ?? 0;
  const skipped = ask.cursor === undefined ? offset : 0;
  const isWhole = listing.parts.length === 1;
  const found: SqlRow[] = [];
  let count = 0;
  for (const part of listing.parts) {
    const all = part.where();
    const [counted] = yield {
      sql: `SELECT count(*) AS count ${part.counted} ${all.sql}`,
      values: all.values,
    };
    if (counted) count += int(counted, "count");
    const page = part.where(ask.cursor === undefined ? undefined : Number(ask.cursor));
    const range = isWhole ? [limit + 1, skipped] : [skipped + limit + 1, 0];
    const sql = `SELECT ${listing.select} ${page.sql} ORDER BY j.n DESC LIMIT ? OFFSET ?`;
    found.push(...(yield { sql, values: [...page.values, ...range] }));
  }
  const rows = isWhole
    ? found
    : found.sort((a, b) => int(b, "n") - int(a, "n")).slice(skipped, skipped + limit + 1);
  const entries = rows.slice(0, limit);
  const last = entries.at(-1);
  return {
    entries: entries.map(listing.entry),
    count,
    offset,
    limit,
    ...(rows.length > limit && last
      ? { nextOffset: offset + limit, nextCursor: String(int(last, "n")) }
      : null),
  };
}

/** A page of jobs, newest first. */
export function listJobs(ask: JobsAsk): Step<Page<JobRow>> {
  const filter = ask.filter ?? {};
  return readPage(ask, {
    parts: partsOf(filter).map((part) => ({
      counted: counted(part),
      where: (cursor) => where(part, cursor),
    })),
    select: `${rowColumns} FROM jobs j JOIN lanes l ON l.id = j.lane ${slimJoins}`,
    entry: jobRow,
  });
}

/** One job as a list shows it. */
export function* readJob(id: string): Step<JobRow | null> {
  const [row] = yield {
    sql: `SELECT ${rowColumns} FROM jobs j JOIN lanes l ON l.id = j.lane ${slimJoins} WHERE j.id = ?`,
    values: [id],
  };
  return row ? jobRow(row) : null;
}

/** How many jobs are in which state, from index entries and slim rows alone where names and states are the only filter. */
export function* countJobs(filter: JobFilter): Step<readonly StateCount[]> {
  checkFilter(filter);
  const { state, ...rest } = filter;
  const rows = onlyNames(rest) ? yield* countByIndex(rest, state) : yield* countByRows(filter);
  return rows.map((row) => ({
    service: text(row, "service"),
    type: text(row, "type"),
    queue: text(row, "queue"),
    state: row.state as JobState,
    count: int(row, "count"),
  }));
}

function onlyNames(filter: JobFilter): boolean {
  const { service, type, queue, ...rest } = filter;
  return Object.values(rest).every((value) => value === undefined);
}

const countEnded = "SELECT lane, state, count(*) AS count FROM ended GROUP BY lane, state";
const countOpen = `SELECT lane, state, count(*) AS count FROM waiting GROUP BY lane, state
  UNION ALL SELECT lane, state, count(*) FROM ready GROUP BY lane, state
  UNION ALL SELECT lane, 'active', count(*) FROM held GROUP BY lane`;

function* countByIndex(names: JobFilter, states: JobFilter["state"]): Step<readonly SqlRow[]> {
  const counts: string[] = [];
  if (states?.some(isEnded) ?? true) counts.push(countEnded);
  if (states?.some((state) => !isEnded(state)) ?? true) counts.push(countOpen);
  if (counts.length === 0) return [];
  const lanes = laneCondition(names, "c.lane");
  const conditions = lanes ? [lanes.sql] : [];
  if (states) conditions.push(`c.state IN (${states.map(() => "?").join(",")})`);
  return yield {
    sql: `SELECT l.service, l.type, l.queue, c.state, sum(c.count) AS count FROM (${counts.join(" UNION ALL ")}) AS c
      JOIN lanes l ON l.id = c.lane ${conditions.length > 0 ? `WHERE ${conditions.join(" AND ")}` : ""}
      GROUP BY l.service, l.type, l.queue, c.state ORDER BY l.service, l.type, l.queue, c.state`,
    values: [...(lanes?.values ?? []), ...(states ?? [])],
  };
}

function* countByRows(filter: JobFilter): Step<readonly SqlRow[]> {
  const condition = where(filter);
  return yield {
    sql: `SELECT l.service, l.type, l.queue, ${stateColumn} AS state, count(*) AS count
      FROM jobs j JOIN lanes l ON l.id = j.lane ${slimJoins} ${condition.sql}
      GROUP BY l.service, l.type, l.queue, ${stateColumn} ORDER BY l.service, l.type, l.queue, ${stateColumn}`,
    values: condition.values,
  };
}

/** Rows of no service stand in for keys that somebody wanted to lock before there were any. */
const isKey = "service <> ''";

/** A page of concurrency keys, the one used last first. */
export function* listKeys(
  now: number,
  ask: { service?: string; type?: string; limit?: number; offset?: number },
): Step<Page<KeyRow>> {
  const limit = Math.min(ask.limit ?? pageDefault, pageMax);
  const offset = ask.offset ?? 0;
  const names = (["service", "type"] as const).filter((name) => ask[name] !== undefined);
  const values = names.map((name) => ask[name] ?? null);
  const condition = `WHERE ${[isKey, ...names.map((name) => `${name} = ?`)].join(" AND ")}`;
  const [counted] = yield { sql: `SELECT count(*) AS count FROM keys ${condition}`, values };
  const rows = yield {
    sql: `SELECT * FROM keys ${condition} ORDER BY outcome_at DESC, hash LIMIT ? OFFSET ?`,
    values: [...values, limit + 1, offset],
  };
  const entries: KeyRow[] = [];
  for (const row of rows.slice(0, limit)) entries.push(yield* keyRow(now, row));
  const count = counted ? int(counted, "count") : 0;
  return {
    entries,
    count,
    offset,
    limit,
    ...(rows.length > limit ? { nextOffset: offset + limit } : null),
  };
}

/** One concurrency key. */
export function* readKey(now: number, hash: string): Step<KeyRow | null> {
  const [row] = yield { sql: `SELECT * FROM keys WHERE hash = ? AND ${isKey}`, values: [hash] };
  return row ? yield* keyRow(now, row) : null;
}

function* keyRow(now: number, row: SqlRow): Step<KeyRow> {
  const hash = text(row, "hash");
  const found = yield {
    sql: `SELECT t.job, t.token, t.until AS ended_until, s.worker, s.heartbeat_at, s.until, s.blocked
      FROM slots t LEFT JOIN leases s ON s.id = t.job AND s.token = t.token WHERE t.scope = ? AND (t.until IS NULL OR t.until > ?) ORDER BY t.job, t.token`,
    values: [keyScope(hash), now],
  };
  const holders: SqlRow[] = [];
  for (const holder of found) holders.push(yield* withSharedLease(holder));
  const queued = yield {
    sql: `SELECT id FROM waiting WHERE key = ?
      ORDER BY cause = 'blocked', cause = 'due' AND run_at > ?, CASE WHEN run_at > ? THEN run_at ELSE 0 END, rank, run_at, id LIMIT ?`,
    values: [hash, now, now, pageMax],
  };
  const [count] = yield {
    sql: "SELECT count(*) AS count FROM waiting WHERE key = ?",
    values: [hash],
  };
  return {
    service: text(row, "service"),
    type: text(row, "type"),
    key: text(row, "key"),
    hash,
    maxActive: int(row, "max_active"),
    maxQueued: int(row, "max_queued"),
    whenFull: row.when_full as WhenFull,
    active: holders.map(keyHolder),
    queued: queued.map((waiting) => text(waiting, "id")),
    queuedCount: count ? int(count, "count") : 0,
    blocked: holders.some((holder) => holder.blocked === 1),
    takeovers: int(row, "takeovers"),
    ...(row.outcome === null
      ? null
      : {
          lastOutcome: {
            ...(JSON.parse(text(row, "outcome")) as PolicyOutcome),
            at: int(row, "outcome_at"),
          },
        }),
  };
}

/** A holder without a lease of its own may share one, which is looked for by itself: a join would go through all of them. */
function* withSharedLease(holder: SqlRow): Step<SqlRow> {
  if (holder.worker !== null || holder.ended_until !== null) return holder;
  const [lease] = yield {
    sql: "SELECT worker, heartbeat_at, until, blocked FROM held_by_job WHERE id = ? AND token = ?",
    values: [text(holder, "job"), int(holder, "token")],
  };
  return { ...holder, ...lease };
}

function keyHolder(row: SqlRow): KeyHolder {
  const until = row.until ?? row.ended_until;
  return {
    jobId: text(row, "job"),
    state: row.ended_until !== null ? "ended" : row.worker === null ? "reserved" : "active",
    token: int(row, "token"),
    ...optional<"worker", string>("worker", row.worker),
    ...optional<"heartbeatAt", number>("heartbeatAt", row.heartbeat_at),
    ...optional<"leaseUntil", number>("leaseUntil", until),
  };
}

/** The queues that jobs are in or that have settings. */
export function* listQueues(now: number, service: string | undefined): Step<readonly QueueRow[]> {
  const counts = yield* countJobs(service === undefined ? {} : { service });
  const settings = yield* listRecords(now, {
    prefix: service === undefined ? recordId.queues : recordId.queue(service, ""),
    limit: pageMax * 10,
  });
  const queues = new Map<
    string,
    { service: string; queue: string; paused: boolean; waiting: number; active: number }
  >();
  const queue = (name: string, of: string) => {
    const id = recordId.queue(of, name);
    const found = queues.get(id) ?? {
      service: of,
      queue: name,
      paused: false,
      waiting: 0,
      active: 0,
    };
    queues.set(id, found);
    return found;
  };
  for (const count of counts) {
    const found = queue(count.queue, count.service);
    if (count.state === "active") found.active += count.count;
    else if (!isEnded(count.state)) found.waiting += count.count;
  }
  for (const record of settings) {
    const [, of = "", name = ""] = record.id.split("/");
    queue(name, of).paused = (record.body as unknown as QueueSettings).paused;
  }
  return [...queues.entries()].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, row]) => row);
}

/** The most records that one question gives. */
const recordsMax = 1_000;

/** The records whose ids start with a prefix. */
export function* listRecords(
  now: number,
  { prefix, before, limit = recordsMax }: RecordsAsk,
): Step<readonly StoredRecord[]> {
  const end = `${prefix}\u{10FFFF}`;
  const until = before !== undefined && before < end ? before : end;
  const rows = yield {
    sql: `SELECT id, version, body, expires_at FROM records WHERE id >= ? AND id < ? AND (expires_at IS NULL OR expires_at > ?)
      ORDER BY id ${before === undefined ? "" : "DESC"} LIMIT ?`,
    values: [prefix, until, now, limit],
  };
  return rows.map(recordFromRow);
}

/** The owners of the records of a prefix, found by going from the last of each to the one before. */
export function* listRecordOwners(now: number, prefix: string): Step<readonly string[]> {
  const owners: string[] = [];
  let before = `${prefix}\u{10FFFF}`;
  while (owners.length < recordOwnersMax) {
    const [row] = yield {
      sql: `SELECT id FROM records WHERE id >= ? AND id < ? AND (expires_at IS NULL OR expires_at > ?)
        ORDER BY id DESC LIMIT 1`,
      values: [prefix, before, now],
    };
    if (row === undefined) break;
    const owner = ownerOf(text(row, "id"));
    owners.push(owner);
    before = `${prefix}${owner}/`;
  }
  return owners.sort();
}

/** How far the place of a job in its lane is counted. */
const aheadMax = 10_000;

/** How many claimable jobs come before one in its lane. */
export function* countAhead(id: string): Step<number> {
  const [row] = yield {
    sql: `SELECT count(*) AS ahead FROM (SELECT 1 FROM jobs j JOIN ready r ON r.lane = j.lane
      AND (r.rank, r.run_at, r.id) < (-j.priority, j.run_at, j.id) WHERE j.id = ? LIMIT ?) AS before`,
    values: [id, aheadMax],
  };
  return row ? int(row, "ahead") : 0;
}
