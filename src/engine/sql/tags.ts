/**
 * The index of tags, read job by job: what lists by tag go by, to be compared with what jobs say of themselves.
 */
import { pageDefault, pageMax, type TaggedAsk, type TaggedPage } from "../query.js";
import { int, type Step, text } from "./statement.js";

/** The tags of some jobs after a number, all of each, in the order of their numbers. */
const readTags = `SELECT t.n, t.tag, j.id FROM tags t LEFT JOIN jobs j ON j.n = t.n
  WHERE t.n IN (SELECT DISTINCT n FROM tags WHERE n > ? ORDER BY n LIMIT ?) ORDER BY t.n, t.tag`;

/** The tags that the index has of jobs, the oldest job first. */
export function* listTagged({ cursor, limit = pageDefault }: TaggedAsk): Step<TaggedPage> {
  const jobsMax = Math.min(limit, pageMax);
  const rows = yield { sql: readTags, values: [Number(cursor ?? 0), jobsMax + 1] };
  const jobs = new Map<number, { readonly jobId: string | null; readonly tags: string[] }>();
  for (const row of rows) {
    const n = int(row, "n");
    const job = jobs.get(n) ?? { jobId: row.id === null ? null : text(row, "id"), tags: [] };
    job.tags.push(text(row, "tag"));
    jobs.set(n, job);
  }
  const numbers = [...jobs.keys()].slice(0, jobsMax);
  const entries = [...jobs.values()].slice(0, jobsMax);
  return { entries, ...(jobs.size > jobsMax && { nextCursor: String(numbers.at(-1)) }) };
}
