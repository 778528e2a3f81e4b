/**
 * What is told at the end: jobs by state, throughput, and the history of one job.
 */
import type { Reads } from "../../client/reads.js";
import type { JobEvent } from "../../core/event.js";
import { jobStates } from "../../core/job.js";
import { type JobRow, pageMax } from "../../engine/query.js";
import { detailOf } from "../event-words.js";
import { bar, duration, grouped, type Paint, stateColours } from "./paint.js";
import { type Counts, endedCount } from "./watch.js";

const barWidth = 30;

/** What the summary says. */
export interface SummaryParts {
  readonly reads: Reads;
  readonly paint: Paint;
  readonly counts: Counts;
  readonly created: number;
  readonly endedBefore: number;
  readonly elapsedMs: number;
}

/** The summary by state, with throughput. */
export function summary({ paint, counts, created, endedBefore, elapsedMs }: SummaryParts): string {
  const states = jobStates.filter((state) => counts[state] > 0);
  const most = Math.max(...states.map((state) => counts[state]), 1);
  const ended = endedCount(counts) - endedBefore;
  const rate = grouped((ended * 1_000) / Math.max(elapsedMs, 1));
  return [
    paint("bold", "Summary"),
    ...states.map((state) => {
      const drawn = bar(counts[state] / most, barWidth).padEnd(barWidth);
      return `  ${state.padEnd(11)} ${grouped(counts[state]).padStart(9)}  ${paint(stateColours[state], drawn)}`.trimEnd();
    }),
    "",
    `  ${grouped(created)} jobs created, ${grouped(ended)} ended in ${duration(elapsedMs)}: ${rate} jobs/s, each of them durable.`,
  ].join("\n");
}

/** The history of the job that has the most to tell, as a timeline. */
export async function timeline({ reads, paint }: SummaryParts): Promise<string | null> {
  const row = await mostTried(reads);
  if (row === null) return null;
  const events = await reads.events(row.id).orThrow();
  const startedAt = events[0]?.at ?? 0;
  const tries = row.tries === 1 ? "1 try" : `${row.tries} tries`;
  return [
    paint("bold", `The history of ${row.type} ${row.id}: ${row.state} after ${tries}`),
    ...events.map((event) => timelineLine(event, startedAt, paint)),
  ].join("\n");
}

function timelineLine(event: JobEvent, startedAt: number, paint: Paint): string {
  const at = `+${duration(event.at - startedAt)}`.padStart(10);
  const name = paint(stateColours[event.state], event.name.padEnd(10));
  return `  ${at}  ${name} ${event.actor.split(":")[0]?.padEnd(6)}  ${detailOf(event)}`.trimEnd();
}

/** Of the jobs that completed last the one that took the most tries; the newest of them. */
async function mostTried(reads: Reads): Promise<JobRow | null> {
  const ask = { state: ["completed"], limit: pageMax } as const;
  const { entries } = await reads.jobs(ask).orThrow();
  return entries.reduce<JobRow | null>(
    (best, row) => (best && best.tries >= row.tries ? best : row),
    null,
  );
}
