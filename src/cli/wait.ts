/**
 * Following a job or a chain to its end: its progress for the person at the terminal, its result as data.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { Option } from "commander";
import { isEnded } from "../core/job.js";
import { systemClock } from "../engine/clock.js";
import { type EventAnswer, eventOf, type JobAnswer } from "./answers.js";
import { ask, path } from "./api.js";
import { type ChainAnswer, chainText } from "./chain-text.js";
import { option } from "./define.js";
import { Failure } from "./failure.js";
import { jobText, progressText } from "./job-text.js";
import { breaksMax, follow, isPassing, pauseMs } from "./server-sent.js";
import type { Session } from "./session.js";
import { withoutEscapes } from "./table.js";
import { durationMs } from "./values.js";

/** Whether a command waits for the end of what it has begun, and for how long. */
export interface WaitOptions {
  readonly wait?: boolean;
  readonly timeout?: number;
}

/** The options of a command that may wait. */
export const waitOptions = (what: string, gives: "result" | "output"): readonly Option[] => [
  option("--wait", `follow ${what} to its end and print its ${gives} (needs admin.read)`),
  option("--timeout <duration>", "how long --wait waits (default: for ever)", durationMs),
];

/** Refuses a time to wait where nothing is waited for. */
export function checkTimeout({ wait, timeout }: WaitOptions): void {
  if (timeout !== undefined && !wait)
    throw new Failure("usage", "--timeout says how long --wait waits; give both.");
}

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
  await waitToEnd(session, id, timeoutMs);
  const job = await ask<JobAnswer>(await session.api(), "GET", path`/v1/jobs/${id}`);
  if (output.format !== "text") output.document(job, () => "");
  else if (job.result !== undefined) output.line(JSON.stringify(job.result, null, 2));
  endOf(job, () => output.note(jobText(job, output.colors)));
}

/**
 * Waits until a chain has ended, following each job that it comes to, and prints its output. It fails in the same way as
 * the wait for a job.
 */
export async function awaitChainEnd(
  session: Session,
  id: string,
  timeoutMs: number | undefined,
): Promise<void> {
  const { output } = session;
  const until = timeoutMs === undefined ? undefined : performance.now() + timeoutMs;
  const read = async () =>
    ask<ChainAnswer>(await session.api(), "GET", path`/v1/chains/${id}`, {
      signal: session.signal,
    });
  let chain = await read();
  while (!isEnded(chain.state)) {
    const { current } = chain;
    const leftMs = until === undefined ? undefined : Math.max(until - performance.now(), 0);
    const missing = await waitToEnd(session, current.id, leftMs).then(
      () => null,
      (error: unknown) => {
        if (!(error instanceof Failure)) throw error;
        if (error.exit === "timeout") throw notEnded(`Chain ${id}`, timeoutMs);
        if (error.exit === "notFound") return error;
        throw error;
      },
    );
    chain = await read();
    // A job that its type discards at its end may have been continued before.
    if (missing !== null && chain.current.id === current.id) throw missing;
  }
  if (output.format !== "text") output.document(chain, () => "");
  else if (chain.output !== undefined) output.line(JSON.stringify(chain.output, null, 2));
  endOf(chain.current, () => output.note(chainText(chain, output)), "The chain");
}

/** Tells the person at the terminal what happens to a job. */
function teller({ output }: Session, id: string): (answer: EventAnswer) => void {
  return (answer) => {
    const event = eventOf(answer);
    if (event.name === "progress") output.progress(`${id} ${progressText(event.progress)}`);
    else if (event.name === "logged")
      for (const { level, message } of event.entries)
        output.note(`${level}: ${withoutEscapes(message)}`);
    else if (event.name === "retry")
      output.note(`try ${event.tries} failed: ${withoutEscapes(event.error.message)}`);
    else output.progress(`${id} ${event.state}`);
  };
}

/** Throws when a job has ended badly. */
export function endOf(job: JobAnswer, tell: () => void, what = "The job"): void {
  if (job.state === "completed" || job.state === "skipped") return;
  const detail = job.error?.message ?? job.reason;
  tell();
  throw new Failure("badEnd", `${what} has ended as ${job.state}${detail ? `: ${detail}` : "."}`, {
    code: "job_ended",
    details: { state: job.state },
  });
}

/** Gives every event of a job, from the first on, until it has ended. */
export function followToEnd(
  session: Session,
  id: string,
  timeoutMs: number | undefined,
  onEvent: (event: EventAnswer) => void,
): Promise<void> {
  return within(session, id, timeoutMs, (signal) => eventsToEnd(session, id, signal, onEvent));
}

/** Waits until a job has ended, and tells what happens to it where the caller may see events. */
function waitToEnd(session: Session, id: string, timeoutMs: number | undefined): Promise<void> {
  return within(session, id, timeoutMs, (signal) =>
    eventsToEnd(session, id, signal, teller(session, id)).catch((error: unknown) => {
      const mayNotStream = error instanceof Failure && error.exit === "notPermitted";
      if (!mayNotStream) throw error;
      return quietlyToEnd(session, id, signal);
    }),
  );
}

/** Gives up once the time is over. */
async function within(
  session: Session,
  id: string,
  timeoutMs: number | undefined,
  wait: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const over = new AbortController();
  const disarm =
    timeoutMs === undefined ? () => {} : systemClock.after(timeoutMs, () => over.abort());
  try {
    await wait(AbortSignal.any([session.signal, over.signal]));
  } catch (error) {
    if (!over.signal.aborted || session.signal.aborted) throw error;
    throw notEnded(`Job ${id}`, timeoutMs);
  } finally {
    disarm();
  }
}

async function eventsToEnd(
  session: Session,
  id: string,
  signal: AbortSignal,
  onEvent: (event: EventAnswer) => void,
): Promise<void> {
  const stream = follow(await session.api(), path`/v1/jobs/${id}/events`, { signal });
  for await (const { data } of stream) {
    const event = JSON.parse(data) as EventAnswer;
    onEvent(event);
    const { name, state } = eventOf(event);
    if (name === "deleted") throw new Failure("notFound", `Job ${id} was deleted.`);
    if (isEnded(state) && (await hasEnded(session, id))) return;
  }
}

/** The same without events, asking again and again. */
async function quietlyToEnd(session: Session, id: string, signal: AbortSignal): Promise<void> {
  const api = await session.api();
  for (let breaks = 0; ; ) {
    try {
      const { done } = await ask<WaitAnswer>(api, "GET", path`/v1/jobs/${id}/wait`, { signal });
      if (done) return;
      breaks = 0;
    } catch (error) {
      breaks += 1;
      if (!isPassing(error) || breaks > breaksMax) throw error;
      await delay(pauseMs, undefined, { signal }).catch(() => {});
    }
  }
}

interface WaitAnswer {
  readonly done: boolean;
}

function notEnded(what: string, timeoutMs: number | undefined): Failure {
  return new Failure("timeout", `${what} has not ended within ${timeoutMs} ms; it goes on.`);
}

/** An earlier run of a job may have ended, and the job may run again. */
async function hasEnded(session: Session, id: string): Promise<boolean> {
  const { state } = await ask<JobAnswer>(await session.api(), "GET", path`/v1/jobs/${id}`);
  return isEnded(state);
}
