/**
 * The feed of a store that was restored into another server. Events and the places of readers name transactions of the server
 * before. Where the new one has not come that far, it would hide those events, and take its own for read. So all events get a
 * transaction that everybody sees, and every place that is kept in the store becomes one by position. Where the new server is
 * further on, nothing has to be done: whatever was read stays read, and whatever comes is new.
 */
import type { PoolClient } from "pg";
import { recordId } from "../record.js";
import { cursorOf, endOf, type FeedPlace, newestXid, placeOf } from "./feed.js";
import { lockTimeoutMs } from "./settings.js";
import { StatementTexts } from "./text.js";

/** The first transaction that a server ever has, long before any of ours, and the snapshot that sees it and nothing more. */
const restored = "3";
const seesRestored = "4:4:";

/** The tables of events, each with the position of a row and that of its last event. */
const tables = [
  { table: "jobs", first: "e.n", last: "e.n" },
  { table: "events", first: "e.seq", last: "e.seq" },
  { table: "rounds", first: "e.seq", last: "e.seq + cardinality(e.jobs) - 1" },
] as const;

/** A place that a reader keeps in a record. */
interface KeptPlace {
  readonly id: string;
  readonly body: { readonly cursor: string };
  readonly place: FeedPlace;
}

/**
 * Whether something in the store names a transaction that this server has not come to. On the server that wrote it that cannot
 * be, because what is seen has been committed.
 */
export async function hasMoved(client: PoolClient, schema: string): Promise<boolean> {
  return (await look(client, schema)) !== null;
}

const selectEnds = `SELECT pg_snapshot_xmax(pg_current_snapshot())::text AS next, ${newestXid}::text AS newest`;
const selectKept = "SELECT id, body FROM records WHERE id >= ? AND id < ? ORDER BY id";

/** Gives the first transaction that this server has not come to, and the places that are kept; null where nothing was moved. */
async function look(
  client: PoolClient,
  schema: string,
): Promise<{ readonly next: string; readonly kept: readonly KeptPlace[] } | null> {
  const texts = new StatementTexts(`"${schema}"`);
  const range = [recordId.cursors, `${recordId.cursors}\u{10FFFF}`];
  // They are read first: whoever stores a place meanwhile may have come further than the transactions that are looked at here.
  const { rows } = await client.query(texts.of(selectKept).text, range);
  const ends = await client.query(texts.of(selectEnds).text);
  const { next, newest } = ends.rows[0] as { readonly next: string; readonly newest: string };
  const kept = rows.flatMap(({ id, body }) => keptPlace(String(id), String(body)) ?? []);
  const isBehind =
    Number(newest) >= Number(next) || kept.some(({ place }) => endOf(place) > Number(next));
  return isBehind ? { next, kept } : null;
}

/** The place that a record keeps. One that is of another store leads nowhere, here or there. */
function keptPlace(id: string, text: string): KeptPlace | null {
  try {
    const body = JSON.parse(text) as KeptPlace["body"];
    return { id, body, place: placeOf(body.cursor) };
  } catch {
    return null;
  }
}

/** Makes the feed one of this server, in a transaction that keeps everybody else from writing, unless somebody has. */
export async function moveFeed(client: PoolClient, schema: string): Promise<void> {
  await client.query(`SET LOCAL search_path TO "${schema}"`);
  // All who write wait behind this, and so it does not wait for long for somebody's open transaction.
  await client.query(`SET LOCAL lock_timeout TO ${lockTimeoutMs}`);
  await client.query("LOCK TABLE jobs, events, rounds, records IN SHARE ROW EXCLUSIVE MODE");
  const moved = await look(client, schema);
  if (moved === null) return;
  const { rows } = await client.query("UPDATE store SET moves = moves + 1 RETURNING moves");
  const moves = Number(rows[0]?.moves);
  for (const { id, body, place } of moved.kept) {
    const seq = await readUpTo(client, place, moved.next);
    const until = seesRestored;
    const cursor = cursorOf(
      seq === null
        ? { seen: until, until: null, seq: 0, moves }
        : { seen: null, until, seq, moves },
    );
    await client.query("UPDATE records SET body = $1, version = version + 1 WHERE id = $2", [
      JSON.stringify({ ...body, cursor }),
      id,
    ]);
  }
  for (const { table } of tables)
    await client.query(
      `UPDATE ${table} SET xid = '${restored}'::xid8 WHERE xid <> '${restored}'::xid8`,
    );
}

/**
 * The position up to which a reader has read everything; null where that is all there is. Events that a process has written on
 * this server, because it went on while the store was moved, are behind those that name later transactions, and nobody has
 * read them.
 */
async function readUpTo(
  client: PoolClient,
  { seen, until, seq }: FeedPlace,
  next: string,
): Promise<number | null> {
  const sees = (snapshot: string) =>
    `coalesce(pg_visible_in_snapshot(e.xid, ${snapshot}::pg_snapshot), false)`;
  const newest = tables.map(
    ({ table, first }) => `(SELECT max(${first}) FROM ${table} e WHERE e.xid >= $4::xid8)`,
  );
  const unread = tables.map(
    ({ table, first, last }) => `SELECT min(
        CASE WHEN ${sees("$2")} THEN greatest(${first} - 1, least($3::bigint, ${last})) ELSE ${first} - 1 END
      ) AS place FROM ${table} e, moved
      WHERE NOT (${sees("$1")} OR (${sees("$2")} AND ${last} <= $3::bigint))
        OR (e.xid < $4::xid8 AND ${first} > moved.newest)`,
  );
  const { rows } = await client.query(
    `WITH moved AS (SELECT greatest(${newest.join(", ")}) AS newest)
     SELECT min(place) AS place FROM (${unread.join(" UNION ALL ")}) AS unread`,
    [seen, until, seq, next],
  );
  const place: unknown = rows[0]?.place;
  return place === null ? null : Number(place);
}
