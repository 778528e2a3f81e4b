// Verifies what Millrace shows after a measure: that every job has the history that it should have, and
// that folding this history again gives what the read model says.
import type { JobEvent } from "#millrace/core/event.js";
import { fold } from "#millrace/core/evolve.js";
import { verify } from "../bench.js";
import { concurrently } from "../concurrently.js";
import type { BenchService } from "./contract.js";

/** A job that was created by the benchmark. */
export interface BenchJob {
  readonly id: string;
  events(): ReturnType<BenchService["reads"]["events"]>;
}

/** How many jobs are read at the same time. */
const readers = 200;

/** Reads the history of every job, and compares. */
export async function verifyHistories(
  service: BenchService,
  jobs: readonly BenchJob[],
  expected: readonly string[],
): Promise<void> {
  const ids = new Set(jobs.map(({ id }) => id));
  verify(ids.size === jobs.length, () => `${jobs.length} jobs have ${ids.size} ids`);
  const wanted = expected.join(", ");
  // A stream is read from its beginning to its end faster than job by job.
  const histories = service.engine.url.startsWith("nats:") ? await readFeed(service, ids) : null;
  await concurrently(jobs.length, readers, async (index) => {
    const job = jobs[index] as BenchJob;
    const [events, row] = await Promise.all([
      histories?.get(job.id) ?? job.events().orThrow(),
      service.engine.query("job", { id: job.id }),
    ]);
    const names = events.map(({ name }) => name).join(", ");
    verify(names === wanted, () => `the history of job ${job.id} is ${names}, not ${wanted}`);
    const folded = fold(events);
    const isEqual =
      row !== null &&
      row.state === folded?.state &&
      row.version === folded.version &&
      row.tries === folded.tries &&
      row.updatedAt === folded.updatedAt &&
      row.endedAt === folded.endedAt;
    verify(isEqual, () => `job ${job.id}: the read model differs from the folded history`);
  });
}

/** The histories of some jobs, from the feed up to where it is now. */
async function readFeed(
  { engine }: BenchService,
  ids: ReadonlySet<string>,
): Promise<ReadonlyMap<string, readonly JobEvent[]>> {
  const histories = new Map<string, JobEvent[]>([...ids].map((id) => [id, []]));
  const head = Number(await engine.head());
  const done = new AbortController();
  for await (const { cursor, event } of engine.tail(null, done.signal)) {
    histories.get(event.jobId)?.push(event);
    if (Number(cursor) >= head) break;
  }
  done.abort();
  return histories;
}
