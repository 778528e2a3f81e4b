/**
 * Answers that fit into one message: a page that is too large ends earlier, a job leaves its log lines out.
 */
import type { JobsCallName, JobsCalls } from "./calls.js";
import { UnavailableError } from "./errors.js";
import type { PageWire } from "./wire.js";

/** What a page needs besides its entries. */
const envelopeBytes = 1_024;

/** The answer to a call before it is told: an entry of a page that has gone since is `null`, so that others keep their places. */
export type Unfitted<Name extends JobsCallName> =
  JobsCalls[Name]["output"] extends PageWire<infer Entry>
    ? PageWire<Entry | null>
    : JobsCalls[Name]["output"];

/** The text of an answer in so many bytes at most. */
export function fittingText(answer: Unfitted<JobsCallName>, bytesMax: number): string {
  const text = JSON.stringify("entries" in answer ? cut(answer) : answer);
  if (Buffer.byteLength(text) <= bytesMax) return text;
  const smaller = JSON.stringify("entries" in answer ? cut(answer, bytesMax) : withoutLogs(answer));
  if (Buffer.byteLength(smaller) <= bytesMax) return smaller;
  throw new UnavailableError({
    message: `The answer has ${Buffer.byteLength(smaller)} bytes, and the NATS server takes ${bytesMax}. Raise max_payload of the server.`,
  });
}

/** The entries of a page that are there, or the first of them, and where the others begin. */
function cut(page: PageWire<object | null>, bytesMax = Number.POSITIVE_INFINITY): PageWire<object> {
  let bytes = envelopeBytes;
  const entries: object[] = [];
  for (const [place, entry] of page.entries.entries()) {
    if (entry === null) continue;
    if (bytesMax < Number.POSITIVE_INFINITY) bytes += Buffer.byteLength(JSON.stringify(entry)) + 1;
    // The first one is given in any case, so that whoever asks comes on.
    if (bytes > bytesMax && entries.length > 0)
      return { ...page, entries, nextOffset: page.offset + place };
    entries.push(entry);
  }
  return { ...page, entries };
}

function withoutLogs(answer: object): object {
  if (!("job" in answer) || typeof answer.job !== "object") return answer;
  return { ...answer, job: { ...answer.job, logs: undefined } };
}
