/**
 * What must hold of every store after every case: the log obeys the rules, loads and rows equal the folds of the log.
 */
import assert from "node:assert/strict";
import type { JobEvent } from "../core/event.js";
import { fold, jobHash } from "../core/evolve.js";
import type { Job } from "../core/job.js";
import { canonicalJson } from "../core/json.js";
import type { Engine } from "../engine/engine.js";
import { type JobRow, pageMax, type StateCount, type TaggedJob } from "../engine/query.js";
import { checkLog } from "./checker.js";
import type { Environment } from "./environment.js";
import { rowOfFold } from "./row-of-fold.js";

/** The most pages that are read of a list, so that a cursor that goes in circles ends in an error. */
const pagesMax = 1_000;

/** Reads everything that a store holds and compares it with the folds of its log. */
export async function verifyStore(env: Environment): Promise<void> {
  const { engine } = env;
  // The feed goes on for ever, so a last job marks where to stop reading.
  const last = await env.create({ type: "last" });
  const events = await readFeed(engine, null, ({ jobId }) => jobId === last.id);
  const rows = engine.capabilities.immediateViews ? await readRows(engine) : undefined;
  const tagged = rows && (await readTagged(engine));
  const violations = await checkLog(events, rows && tagged ? { rows, tagged } : {});
  assert.deepEqual(violations, [], "the log obeys the rules");
  const jobs = await verifyFolds(engine, events);
  if (rows) await verifyViews(engine, jobs, rows);
}

/** The events of the feed after a cursor, up to the last one that is wanted. */
async function readFeed(
  engine: Engine,
  cursor: string | null,
  isLast: (event: JobEvent) => boolean,
): Promise<readonly JobEvent[]> {
  const stop = new AbortController();
  const events: JobEvent[] = [];
  for await (const { event } of engine.tail(cursor, stop.signal)) {
    events.push(event);
    if (isLast(event)) stop.abort();
  }
  return events;
}

/** Every row of the list of jobs, page by page. */
async function readRows(engine: Engine): Promise<readonly JobRow[]> {
  const rows: JobRow[] = [];
  let cursor: string | undefined;
  for (let page = 0; page < pagesMax; page++) {
    const answer = await engine.query("jobs", { limit: pageMax, ...(cursor && { cursor }) });
    rows.push(...answer.entries);
    cursor = answer.nextCursor;
    if (cursor === undefined) return rows;
  }
  throw new Error(`The list of jobs does not end after ${pagesMax} pages.`);
}

/** What lists by tag find, page by page. */
async function readTagged(engine: Engine): Promise<readonly TaggedJob[]> {
  const tagged: TaggedJob[] = [];
  let cursor: string | undefined;
  for (let page = 0; page < pagesMax; page++) {
    const answer = await engine.query("tagged", { limit: pageMax, ...(cursor && { cursor }) });
    tagged.push(...answer.entries);
    cursor = answer.nextCursor;
    if (cursor === undefined) return tagged;
  }
  throw new Error(`The tags of jobs do not end after ${pagesMax} pages.`);
}

async function verifyFolds(engine: Engine, events: readonly JobEvent[]): Promise<readonly Job[]> {
  const logs = new Map<string, JobEvent[]>();
  for (const event of events) {
    if (event.name === "deleted") logs.delete(event.jobId);
    else logs.set(event.jobId, [...(logs.get(event.jobId) ?? []), event]);
  }
  const jobs: Job[] = [];
  for (const [id, log] of logs) {
    const [loaded] = await engine.load([id], { history: true });
    assert.ok(loaded, `job ${id} of the feed can be loaded`);
    assert.equal(
      canonicalJson(loaded.events),
      canonicalJson(log),
      `history and feed of job ${id} agree`,
    );
    const folded = fold(log);
    assert.ok(folded, `the log of job ${id} folds to a job`);
    assert.equal(
      canonicalJson(loaded.job),
      canonicalJson(folded),
      `load and fold of job ${id} agree`,
    );
    assert.equal(jobHash(loaded.job), jobHash(folded));
    jobs.push(folded);
  }
  return jobs;
}

async function verifyViews(
  engine: Engine,
  jobs: readonly Job[],
  rows: readonly JobRow[],
): Promise<void> {
  const folds = new Map(jobs.map((job) => [job.id, job]));
  for (const row of rows) {
    const job = folds.get(row.id);
    assert.ok(job, `the row of job ${row.id} has a log`);
    const { heartbeatAt, leaseUntil, ...told } = row;
    assert.deepEqual(told, rowOfFold(job), `row and fold of job ${row.id} agree`);
    const held = heartbeatAt !== undefined && leaseUntil !== undefined;
    assert.equal(
      held,
      job.state === "active",
      `a lease shows while job ${row.id} is active, and only then`,
    );
  }
  const counts = await engine.query("counts", {});
  assert.deepEqual(countText(counts), countText(countsOf(jobs)), "counts and folds agree");
}

function countsOf(jobs: readonly Job[]): readonly StateCount[] {
  return jobs.map(({ service, type, queue, state }) => ({ service, type, queue, state, count: 1 }));
}

function countText(counts: readonly StateCount[]): Record<string, number> {
  const sums: Record<string, number> = {};
  for (const { service, type, queue, state, count } of counts) {
    const name = [service, type, queue, state].join("/");
    if (count > 0) sums[name] = (sums[name] ?? 0) + count;
  }
  return sums;
}
