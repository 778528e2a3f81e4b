/**
 * `millrace job`: look at jobs, and tell them what to do.
 */
import type { Command } from "commander";
import type { Why } from "../../core/why.js";
import type { JobAnswer, OutcomeAnswer } from "../answers.js";
import { answeredFailure, ask, path } from "../api.js";
import { define, group, option, type Run } from "../define.js";
import { Failure } from "../failure.js";
import { type FilterOptions, filterQuery, jobFilterOptions } from "../filters.js";
import { jobText } from "../job-text.js";
import { type ListOptions, listOptions, printList } from "../lists.js";
import type { Session } from "../session.js";
import { durationMs } from "../values.js";
import { jobColumns, paintState } from "../words.js";
import { type CompleteOptions, complete, completeOptions } from "./job-complete.js";
import { defineCreate } from "./job-create.js";
import { defineJobEvents } from "./job-events.js";

/** How many jobs one bulk retry takes. */
const retryMax = 100;

/** Adds the commands. */
export function addJob(program: Command, run: Run): void {
  const job = group(program, "job", "create jobs, look at them, and tell them what to do");
  defineCreate(job, run);
  defineReads(job, run);
  defineJobEvents(job, run);
  defineChanges(job, run);
}

function defineReads(job: Command, run: Run): void {
  define<FilterOptions & ListOptions>(job, run, {
    words: "list",
    says: "list jobs, newest first",
    examples: [
      "millrace job list --service shop --state active,retry",
      "millrace job list --since 1h --all --ndjson | jq .id",
    ],
    options: [...jobFilterOptions(), ...listOptions()],
    run: (session, { options }) =>
      printList(session, "/v1/jobs", filterQuery(options), options, jobColumns),
  });
  define<FilterOptions>(job, run, {
    words: "count",
    says: "count jobs by service, type and state",
    examples: ["millrace job count --service shop"],
    options: jobFilterOptions(),
    run: async (session, { options }) => {
      const query = filterQuery(options);
      const counts = await ask<Counts>(await session.api(), "GET", "/v1/jobs/counts", { query });
      session.output.list(counts, [
        { title: "service", value: ({ service }) => service },
        { title: "type", value: ({ type }) => type },
        { title: "queue", value: ({ queue }) => queue },
        {
          title: "state",
          value: ({ state }) => state,
          paint: (text, { state }, colors) => paintState(text, state, colors),
        },
        { title: "count", value: ({ count }) => count },
      ]);
    },
  });
  define(job, run, {
    words: "get <id>",
    says: "show a job",
    examples: ["millrace job get 01HZX…", "millrace job get 01HZX… --json | jq .result"],
    run: async (session, { args: [id = ""] }) => printJob(session, await getJob(session, id)),
  });
  define(job, run, {
    words: "why <id>",
    says: "say why a job is not running",
    examples: ["millrace job why 01HZX…"],
    run: async (session, { args: [id = ""] }) => {
      const why = await ask<Why>(await session.api(), "GET", path`/v1/jobs/${id}/why`);
      session.output.document(why, () => why.sentence);
    },
  });
}

interface Counts {
  readonly entries: readonly {
    readonly service: string;
    readonly type: string;
    readonly queue: string;
    readonly state: string;
    readonly count: number;
  }[];
}

function defineChanges(job: Command, run: Run): void {
  define<{ reason?: string; force?: boolean }>(job, run, {
    words: "cancel <ids...>",
    says: "cancel jobs; a running one is asked to stop",
    examples: ["millrace job cancel 01HZX… --reason 'the order was withdrawn'"],
    options: [
      option("--reason <words>", "why, for the log"),
      option("--force", "end a running job at once, without waiting for its handler"),
    ],
    run: (session, { args, options }) =>
      each(session, args, async (id) => {
        const route = path`/v1/jobs/${id}/cancel`;
        return ask<OutcomeAnswer>(await session.api(), "POST", route, { body: options });
      }),
  });
  define<{ delay?: number; force?: boolean }>(job, run, {
    words: "retry <ids...>",
    says: "run jobs again, as new runs of the same jobs",
    examples: ["millrace job retry 01HZX… 01HZY…", "millrace job retry 01HZX… --delay 5m"],
    options: [
      option("--delay <duration>", "not before this time has passed", durationMs),
      option("--force", "also a job that has completed"),
    ],
    run: (session, { args, options }) => retry(session, args, options),
  });
  define<{ force?: boolean; reason?: string }>(job, run, {
    words: "delete <ids...>",
    says: "delete jobs with their history",
    examples: ["millrace job delete 01HZX… --yes"],
    destroys: true,
    options: [
      option("--force", "also one that is running"),
      option("--reason <words>", "why, for the log"),
    ],
    run: async (session, { args, options: { force, reason } }) => {
      await session.confirm(
        `Delete ${args.length === 1 ? `job ${args[0]}` : `${args.length} jobs`} with all history?`,
      );
      await each(session, args, async (id) => {
        const query = { force, reason };
        await ask(await session.api(), "DELETE", path`/v1/jobs/${id}`, { query });
        return { id, outcome: "deleted" };
      });
    },
  });
  define<CompleteOptions>(job, run, {
    words: "complete <id>",
    says: "complete a job without a worker",
    examples: [
      `millrace job complete 01HZX… --result '{"approved":true}'`,
      "millrace job complete 01HZX… --continue-with ship --payload @order.json",
      "millrace job complete 01HZX… --continue-with thank --blocker invoice=01HZY…,delivery=01HZZ…",
    ],
    options: completeOptions(),
    run: async (session, { args: [id = ""], options }) => {
      const route = path`/v1/jobs/${id}/complete`;
      printJob(session, await complete<JobAnswer>(await session.api(), route, options));
    },
  });
}

async function retry(
  session: Session,
  ids: readonly string[],
  { delay: delayMs, force }: { readonly delay?: number; readonly force?: boolean },
): Promise<void> {
  const api = await session.api();
  const options = { ...(delayMs !== undefined && { delayMs }), ...(force && { force }) };
  const entries: OutcomeAnswer[] = [];
  for (let from = 0; from < ids.length; from += retryMax) {
    const body = { ids: ids.slice(from, from + retryMax), ...options };
    const answer = await ask<{ entries: OutcomeAnswer[] }>(api, "POST", "/v1/jobs/retry", { body });
    entries.push(...answer.entries);
  }
  printOutcomes(session, entries);
}

/** Does the same with each of some jobs, and goes on where one is refused. */
async function each(
  session: Session,
  ids: readonly string[],
  command: (id: string) => Promise<Omit<OutcomeAnswer, "id">>,
): Promise<void> {
  const entries: OutcomeAnswer[] = [];
  for (const id of ids) {
    try {
      entries.push({ ...(await command(id)), id });
    } catch (error) {
      if (!(error instanceof Failure) || error.details === undefined) throw error;
      const { code, message, details } = error;
      entries.push({ id, outcome: "refused", error: { code, message, details } });
    }
  }
  printOutcomes(session, entries);
}

/** Says what became of each job; the first refusal is the command's failure. */
function printOutcomes(session: Session, entries: readonly OutcomeAnswer[]): void {
  const { output } = session;
  const refused = entries.filter(({ error }) => error !== undefined);
  if (output.format !== "text") output.list({ entries }, []);
  else
    for (const { id, outcome } of entries)
      if (outcome !== "refused") output.line(`${id} ${outcome}`);
  const [first, ...others] = refused;
  if (first?.error === undefined) return;
  for (const { id, error } of others) output.note(`${id}: ${error?.message}`);
  throw answeredFailure({
    ...first.error,
    message: entries.length === 1 ? first.error.message : `${first.id}: ${first.error.message}`,
  });
}

/** A job by its id. */
async function getJob(session: Session, id: string): Promise<JobAnswer> {
  return ask<JobAnswer>(await session.api(), "GET", path`/v1/jobs/${id}`);
}

/** Prints a job. */
function printJob(session: Session, job: JobAnswer): void {
  session.output.document(job, () => jobText(job, session.output.colors));
}
