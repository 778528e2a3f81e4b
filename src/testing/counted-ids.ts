/**
 * Ids and randomness that are the same in every run of a test: jobs are `job-000001`, `job-000002`
 * and so on, and backoffs are never spread by jitter.
 */
import { createHash } from "node:crypto";
import type { IdSource } from "../client/ids.js";

/** How many digits a counted id has, so that ids sort in the order in which they were made. */
const digits = 6;

/** In the middle, where jitter moves a delay neither way. */
const middle = 0.5;

/** Makes ids that count up. */
export function countedIds(): IdSource {
  const counts = { job: 0, event: 0, random: 0 };
  const next = (kind: "job" | "event") => {
    counts[kind] += 1;
    return `${kind}-${String(counts[kind]).padStart(digits, "0")}`;
  };
  const nextHash = () => {
    counts.random += 1;
    return createHash("sha512").update(`random ${counts.random}`).digest("hex");
  };
  return {
    jobId: () => next("job"),
    eventId: () => next("event"),
    randomHex: (bytes) => {
      let hex = "";
      while (hex.length < bytes * 2) hex += nextHash();
      return hex.slice(0, bytes * 2);
    },
    random: () => middle,
  };
}
