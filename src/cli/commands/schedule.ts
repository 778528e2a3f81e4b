/**
 * `millrace schedule`: work that starts by itself.
 */
import type { Command } from "commander";
import { ask, path } from "../api.js";
import { define, group, option, type Run } from "../define.js";
import type { Session } from "../session.js";
import type { Column } from "../table.js";
import { durationMs, jsonInput, list, time, wholeNumber } from "../values.js";
import { ago } from "../words.js";

interface ScheduleAnswer {
  readonly service: string;
  readonly name: string;
  readonly origin: "contract" | "caller";
  readonly type: string;
  readonly cron?: string;
  readonly timeZone?: string;
  readonly everyMs?: number;
  readonly at?: string;
  readonly enabled: boolean;
  readonly nextAt: string | null;
  readonly lastFired?: { readonly at: string; readonly jobId: string };
}

interface CreateOptions {
  readonly cron?: string;
  readonly timeZone?: string;
  readonly every?: number;
  readonly at?: string;
  readonly typeVersion?: number;
  readonly priority?: number;
  readonly deadline?: number;
  readonly paused?: boolean;
  readonly catchUp?: string;
  readonly catchUpMax?: number;
  readonly overlap?: string;
  readonly tag?: readonly string[];
}

const columns: readonly Column<ScheduleAnswer>[] = [
  { title: "name", value: ({ name }) => name },
  { title: "type", value: ({ type }) => type, cuts: true },
  { title: "when", value: whenOf },
  {
    title: "state",
    value: ({ enabled }) => (enabled ? "on" : "paused"),
    paint: (text, { enabled }, colors) => (enabled ? text : colors.yellow(text)),
  },
  { title: "next", value: ({ nextAt }) => (nextAt === null ? "never" : ago(nextAt)) },
  { title: "last", value: ({ lastFired }) => lastFired && ago(lastFired.at) },
  { title: "made by", value: ({ origin }) => origin },
];

function whenOf({ cron, timeZone, everyMs, at }: ScheduleAnswer): string {
  if (cron !== undefined) return `${cron} (${timeZone ?? "UTC"})`;
  return everyMs === undefined ? `once, ${at ?? ""}` : `every ${everyMs} ms`;
}

/** Adds the commands. */
export function addSchedule(program: Command, run: Run): void {
  const schedule = group(program, "schedule", "schedules: create, list, pause, run, next");
  defineCreate(schedule, run);
  define(schedule, run, {
    words: "list <service>",
    says: "list the schedules of a service",
    examples: ["millrace schedule list shop"],
    run: async (session, { args: [service = ""] }) => {
      const route = path`/v1/schedules/${service}`;
      const api = await session.api();
      session.output.list(await ask<{ entries: ScheduleAnswer[] }>(api, "GET", route), columns);
    },
  });
  define(schedule, run, {
    words: "get <service> <name>",
    says: "show a schedule",
    examples: ["millrace schedule get shop nightly"],
    run: (session, { args }) => request(session, "GET", args),
  });
  for (const verb of ["pause", "resume"] as const) {
    define(schedule, run, {
      words: `${verb} <service> <name>`,
      says: verb === "pause" ? "fire no more" : "fire again, from the next instant on",
      examples: [`millrace schedule ${verb} shop nightly`],
      run: (session, { args }) => request(session, "POST", args, `/${verb}`, {}),
    });
  }
  define(schedule, run, {
    words: "run <service> <name>",
    says: "create a job as the schedule would, now",
    examples: ["millrace schedule run shop nightly"],
    run: async (session, { args }) => {
      const route = `${routeOf(args)}/run`;
      const created = await ask<{ id: string }>(await session.api(), "POST", route, { body: {} });
      session.output.document(created, () => created.id);
    },
  });
  define<{ count?: number }>(schedule, run, {
    words: "next <service> <name>",
    says: "say when a schedule fires next",
    examples: ["millrace schedule next shop nightly --count 10"],
    options: [option("--count <number>", "how many instants (default 5)", wholeNumber(1, 100))],
    run: async (session, { args, options: { count } }) => {
      const route = `${routeOf(args)}/next`;
      const api = await session.api();
      const answer = await ask<{ entries: string[] }>(api, "GET", route, { query: { count } });
      session.output.document(answer, () => answer.entries.join("\n"));
    },
  });
  define(schedule, run, {
    words: "delete <service> <name>",
    says: "remove a schedule; the jobs that it has made stay",
    examples: ["millrace schedule delete shop nightly --yes"],
    destroys: true,
    run: async (session, { args }) => {
      await session.confirm(`Remove the schedule ${args.join("/")}?`);
      await ask(await session.api(), "DELETE", routeOf(args));
      session.output.document({ deleted: true }, () => `${args.join("/")} deleted`);
    },
  });
}

function defineCreate(schedule: Command, run: Run): void {
  define<CreateOptions>(schedule, run, {
    words: "create <service> <name> <type> [payload]",
    says: "make a schedule; the payload is JSON: inline, @file, or - for stdin",
    examples: [
      `millrace schedule create shop nightly report '{"kind":"sales"}' --cron "30 2 * * *" --time-zone Europe/Berlin`,
      "millrace schedule create shop poll syncStock --every 5m --overlap skip",
      "millrace schedule create shop launch announce @news.json --at 2030-01-31T12:00:00Z",
    ],
    options: [
      option(
        "--cron <expression>",
        "minute, hour, day, month, weekday; six fields begin with the second",
      ),
      option("--time-zone <zone>", "the zone that --cron goes by (default UTC)"),
      option("--every <duration>", "every so often", durationMs),
      option("--at <time>", "once, at this time", time),
      option("--type-version <number>", "the version of the type", wholeNumber(1)),
      option("--priority <number>", "higher goes first", wholeNumber(-1_000_000, 1_000_000)),
      option("--deadline <duration>", "how long after its instant a job expires", durationMs),
      option("--paused", "paused from the beginning"),
      option("--catch-up <policy>", "of missed instants: none, last or all"),
      option("--catch-up-max <number>", "how many of them at most", wholeNumber(1, 1_000)),
      option("--overlap <policy>", "while the last job runs: allow or skip"),
      option("--tag <tags>", "mark its jobs (repeatable)", list),
    ],
    run: async (session, { args: [service = "", name = "", type = "", given = "{}"], options }) => {
      const { every: everyMs, deadline: deadlineMs, typeVersion: version, tag: tags } = options;
      const { cron, timeZone, at, priority, catchUp, catchUpMax, overlap, paused } = options;
      const body = {
        ...{ service, name, type, version, payload: await jsonInput("payload", given) },
        ...{
          cron,
          timeZone,
          everyMs,
          at,
          priority,
          deadlineMs,
          catchUp,
          catchUpMax,
          overlap,
          tags,
        },
        ...(paused && { enabled: false }),
      };
      const api = await session.api();
      print(session, await ask<ScheduleAnswer>(api, "POST", "/v1/schedules", { body }));
    },
  });
}

async function request(
  session: Session,
  method: string,
  args: readonly string[],
  action = "",
  body?: object,
): Promise<void> {
  const options = body === undefined ? {} : { body };
  const route = `${routeOf(args)}${action}`;
  print(session, await ask<ScheduleAnswer>(await session.api(), method, route, options));
}

function print({ output }: Session, schedule: ScheduleAnswer): void {
  output.document(schedule, () => output.table([schedule], columns));
}

function routeOf([service = "", name = ""]: readonly string[]): string {
  return path`/v1/schedules/${service}/${name}`;
}
