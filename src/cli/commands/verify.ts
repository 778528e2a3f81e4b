/**
 * `millrace verify`: reads the whole log of a live system, as the feed gives it, and checks it against the rules; then
 * compares the lists with what the log says.
 */
import type { Command } from "commander";
import { LogChecker, type Violation } from "../../conformance/checker.js";
import type { FoldRow } from "../../conformance/row-of-fold.js";
import type { TaggedJob } from "../../engine/query.js";
import {
  type EventAnswer,
  eventOf,
  type FeedAnswer,
  type JobRowAnswer,
  rowOf,
} from "../answers.js";
import { type Api, ask } from "../api.js";
import { define, option, type Run } from "../define.js";
import { Failure } from "../failure.js";
import { pages } from "../lists.js";
import { LooseLog } from "../loose-log.js";
import type { Session } from "../session.js";
import { wholeNumber } from "../values.js";
import { grouped } from "../view/paint.js";

/** How many events are asked for at a time, and how many findings are listed unless more are wanted. */
const feedPage = 1_000;
const shownDefault = 50;

interface Info {
  readonly engine: { readonly capabilities: { readonly transactions: boolean } };
}

/** Adds the command. */
export function addVerify(program: Command, run: Run): void {
  define<{ show: number; service?: string }>(program, run, {
    words: "verify",
    says: "check the whole log against the rules, and the lists against the log",
    examples: ["millrace verify", "millrace verify --server https://jobs.example --json"],
    options: [
      option("--show <number>", "how many findings are listed", wholeNumber(1)).default(
        shownDefault,
      ),
    ],
    run: (session, { options }) => verify(session, options.show),
  });
}

async function verify(session: Session, shown: number): Promise<void> {
  const { output } = session;
  const api = await session.api();
  const rows: FoldRow[] = [];
  const tagged: TaggedJob[] = [];
  const checker = new LogChecker({ rows, tagged });
  const { engine } = await ask<Info>(api, "GET", "/v1/info");
  const log = engine.capabilities.transactions ? checker : new LooseLog(checker);
  const counter = { events: 0 };
  const see = (event: EventAnswer) => log.see(eventOf(event));
  const cursor = await readFeed(session, api, "start", counter, see);
  const all = <Row>(path: string) => pages<Row>(api, path, {}, { all: true }, session.signal);
  for await (const page of all<JobRowAnswer>("/v1/jobs")) {
    rows.push(...page.entries.map(rowOf));
    output.progress(`${grouped(rows.length)} rows read`);
  }
  for await (const page of all<TaggedJob>("/v1/jobs/tags")) {
    tagged.push(...page.entries);
    output.progress(`tags of ${grouped(tagged.length)} jobs read`);
  }
  // Jobs that moved on while the rows were read may differ from them, and that is nobody's fault.
  const moved = new Set<unknown>();
  await readFeed(session, api, cursor, counter, (event) => {
    moved.add(event.jobId);
    see(event);
  });
  const violations = log
    .finish()
    .filter(({ rule, jobId }) => rule !== "view_equals_fold" || !moved.has(jobId));
  report(session, { events: counter.events, jobs: rows.length }, violations, shown);
}

/** Reads the feed up to its end. Gives the cursor of that. */
async function readFeed(
  { output, signal }: Session,
  api: Api,
  from: string,
  counter: { events: number },
  see: (event: EventAnswer) => void,
): Promise<string> {
  let cursor = from;
  for (;;) {
    const query = { cursor, limit: feedPage };
    const page = await ask<FeedAnswer>(api, "GET", "/v1/events", { query, signal });
    for (const { event } of page.entries) see(event);
    counter.events += page.entries.length;
    output.progress(`${grouped(counter.events)} events read`);
    cursor = page.nextCursor ?? page.entries.at(-1)?.cursor ?? cursor;
    if (page.entries.length < feedPage) return cursor;
  }
}

function report(
  { output }: Session,
  { events, jobs }: { readonly events: number; readonly jobs: number },
  violations: readonly Violation[],
  shown: number,
): void {
  const listed = violations.slice(0, shown);
  const document = { events, jobs, violationCount: violations.length, violations: listed };
  output.document(document, () =>
    [
      `${grouped(events)} events and ${grouped(jobs)} jobs read.`,
      ...listed.map(violationText),
      violations.length === 0 ? "The log obeys every rule, and the lists say the same." : "",
    ]
      .filter((line) => line !== "")
      .join("\n"),
  );
  if (violations.length > 0)
    throw new Failure("conflict", `${violations.length} places break the rules.`, {
      code: "rules_broken",
    });
}

/** What the checker says of an event names the job already; what it says of a row does not. */
function violationText({ rule, jobId, sentence }: Violation): string {
  return `- ${rule}: ${sentence.includes(jobId) ? sentence : `Job ${jobId} ${sentence}.`}`;
}
