/**
 * `millrace job events`, `watch` and `logs`: what happened to jobs, and what happens now.
 */
import type { Command } from "commander";
import { type EventAnswer, eventOf, type JobAnswer } from "../answers.js";
import { ask, path } from "../api.js";
import { define, option, type Run } from "../define.js";
import { detailOf } from "../event-words.js";
import { pages } from "../lists.js";
import { follow } from "../server-sent.js";
import type { Session } from "../session.js";
import { withoutControls } from "../table.js";
import { durationMs } from "../values.js";
import { endOf, followToEnd } from "../wait.js";
import { paintState } from "../words.js";

const nameWidth = 12;

/** Adds the commands. */
export function defineJobEvents(job: Command, run: Run): void {
  define<{ follow?: boolean }>(job, run, {
    words: "events <id>",
    says: "show a job's history",
    examples: ["millrace job events 01HZX…", "millrace job events 01HZX… --follow --ndjson"],
    options: [option("--follow", "go on with what happens, until Ctrl-C")],
    run: async (session, { args: [id = ""], options }) => {
      const route = path`/v1/jobs/${id}/events`;
      if (options.follow) {
        const api = await session.api();
        for await (const { data } of follow(api, route, { signal: session.signal }))
          printEvent(session, JSON.parse(data) as EventAnswer);
      }
      const entries = await everyEntry<EventAnswer>(session, route);
      if (session.output.format !== "text") session.output.list({ entries }, []);
      else for (const event of entries) printEvent(session, event);
    },
  });
  define(job, run, {
    words: "logs <id>",
    says: "show what a job's handler logged",
    examples: ["millrace job logs 01HZX…"],
    run: async (session, { args: [id = ""] }) => {
      const entries = await everyEntry<LogAnswer>(session, path`/v1/jobs/${id}/logs`);
      session.output.list({ entries }, [
        { title: "at", value: ({ at }) => at },
        { title: "level", value: ({ level }) => level },
        { title: "message", value: ({ message }) => message },
      ]);
    },
  });
  define<WatchOptions>(job, run, {
    words: "watch [id]",
    says: "follow a job to its end, or what happens to all jobs, until Ctrl-C",
    examples: [
      "millrace job watch 01HZX… --timeout 5m",
      "millrace job watch --service shop --event dead,failed",
    ],
    options: [
      option("--service <name>", "of all jobs, those of this service"),
      option("--type <name>", "of all jobs, those of this type"),
      option("--event <names>", "only these events (a comma list)"),
      option("--timeout <duration>", "how long to wait for the end of a job", durationMs),
    ],
    run: (session, { args: [id], options }) =>
      id === undefined ? watchAll(session, options) : watchOne(session, id, options),
  });
}

interface WatchOptions {
  readonly service?: string;
  readonly type?: string;
  readonly event?: string;
  readonly timeout?: number;
}

interface LogAnswer {
  readonly at: string;
  readonly level: string;
  readonly message: string;
}

/** All that a job has written, page after page. */
async function everyEntry<Entry>(session: Session, route: string): Promise<readonly Entry[]> {
  const entries: Entry[] = [];
  const read = pages<Entry>(await session.api(), route, {}, { all: true }, session.signal);
  for await (const page of read) entries.push(...page.entries);
  return entries;
}

async function watchOne(session: Session, id: string, options: WatchOptions): Promise<void> {
  const wanted = wantedNames(options);
  await followToEnd(session, id, options.timeout, (event) => {
    if (wanted(event)) printEvent(session, event);
  });
  const job = await ask<JobAnswer>(await session.api(), "GET", path`/v1/jobs/${id}`);
  endOf(job, () => {});
}

async function watchAll(session: Session, options: WatchOptions): Promise<void> {
  const { service, type } = options;
  const wanted = wantedNames(options);
  const { signal, output } = session;
  const api = await session.api();
  if (output.isWatched) output.note(`What happens at ${api.where}, until Ctrl-C:`);
  for await (const { data } of follow(api, "/v1/events", { query: { service, type }, signal })) {
    const event = JSON.parse(data) as EventAnswer;
    if (wanted(event)) printEvent(session, event, true);
  }
}

function wantedNames({ event }: WatchOptions): (event: EventAnswer) => boolean {
  const names = event?.split(",");
  return ({ name }) => names === undefined || names.includes(String(name));
}

/** One event on a line. */
function printEvent({ output }: Session, answer: EventAnswer, isOfMany = false): void {
  output.entry(answer, () => {
    const event = eventOf(answer);
    const at = output.colors.dim(new Date(event.at).toISOString());
    const name = paintState(event.name.padEnd(nameWidth), event.state, output.colors);
    const job = isOfMany ? `${event.service}/${event.type} ${event.jobId} ` : "";
    return `${at} ${name} ${job}${withoutControls(detailOf(event))}`.trimEnd();
  });
}
