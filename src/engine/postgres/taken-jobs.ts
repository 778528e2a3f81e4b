/**
 * What the statement of a plain claim tells of the jobs that it took: column by column, each as one list, because a row for
 * each job would cost the process more than its job does.
 */
import type { ClaimedJob } from "../engine.js";
import type { SharedLeases } from "./shared-leases.js";
import { joined, nothing, separator } from "./text.js";

/** What is read of each job `r` that was taken and of its wide row `j`. A fold does not ask who created it, nor as what. */
const columns = [
  "r.id",
  // What most jobs have in common is not written out: no priority, and due when they were created.
  "CASE r.rank WHEN 0 THEN '' ELSE r.rank::text END",
  "CASE r.run_at WHEN j.created_at THEN '' ELSE r.run_at::text END",
  "j.created_at::text",
  "j.context",
  "j.created_body",
] as const;

/** Those columns as lists, and their names. */
export const takenLists = columns
  .map((column, place) => `${joined(column)} AS list${place}`)
  .join(", ");
export const takenNames = columns.map((_, place) => `t.list${place}`).join(", ");

/** What a claim tells: of its lanes, of a lease that its jobs share, and of the jobs. */
export type ClaimRow = readonly [
  found: number,
  dueAt: number | null,
  lapsesAt: number | null,
  isLined: 1 | null,
  sharedSeq: number | null,
  /** The numbers of the jobs in the order of their lease, where that is not the order of the lists. */
  sharedJobs: string | null,
  /** The lane of all jobs that share a lease, or the lanes of jobs that do not. */
  lane: number | null,
  lanes: string | null,
  /** The numbers of the jobs, where they have to be told apart by them. */
  numbers: string | null,
  /** The logs of jobs that have more than their creation, each behind the job's number. */
  logs: string | null,
  ids: string | null,
  ...lists: string[],
];

/** The jobs of a claim, column by column. */
export interface TakenJobs {
  /** Where the jobs stand in the columns, in the order of claims. */
  readonly order: readonly number[];
  readonly ids: readonly string[];
  readonly ranks: readonly number[];
  readonly runAts: readonly number[];
  readonly createdAts: readonly number[];
  readonly contexts: readonly string[];
  readonly bodies: readonly string[];
  laneOf(place: number): number;
  /** The events since the creation of a job, if there are any. */
  logOf(place: number): string | undefined;
}

/** Takes the lists of a claim apart. */
export function takenJobs(row: ClaimRow): TakenJobs {
  const [, , , , , , lane, laneList, numberList, logList, idList, ...lists] = row;
  const parted = idList === null ? [] : [idList, ...lists].map((list) => list.split(separator));
  const [ids = [], rankTexts = [], runAtTexts = [], createdTexts = [], contexts = [], bodies = []] =
    parted;
  const ranks = rankTexts.map(Number);
  const createdAts = createdTexts.map(Number);
  const runAts = createdAts.map((createdAt, place) => {
    const runAt = runAtTexts[place] as string;
    return runAt === "" ? createdAt : Number(runAt);
  });
  const lanes = laneList?.split(separator);
  const numbers = numberList?.split(separator) ?? [];
  const logs = new Map(
    logList?.split(separator).map((log) => log.split(nothing) as [n: string, log: string]),
  );
  return {
    order: claimOrder(ids, ranks, runAts),
    ids,
    ranks,
    runAts,
    createdAts,
    contexts,
    bodies,
    laneOf: (place) => lane ?? Number(lanes?.[place]),
    logOf: (place) => (logs.size === 0 ? undefined : logs.get(numbers[place] ?? "")),
  };
}

/** What a claim of few jobs tells of its lanes and, if it took any, of one of them. */
export type FewRow = readonly [
  found: number,
  dueAt: number | null,
  lapsesAt: number | null,
  isLined: 1 | null,
  lane: number,
  id: string | null,
  rank: number,
  runAt: number,
  createdAt: number,
  context: string,
  body: string,
];

/** The jobs of a claim of few. */
export function takenRows(rows: readonly FewRow[]): TakenJobs {
  const ids: string[] = [];
  const ranks: number[] = [];
  const runAts: number[] = [];
  const createdAts: number[] = [];
  const contexts: string[] = [];
  const bodies: string[] = [];
  for (const [, , , , , id, rank, runAt, createdAt, context, body] of rows) {
    if (id === null) continue;
    ids.push(id);
    ranks.push(rank);
    runAts.push(runAt);
    createdAts.push(createdAt);
    contexts.push(context);
    bodies.push(body);
  }
  return {
    order: claimOrder(ids, ranks, runAts),
    ids,
    ranks,
    runAts,
    createdAts,
    contexts,
    bodies,
    laneOf: (place) => (rows[place] as FewRow)[4],
    logOf: () => undefined,
  };
}

/** Remembers which of the jobs share a lease, in its order, and their keys. */
export function rememberShared(
  row: ClaimRow,
  { ids }: TakenJobs,
  jobs: readonly ClaimedJob[],
  leases: SharedLeases,
): void {
  const [, , , , seq, sharedJobs, , , numbers] = row;
  if (seq === null) return;
  const keys = new Map<string, string>();
  for (const { job } of jobs) if (job.key) keys.set(job.id, job.key.hash);
  leases.remember(seq, inOrderOf(sharedJobs, numbers, ids), keys);
}

function inOrderOf(
  sharedJobs: string | null,
  numbers: string | null,
  ids: readonly string[],
): readonly string[] {
  if (sharedJobs === null || numbers === null) return ids;
  const idOf = new Map(numbers.split(separator).map((n, place) => [n, ids[place]]));
  return sharedJobs.split(separator).map((n) => idOf.get(n) ?? "");
}

/** Jobs are deleted in one scan, which gives them in no order. */
function claimOrder(
  ids: readonly string[],
  ranks: readonly number[],
  runAts: readonly number[],
): readonly number[] {
  const by = (values: readonly number[], a: number, b: number) =>
    (values[a] as number) - (values[b] as number);
  return ids
    .map((_, place) => place)
    .sort((a, b) => by(ranks, a, b) || by(runAts, a, b) || (isBefore(ids, a, b) ? -1 : 1));
}

function isBefore(ids: readonly string[], a: number, b: number): boolean {
  return (ids[a] as string) < (ids[b] as string);
}
