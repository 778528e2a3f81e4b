/**
 * Following one job to its end: its progress for the person at the terminal, its result as data.
 */
import { isEnded } from "../core/job.js";
import { type EventAnswer, eventOf, type JobAnswer } from "./answers.js";
import { ask, path } from "./api.js";
import { Failure } from "./failure.js";
import { jobText, progressText } from "./job-text.js";
import { follow } from "./server-sent.js";
import type { Session } from "./session.js";
import { withoutEscapes } from "./table.js";

/**
 * Waits until a job has ended and prints its result. A job that ended in another way than it should is a failure,
 * and so is one that has not ended in time.
 */
export async function awaitEnd(
  session: Session,
  id: string,
  timeoutMs: number | undefined,
): Promise<void> {
  const { output } = session;
  await followToEnd(session, id, timeoutMs, (answer) => {
    const event = eventOf(answer);
    if (event.name === "progress") output.progress(`${id} ${progressText(event.progress)}`);
    else if (event.name === "logged")
      for (const { level, message } of event.entries)
        output.note(`${level}: ${withoutEscapes(message)}`);
    else if (event.name === "retry")
      output.note(`try ${event.tries} failed: ${withoutEscapes(event.error.message)}`);
    else output.progress(`${id} ${event.state}`);
  });
  const job = await ask<JobAnswer>(await session.api(), "GET", path`/v1/jobs/${id}`);
  if (output.format !== "text") output.document(job, () => "");
  else if (job.result !== undefined) output.line(JSON.stringify(job.result, null, 2));
  endOf(job, () => output.note(jobText(job, output.colors)));
}

/** Throws when a job has ended badly. */
export function endOf(job: JobAnswer, tell: () => void): void {
  if (job.state === "completed" || job.state === "skipped") return;
  const detail = job.error?.message ?? job.reason;
  tell();
  throw new Failure("badEnd", `The job has ended as ${job.state}${detail ? `: ${detail}` : "."}`, {
    code: "job_ended",
    details: { state: job.state },
  });
}

/** Gives every event of a job, from the first on, until it has ended. */
export async function followToEnd(
  session: Session,
  id: string,
  timeoutMs: number | undefined,
  onEvent: (event: EventAnswer) => void,
): Promise<void> {
  const over = new AbortController();
  const timer = timeoutMs === undefined ? undefined : setTimeout(() => over.abort(), timeoutMs);
  const signal = AbortSignal.any([session.signal, over.signal]);
  try {
    const stream = follow(await session.api(), path`/v1/jobs/${id}/events`, { signal });
    for await (const { data } of stream) {
      const event = JSON.parse(data) as EventAnswer;
      onEvent(event);
      const { name, state } = eventOf(event);
      if (name === "deleted") throw new Failure("notFound", `Job ${id} was deleted.`);
      if (isEnded(state) && (await hasEnded(session, id))) return;
    }
  } catch (error) {
    if (!over.signal.aborted || session.signal.aborted) throw error;
    throw new Failure("timeout", `Job ${id} has not ended within ${timeoutMs} ms; it goes on.`);
  } finally {
    clearTimeout(timer);
  }
}

/** An earlier run of a job may have ended, and the job may run again. */
async function hasEnded(session: Session, id: string): Promise<boolean> {
  const { state } = await ask<JobAnswer>(await session.api(), "GET", path`/v1/jobs/${id}`);
  return isEnded(state);
}
