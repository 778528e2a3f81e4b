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
}

/** How many histories are read at once, and how many such readings are under way. */
const readAtOnce = 200;
const readers = 4;

/** A row of the read model costs more to ask for than a history: that of every so-manieth job is compared. */
const jobsPerRow = 10;

/** Looks at the jobs of one store, those of a call after those of the call before. */
export class Verifier {
  readonly #service: BenchService;
  /** Where the feed was when jobs were last looked at: what comes to be looked at was created after it. */
  #cursor: string | null = null;

  constructor(service: BenchService) {
    this.#service = service;
  }

  /** Reads the history of every job, and compares. */
  async verify(jobs: readonly BenchJob[], expected: readonly string[]): Promise<void> {
    const ids = jobs.map(({ id }) => id);
    const different = new Set(ids).size;
    verify(different === jobs.length, () => `${jobs.length} jobs have ${different} ids`);
    const wanted = expected.join(", ");
    // A stream is read from one end to the other faster than job by job.
    const isStream = this.#service.engine.url.startsWith("nats:");
    const feed = isStream ? await this.#readFeed(ids) : null;
    await concurrently(Math.ceil(ids.length / readAtOnce), readers, async (part) => {
      const chosen = ids.slice(part * readAtOnce, (part + 1) * readAtOnce);
      const histories = feed ? chosen.map((id) => feed.get(id) ?? []) : await this.#load(chosen);
      for (const [index, id] of chosen.entries()) {
        const events = histories[index] ?? [];
        const names = events.map(({ name }) => name).join(", ");
        verify(names === wanted, () => `the history of job ${id} is ${names}, not ${wanted}`);
        if (index % jobsPerRow === 0) await this.#compare(id, events);
      }
    });
  }

  /** Compares the row of a job with its folded history. */
  async #compare(id: string, events: readonly JobEvent[]): Promise<void> {
    const row = await this.#service.engine.query("job", { id });
    const folded = fold(events);
    const isEqual =
      row !== null &&
      row.state === folded?.state &&
      row.version === folded.version &&
      row.tries === folded.tries &&
      row.updatedAt === folded.updatedAt &&
      row.endedAt === folded.endedAt;
    verify(isEqual, () => `job ${id}: the read model differs from the folded history`);
  }

  async #load(ids: readonly string[]): Promise<readonly (readonly JobEvent[])[]> {
    const loaded = await this.#service.engine.load(ids, { history: true });
    return loaded.map((job) => job?.events ?? []);
  }

  /** The histories of some jobs, from the feed up to where it is now. */
  async #readFeed(ids: readonly string[]): Promise<ReadonlyMap<string, readonly JobEvent[]>> {
    const { engine } = this.#service;
    const histories = new Map<string, JobEvent[]>(ids.map((id) => [id, []]));
    const head = await engine.head();
    const done = new AbortController();
    for await (const { cursor, event } of engine.tail(this.#cursor, done.signal)) {
      histories.get(event.jobId)?.push(event);
      if (Number(cursor) >= Number(head)) break;
    }
    done.abort();
    this.#cursor = head;
    return histories;
  }
}
