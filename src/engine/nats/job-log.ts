/**
 * Reading the part of the log that is about one job. A server finds the newest message of each subject at once, however long
 * the log is. Where a filter has wildcards, it finds all messages by looking at each one from the first on, to the end of the
 * log. So the newest are read first, and all of a subject only where it may have had more: a literal subject is found at once, too.
 */
import { transitions } from "../../core/transitions.js";
import { eventOf } from "../event-text.js";
import type { Port, StoredMessage } from "./port.js";

/** All messages of a job, in order. */
export async function readJobLog(port: Port, filter: string): Promise<readonly StoredMessage[]> {
  const newest = await port.lastOfEach([filter]);
  if (newest === null) return port.read("jobs", filter);
  const open = newest.filter(mayBeRepeated(newest));
  if (open.length === 0) return newest;
  const all = await Promise.all(open.map(({ subject }) => port.read("jobs", subject)));
  // A copy that is behind the one that told of the newest would leave a gap, and what came since might be on other subjects.
  const isBehind = all.some((messages, place) => endOf(messages) < (open[place]?.seq ?? 0));
  if (isBehind) return port.read("jobs", filter);
  const end = endOf(newest);
  const seen = [...newest.filter((message) => !open.includes(message)), ...all.flat()];
  return seen.filter(({ seq }) => seq <= end).sort((one, other) => one.seq - other.seq);
}

/**
 * Tells which subjects may have had more than their newest message. Each change of a job advances its version by one, so that
 * nothing is missing where the versions leave no gap. Notes and tickets have none, and what is not known counts as they do.
 */
function mayBeRepeated(newest: readonly StoredMessage[]): (message: StoredMessage) => boolean {
  const changes = new Set<StoredMessage>();
  let isWhole = true;
  for (const message of newest) {
    const { name, version } = eventOf(message);
    if (transitions[name]?.kind !== "change") continue;
    changes.add(message);
    isWhole &&= version === changes.size;
  }
  return (message) => !isWhole || !changes.has(message);
}

/** The position of the last of some messages. */
function endOf(messages: readonly StoredMessage[]): number {
  return messages.at(-1)?.seq ?? 0;
}
