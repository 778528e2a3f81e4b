/**
 * Removing the logs of deleted jobs. A deletion leaves its own event, which hides whatever was not removed, because its
 * writer was interrupted or may not remove anything, until the pruner comes by.
 */
import { eventOf, unreadable } from "../event-text.js";
import type { LoggedJob } from "./entry.js";
import type { ForgottenRecords } from "./forgotten.js";
import { readJobLog } from "./job-log.js";
import type { Port, StoredMessage } from "./port.js";
import type { Subjects } from "./subjects.js";

/** How many deletions one call cleans up behind and forgets, and how many of them at a time. */
const pruneMax = 5_000;
const chunkSize = 100;

/** How many younger ones are read before the rest are taken for younger, too: a clock may be ahead of the others. */
const youngMax = 1_000;

/** How long deletions are looked for; the next call finds what this one does not. */
const lookMs = 10_000;

/** How long whoever deletes a job may take to remove its log, and copies of the log to have all of it. */
const settleMs = 60_000;

/** Removes messages of a job's log. The creation goes first, because without it the others mean nothing. */
export async function removeLog(
  port: Port,
  { seqs, creations }: Pick<LoggedJob, "seqs" | "creations">,
): Promise<void> {
  await port.remove("jobs", creations);
  const rest = seqs.filter((seq) => !creations.includes(seq));
  await port.remove("jobs", rest);
}

/** What forgetting needs of the engine. */
export interface RemovalContext {
  readonly port: Port;
  readonly subjects: Subjects;
  readonly now: () => number;
  readonly forgotten: ForgottenRecords;
}

/**
 * Forgets deletions before a time, when nothing else is left of their jobs and everybody can know of it. The newest message
 * of each service stays, whatever it is: the end of the feed is told by it, and would fall behind what readers have been given.
 */
export async function forgetDeletions(context: RemovalContext, before: number): Promise<number> {
  const { port, subjects, forgotten } = context;
  const filter = subjects.deletedFilter();
  const newest = await port.last("jobs", filter);
  if (newest === null) return 0;
  const cleaned = await cleanUp(context, filter, newest.seq, before);
  const found = await oldDeletions(port, filter, newest.seq, before);
  const old = await behindNewest(
    context,
    found.filter(({ seq }) => seq <= cleaned),
  );
  if (old.length === 0) return 0;
  // A creation that is still there, for whatever reason, would come back without its deletion.
  await removeLeft(context, old);
  for (const [service, seq] of lastOfEach(old))
    await forgotten.write({ cleaned, forgotten: seq }, service);
  await forgotten.write({ cleaned, forgotten: Math.max(...old.map(({ seq }) => seq)) });
  for (const chunk of chunks(old))
    await port.remove(
      "jobs",
      chunk.map(({ seq }) => seq),
    );
  return old.length;
}

/**
 * Removes what is left of deleted jobs, long before their deletions are forgotten, so that nobody who begins to read the log
 * meets the one and misses the other. Gives the position up to which that is done.
 */
async function cleanUp(
  context: RemovalContext,
  filter: string,
  newest: number,
  before: number,
): Promise<number> {
  const { port, now, forgotten } = context;
  const { cleaned } = await forgotten.read();
  if (newest <= cleaned) return cleaned;
  // One whose time is to come was written by a clock that is wrong, and must not hold up the others.
  const isUnsettled = ({ at }: Deletion) =>
    at >= Math.max(before, now() - settleMs) && at < now() + settleMs;
  const marks: Deletion[] = [];
  let last = cleaned;
  const signal = AbortSignal.timeout(lookMs);
  reading: for await (const messages of port.follow("jobs", filter, cleaned, signal)) {
    for (const message of messages) {
      const mark = deletionIn(message);
      if (mark && isUnsettled(mark)) break reading;
      if (mark) marks.push(mark);
      last = message.seq;
    }
    if (last >= newest || marks.length >= pruneMax) break;
  }
  await removeLeft(context, marks);
  if (last > cleaned) await forgotten.write({ cleaned: last, forgotten: 0 });
  return last;
}

/** Removes what lies before deletions in the logs of their jobs. */
async function removeLeft(
  { port, subjects }: RemovalContext,
  deletions: readonly Deletion[],
): Promise<void> {
  for (const chunk of chunks(deletions))
    await Promise.all(
      chunk.map(async ({ service, jobId, seq: end }) => {
        // Another service may have the id, whose log is none of this one's business.
        const log = await readJobLog(port, subjects.logFilter(jobId, service));
        // The id may be in use again.
        const older = log.filter(({ seq }) => seq < end);
        const creations = older.filter((message) => eventOf(message).name === "created");
        await removeLog(port, { seqs: older.map(seqOf), creations: creations.map(seqOf) });
      }),
    );
}

function seqOf({ seq }: StoredMessage): number {
  return seq;
}

/** A deletion that lies in the log. */
interface Deletion {
  readonly seq: number;
  readonly service: string;
  readonly jobId: string;
  readonly at: number;
}

function deletionIn(message: StoredMessage): Deletion | null {
  const { name, service, jobId, at } = eventOf(message);
  return name === (unreadable as string) ? null : { seq: message.seq, service, jobId, at };
}

/** The oldest deletions before a time. They are read from the beginning, and no further than needed. */
async function oldDeletions(
  port: Port,
  filter: string,
  newest: number,
  before: number,
): Promise<readonly Deletion[]> {
  const old: Deletion[] = [];
  let young = 0;
  // Another process may remove the newest meanwhile, which is then waited for in vain.
  for await (const messages of port.follow("jobs", filter, 0, AbortSignal.timeout(lookMs))) {
    for (const message of messages) {
      const mark = deletionIn(message);
      if (mark === null) continue;
      if (mark.at < before) old.push(mark);
      else young += 1;
    }
    const isAtEnd = (messages.at(-1)?.seq ?? 0) >= newest;
    if (isAtEnd || old.length >= pruneMax || young >= youngMax) break;
  }
  return old.slice(0, pruneMax);
}

/** Those that are not the newest message of their service. */
async function behindNewest(
  { port, subjects }: RemovalContext,
  marks: readonly Deletion[],
): Promise<readonly Deletion[]> {
  const ends = new Map<string, number>();
  for (const service of new Set(marks.map((mark) => mark.service)))
    ends.set(service, (await port.last("jobs", subjects.serviceFilter(service)))?.seq ?? 0);
  return marks.filter(({ service, seq }) => seq < (ends.get(service) ?? 0));
}

/** The position of the last deletion of each service. */
function lastOfEach(marks: readonly Deletion[]): ReadonlyMap<string, number> {
  const last = new Map<string, number>();
  for (const { service, seq } of marks) last.set(service, Math.max(last.get(service) ?? 0, seq));
  return last;
}

function* chunks<Item>(items: readonly Item[]): Iterable<readonly Item[]> {
  for (let start = 0; start < items.length; start += chunkSize)
    yield items.slice(start, start + chunkSize);
}
