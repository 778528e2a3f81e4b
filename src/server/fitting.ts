/**
 * Answers that fit into one message: a page that is too large ends earlier, a job leaves its log lines out.
 */
import type { JobsCallName, JobsCalls } from "./calls.js";
import { UnavailableError } from "./errors.js";

/** What a page needs besides its entries. */
const envelopeBytes = 1_024;

/** The text of an answer in so many bytes at most. */
export function fittingText(answer: JobsCalls[JobsCallName]["output"], bytesMax: number): string {
  const text = JSON.stringify(answer);
  if (Buffer.byteLength(text) <= bytesMax) return text;
  const smaller = JSON.stringify("entries" in answer ? cut(answer, bytesMax) : withoutLogs(answer));
  if (Buffer.byteLength(smaller) <= bytesMax) return smaller;
  throw new UnavailableError({
    message: `The answer has ${Buffer.byteLength(smaller)} bytes, and the NATS server takes ${bytesMax}. Raise max_payload of the server.`,
  });
}

/** The first entries of a page, and where the others begin. */
function cut<Page extends { readonly entries: readonly object[]; readonly offset: number }>(
  page: Page,
  bytesMax: number,
): Page {
  let bytes = envelopeBytes;
  let count = 0;
  for (const entry of page.entries) {
    bytes += Buffer.byteLength(JSON.stringify(entry)) + 1;
    // The first one is given in any case, so that whoever asks comes on.
    if (bytes > bytesMax && count > 0) break;
    count += 1;
  }
  return {
    ...page,
    entries: page.entries.slice(0, count),
    ...(count < page.entries.length && { nextOffset: page.offset + count }),
  };
}

function withoutLogs(answer: object): object {
  if (!("job" in answer) || typeof answer.job !== "object") return answer;
  return { ...answer, job: { ...answer.job, logs: undefined } };
}
