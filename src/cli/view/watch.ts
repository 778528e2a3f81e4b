/**
 * Watches a service's jobs for the views: counts by state, what runs now, what happened last, and how fast.
 */
import type { Reads } from "../../client/reads.js";
import type { JobEvent } from "../../core/event.js";
import { endedStates, type JobState, jobStates, type Progress } from "../../core/job.js";

/** How many notable events are remembered, and over how long throughput is measured. */
const notableMax = 50;
const throughputMs = 2_000;

/** A job that runs now. */
export interface Running {
  readonly id: string;
  readonly type: string;
  readonly tries: number;
  readonly startedAt: number;
  readonly progress: Progress | null;
}

/** How many jobs are in each state. */
export type Counts = { readonly [State in JobState]: number };

/** What the views show. */
export interface Picture {
  readonly counts: Counts;
  readonly running: readonly Running[];
  /** How many jobs were created since the watch began. */
  readonly created: number;
  /** What happened that is worth a line, oldest first; `seen` counts those that were left out, too. */
  readonly notable: readonly JobEvent[];
  readonly seen: number;
  /** Jobs that ended, per second. */
  readonly throughput: number;
}

/** Follows the feed of events and counts jobs. */
export class Watch {
  readonly #reads: Reads;
  readonly #stop = new AbortController();
  readonly #running = new Map<string, Running>();
  #notable: JobEvent[] = [];
  #seen = 0;
  #created = 0;
  #samples: { readonly at: number; readonly ended: number }[] = [];
  #following: Promise<void> = Promise.resolve();

  constructor(reads: Reads) {
    this.#reads = reads;
  }

  /** Begins to follow what happens from now on. */
  async start(): Promise<void> {
    const cursor = await this.#reads.head().orThrow();
    this.#following = this.#follow(cursor);
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#following;
  }

  /** The shop as it is now. */
  async look(): Promise<Picture> {
    const counts = await countsOf(this.#reads);
    return {
      counts,
      running: [...this.#running.values()],
      created: this.#created,
      notable: this.#notable,
      seen: this.#seen,
      throughput: this.#throughput(endedCount(counts)),
    };
  }

  async #follow(cursor: string): Promise<void> {
    for await (const { event } of this.#reads.tail(this.#stop.signal, cursor)) {
      this.#note(event);
    }
  }

  #note(event: JobEvent): void {
    const { jobId: id, type, tries, at } = event;
    if (event.name === "created") this.#created += 1;
    if (event.name === "started") {
      this.#running.set(id, { id, type, tries, startedAt: at, progress: null });
    } else if (event.name === "progress") {
      const running = this.#running.get(id);
      if (running) this.#running.set(id, { ...running, progress: event.progress });
    } else if (event.state !== "active") {
      this.#running.delete(id);
    }
    if (!isNotable(event)) return;
    this.#seen += 1;
    this.#notable = [...this.#notable, event].slice(-notableMax);
  }

  /** Over a short while back, so that the number is neither jumpy nor old. */
  #throughput(ended: number): number {
    const at = performance.now();
    this.#samples = this.#samples.filter((sample) => at - sample.at <= throughputMs);
    this.#samples.push({ at, ended });
    const [first] = this.#samples;
    if (first === undefined || first.at === at) return 0;
    return ((ended - first.ended) * 1_000) / (at - first.at);
  }
}

/** Counts the jobs of the service by state. */
export async function countsOf(reads: Reads): Promise<Counts> {
  const counts = Object.fromEntries(jobStates.map((state) => [state, 0])) as {
    [State in JobState]: number;
  };
  for (const { state, count } of await reads.counts().orThrow()) counts[state] += count;
  return counts;
}

/** How many jobs have ended. */
export function endedCount(counts: Counts): number {
  return endedStates.reduce((sum, state) => sum + counts[state], 0);
}

/** How many jobs have not. */
export function openCount(counts: Counts): number {
  return counts.pending + counts.blocked + counts.active + counts.retry;
}

/** Most events are jobs that go their way; the others are worth a line. */
function isNotable({ name }: JobEvent): boolean {
  return !["created", "started", "progress", "logged", "completed"].includes(name);
}
