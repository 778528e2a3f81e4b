/**
 * Removing the logs of deleted jobs. A deletion leaves its own event, which hides whatever was not removed, because its
 * writer was interrupted or may not remove anything, until the pruner comes by.
 */
import { eventOf, unreadable } from "../event-text.js";
import type { LoggedJob } from "./entry.js";
import type { Log } from "./log.js";
import type { Port, StoredMessage } from "./port.js";
import type { Subjects } from "./subjects.js";

/** How many old deletions one call forgets, and how many of them at a time. */
const pruneMax = 5_000;
const chunkSize = 100;

/** How many younger ones are read before the rest are taken for younger, too: a clock may be ahead of the others. */
const youngMax = 1_000;

/** How long old deletions are looked for; the next call finds what this one does not. */
const lookMs = 10_000;

/** Removes messages of a job's log. The creation goes first, because without it the others mean nothing. */
export async function removeLog(
  port: Port,
  { seqs, creations }: Pick<LoggedJob, "seqs" | "creations">,
): Promise<void> {
  await port.remove("jobs", creations);
  const rest = seqs.filter((seq) => !creations.includes(seq));
  await port.remove("jobs", rest);
}

/**
 * Forgets deletions before a time, with whatever is left of their jobs. The newest message of the log stays, whatever it
 * is: the end of the feed is told by it, and would fall behind what readers have been given.
 */
export async function forgetDeletions(
  { port, log, subjects }: { readonly port: Port; readonly log: Log; readonly subjects: Subjects },
  before: number,
): Promise<number> {
  const end = (await port.last("jobs", subjects.headFilter()))?.seq ?? 0;
  const all = await oldDeletions(port, subjects.deletedFilter(), before);
  const old = all.filter(({ seq }) => seq < end);
  for (let start = 0; start < old.length; start += chunkSize) {
    const forget = async (mark: (typeof old)[number]) => {
      const { seqs, creations } = await log.load(eventOf(mark).jobId);
      // The id may be in use again.
      const isOlder = (seq: number) => seq < mark.seq;
      await removeLog(port, { seqs: seqs.filter(isOlder), creations: creations.filter(isOlder) });
      await port.remove("jobs", [mark.seq]);
    };
    await Promise.all(old.slice(start, start + chunkSize).map(forget));
  }
  return old.length;
}

/** The oldest deletions before a time. They are read from the beginning, and no further than needed. */
async function oldDeletions(
  port: Port,
  filter: string,
  before: number,
): Promise<readonly StoredMessage[]> {
  const newest = await port.last("jobs", filter);
  const old: StoredMessage[] = [];
  if (newest === null) return old;
  let young = 0;
  // Another process may remove the newest meanwhile, which is then waited for in vain.
  for await (const messages of port.follow("jobs", filter, 0, AbortSignal.timeout(lookMs))) {
    for (const message of messages) {
      const { name, at } = eventOf(message);
      if (name === (unreadable as string)) continue;
      if (at < before) old.push(message);
      else young += 1;
    }
    const isAtEnd = (messages.at(-1)?.seq ?? 0) >= newest.seq;
    if (isAtEnd || old.length >= pruneMax || young >= youngMax) break;
  }
  return old.slice(0, pruneMax);
}
