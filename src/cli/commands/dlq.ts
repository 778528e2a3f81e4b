/**
 * `millrace dlq`: dead jobs, which wait for a person.
 */
import type { Command } from "commander";
import type { JobAnswer } from "../answers.js";
import { ask, path } from "../api.js";
import { define, group, option, type Run } from "../define.js";
import { Failure } from "../failure.js";
import { type FilterOptions, filterBody, filterOptions, filterQuery } from "../filters.js";
import { type ListOptions, listOptions, printList } from "../lists.js";
import type { Session } from "../session.js";
import { jobColumns } from "../words.js";

interface BulkAnswer {
  readonly matched: number;
  readonly done: number;
  readonly failed: number;
  readonly remaining: number;
}

interface BulkOptions extends FilterOptions {
  readonly all?: boolean;
  readonly preview?: boolean;
  readonly reason?: string;
}

type Verb = "replay" | "dismiss";

/** The most jobs that the API takes at a time. */
const roundMax = 1_000;

/** Adds the commands. */
export function addDlq(program: Command, run: Run): void {
  const dlq = group(program, "dlq", "dead jobs: list them, run them again, or dismiss them");
  define<FilterOptions & ListOptions>(dlq, run, {
    words: "list",
    says: "list dead jobs, newest first",
    examples: ["millrace dlq list --service shop --since 1d"],
    options: [...filterOptions(), ...listOptions()],
    run: (session, { options }) =>
      printList(session, "/v1/dead-letters", filterQuery(options), options, jobColumns),
  });
  defineBulk(dlq, run, "replay", "run dead jobs again, by id or by filter", [
    "millrace dlq replay 01HZX…",
    "millrace dlq replay --service shop --type callCourier --preview",
    "millrace dlq replay --all --yes",
  ]);
  defineBulk(dlq, run, "dismiss", "mark dead jobs as seen to, by id or by filter", [
    "millrace dlq dismiss 01HZX… --reason 'refunded by hand'",
    "millrace dlq dismiss --service shop --until 30d --yes",
  ]);
}

function defineBulk(
  dlq: Command,
  run: Run,
  verb: Verb,
  says: string,
  examples: readonly string[],
): void {
  define<BulkOptions>(dlq, run, {
    words: `${verb} [ids...]`,
    says,
    examples,
    destroys: true,
    options: [
      ...filterOptions(),
      option("--all", "all dead jobs, if there is no other filter"),
      option("--preview", "only say how many there are"),
      ...(verb === "dismiss" ? [option("--reason <words>", "why, for the log")] : []),
    ],
    run: async (session, { args, options }) => {
      if (args.length > 0) await byId(session, verb, args, options);
      else await byFilter(session, verb, options);
    },
  });
}

async function byId(
  session: Session,
  verb: Verb,
  ids: readonly string[],
  options: BulkOptions,
): Promise<void> {
  if (options.all || Object.keys(filterBody(options)).length > 0)
    throw new Failure("usage", "Give ids or a filter, not both.");
  const { reason } = options;
  const api = await session.api();
  const entries: JobAnswer[] = [];
  for (const id of ids) {
    const route = path`/v1/dead-letters/${id}/${verb}`;
    entries.push(await ask<JobAnswer>(api, "POST", route, { body: { reason } }));
  }
  if (session.output.format !== "text") session.output.list({ entries }, []);
  else for (const { id, state } of entries) session.output.line(`${id} ${state}`);
}

/** In rounds, because the API takes a bounded number at a time. */
async function byFilter(session: Session, verb: Verb, options: BulkOptions): Promise<void> {
  const { output } = session;
  const filter = filterBody(options);
  if (Object.keys(filter).length === 0 && !options.all)
    throw new Failure("usage", `Say which: ids, a filter such as --service, or --all.`);
  const api = await session.api();
  const { reason } = options;
  const round = (wish: { readonly preview?: true; readonly limit?: number }) =>
    ask<BulkAnswer>(api, "POST", `/v1/dead-letters/${verb}`, {
      body: { filter, ...wish, ...(reason !== undefined && { reason }) },
      signal: session.signal,
    });
  const { matched } = await round({ preview: true });
  if (options.preview || matched === 0) {
    output.document({ matched, preview: true }, () => `${matched} dead jobs match.`);
    return;
  }
  await session.confirm(`${verb === "replay" ? "Replay" : "Dismiss"} ${matched} dead jobs?`);
  let done = 0;
  let failed = 0;
  // One that is replayed may soon be dead again, and is not replayed a second time for that.
  while (done + failed < matched) {
    const answer = await round({ limit: Math.min(matched - done - failed, roundMax) });
    done += answer.done;
    failed += answer.failed;
    output.progress(`${done} of ${matched}`);
    // A round in which nothing was done will not be better the next time.
    if (answer.remaining === 0 || answer.done === 0) break;
  }
  const word = verb === "replay" ? "replayed" : "dismissed";
  output.document({ matched, done, failed }, () => `${done} dead jobs ${word}.`);
  if (failed > 0) throw new Failure("conflict", `${failed} jobs could not be ${word}.`);
}
