/**
 * Removing the logs of deleted jobs. A deletion leaves its own event, which hides whatever was not removed, because its
 * writer was interrupted or may not remove anything, until the pruner comes by.
 */
import { eventOf } from "../event-text.js";
import type { LoggedJob } from "./entry.js";
import type { Log } from "./log.js";
import type { Port } from "./port.js";
import type { Subjects } from "./subjects.js";

/** How many old deletions one call forgets, and how many of them at a time. */
const pruneMax = 5_000;
const chunkSize = 100;

/** Removes messages of a job's log. The creation goes first, because without it the others mean nothing. */
export async function removeLog(
  port: Port,
  { seqs, creations }: Pick<LoggedJob, "seqs" | "creations">,
): Promise<void> {
  await port.remove("jobs", creations);
  const rest = seqs.filter((seq) => !creations.includes(seq));
  await port.remove("jobs", rest);
}

/** Forgets deletions before a time, with whatever is left of their jobs. */
export async function forgetDeletions(
  { port, log, subjects }: { readonly port: Port; readonly log: Log; readonly subjects: Subjects },
  before: number,
): Promise<number> {
  const deleted = await port.read("jobs", subjects.deletedFilter());
  const old = deleted.filter((message) => eventOf(message).at < before).slice(0, pruneMax);
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
