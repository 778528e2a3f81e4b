/**
 * What a claim sees first, in one statement: the first in line of every lane, locked, unless another transaction has
 * them or the queue is paused, and what time has brought or will bring.
 */
import { recordId } from "../record.js";
import type { CapsLeft, OpenLane } from "../sql/caps.js";
import { creationColumns } from "../sql/rows.js";
import { arrays, type SqlValue, type Step } from "../sql/statement.js";
import { front, type Mark, type Marks } from "./marks.js";
import { list, table } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

/**
 * A lane that nobody may claim from yet, since its caps are not counted, gives no rows but tells whether it has any.
 * `OFFSET 0` keeps the planner from asking once for each job what is asked once for each lane.
 */
const look = `SELECT r.ctid::text, r.n, r.id, i.lane, r.rank, r.run_at, r.state, r.version, r.run, r.tries, r.token, r.deadline,
    r.key, r.noted, r.started_at,
    j.context, j.created_state, j.created_at, j.created_id, j.created_by, j.created_body, i.due_at,
    (SELECT min(s.until) FROM slots s WHERE s.until IS NOT NULL),
    CASE WHEN i.places = 0 AND NOT i.paused AND EXISTS (
      SELECT 1 FROM ready o WHERE o.lane = i.lane AND (o.rank, o.run_at, o.id) > (i.rank, i.run_at, i.id)) THEN 1 END
  FROM (SELECT i.*, (SELECT min(w.run_at) FROM waiting w WHERE w.lane = i.lane AND w.cause = 'due') AS due_at,
      coalesce((SELECT (c.body::json ->> 'paused')::boolean FROM records c
        WHERE c.id = i.record AND (c.expires_at IS NULL OR c.expires_at > ?)), false) AS paused
    FROM ${table("i", { lane: "int", record: "text", places: "int", rank: "int", run_at: "bigint", id: "text" })} OFFSET 0) AS i
  LEFT JOIN LATERAL (SELECT ctid, n, id, rank, run_at, state, version, run, tries, token, deadline, key, noted, started_at
    FROM ready WHERE lane = i.lane AND (rank, run_at, id) > (i.rank, i.run_at, i.id)
    ORDER BY rank, run_at, id LIMIT CASE WHEN i.paused THEN 0 ELSE i.places END FOR UPDATE SKIP LOCKED) AS r ON true
  LEFT JOIN LATERAL (SELECT ${creationColumns}, created_at FROM jobs WHERE n = r.n OFFSET 0) AS j ON true`;

/** A job that can be claimed, with the event that created it. */
export type ReadyRow = readonly [
  ctid: string | null,
  n: number,
  id: string,
  lane: number,
  rank: number,
  runAt: number,
  state: "pending" | "retry",
  version: number,
  run: number,
  tries: number,
  token: number,
  deadline: number | null,
  key: string | null,
  noted: number,
  startedAt: number | null,
  context: string,
  createdState: string,
  createdAt: number,
  createdId: string,
  createdBy: string,
  createdBody: string,
  ...lane: LaneView,
];

/** What every row tells of its lane. A lane without jobs has one row of nothing else. */
type LaneView = readonly [dueAt: number | null, lapsesAt: number | null, isLined: 1 | null];

/** A job that can be claimed, and the lane that it stands in. */
export interface Candidate {
  readonly open: OpenLane;
  readonly row: ReadyRow;
}

/** What a claim sees. */
export interface Outlook {
  readonly found: readonly Candidate[];
  /** Lanes that have jobs, and whose caps are not counted yet. */
  readonly lined: readonly OpenLane[];
  /** Lanes with jobs whose time has come. */
  readonly due: readonly number[];
  /** When the next job of these lanes becomes due, and when the next slot of an ended job lapses. */
  readonly dueAt: number;
  readonly lapsesAt: number;
}

/** One lane of a look, and what was seen there. */
interface View {
  readonly open: OpenLane;
  readonly places: number;
  mark: Mark | null;
  rows: readonly ReadyRow[];
  dueAt: number;
  lapsesAt: number;
  isLined: boolean;
}

/** Looks at lanes: behind the last job that was claimed where a lane is busy, and at the front where that was not enough. */
export function* lookAhead(
  tx: PostgresTransaction,
  lanes: readonly OpenLane[],
  limit: number,
  left: CapsLeft,
  marks: Marks,
): Step<Outlook> {
  const views = lanes.map((open): View => {
    const places = Math.min(open.free, limit, ...open.caps.map((scope) => left.get(scope) ?? 0));
    const nothing = { rows: [], dueAt: never, lapsesAt: never, isLined: false };
    return { open, places: Math.max(places, 0), mark: marks.from(open.number), ...nothing };
  });
  yield* lookAt(tx, views, marks);
  const short = views.filter(isShort);
  for (const view of short) view.mark = null;
  if (short.length > 0) yield* lookAt(tx, short, marks);
  return {
    found: views.flatMap(({ open, rows }) => rows.map((row) => ({ open, row }))),
    lined: views.filter(({ isLined }) => isLined).map(({ open }) => open),
    due: views.filter(({ dueAt }) => dueAt <= tx.now).map(({ open }) => open.number),
    dueAt: Math.min(never, ...views.map(({ dueAt }) => dueAt)),
    lapsesAt: Math.min(never, ...views.map(({ lapsesAt }) => lapsesAt)),
  };
}

const never = Number.POSITIVE_INFINITY;

/** Behind the mark there was less than there is place for. */
function isShort({ mark, places, rows, isLined }: View): boolean {
  return mark !== null && (places === 0 ? !isLined : rows.length < places);
}

function* lookAt(tx: PostgresTransaction, views: readonly View[], marks: Marks): Step<void> {
  const column = (of: (view: View) => SqlValue) => list(views.map(of));
  const values = [
    tx.now,
    column(({ open }) => open.number),
    column(({ open }) => recordId.queue(open.lane.service, open.lane.queue)),
    column(({ places }) => places),
    column(({ mark }) => (mark ?? front).rank),
    column(({ mark }) => (mark ?? front).runAt),
    column(({ mark }) => (mark ?? front).id),
  ];
  const startedAt = performance.now();
  const rows = arrays<ReadyRow>(yield { sql: look, values, raw: true, planned: true });
  const tookMs = performance.now() - startedAt;
  const byLane = new Map<number, ReadyRow[]>();
  for (const row of rows) {
    const known = byLane.get(row[3]);
    if (known) known.push(row);
    else byLane.set(row[3], [row]);
  }
  for (const view of views) {
    const seen = byLane.get(view.open.number) ?? [];
    const [first] = seen;
    if (!first) continue;
    view.dueAt = first[21] ?? never;
    view.lapsesAt = first[22] ?? never;
    view.isLined = first[23] === 1;
    if (view.isLined) marks.lined(view.open.number, true);
    view.rows = first[0] === null ? [] : seen;
    if (view.mark === null && view.places > 0) marks.looked(view.open.number, tookMs);
    remember(view, marks);
  }
}

function remember({ open, rows }: View, marks: Marks): void {
  const last = [...rows].sort(compareRows).at(-1);
  if (last) marks.found(open.number, rows.length, { rank: last[4], runAt: last[5], id: last[2] });
}

/** The order of claims. */
export function compareRows(a: ReadyRow, b: ReadyRow): number {
  return a[4] - b[4] || a[5] - b[5] || (a[2] < b[2] ? -1 : 1);
}
