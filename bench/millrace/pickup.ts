// Times how long a job takes from the call of `create` in this process to its handler in an idle worker.
import { EventEmitter, once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { type Bench, VerificationFailure } from "../bench.js";
import { millisecondsBetween, now, percentile } from "../statistics.js";
import { undisturbedHistory } from "./drain.js";
import { type BenchJob, createJob, type Stage } from "./stage.js";
import { verifyHistories } from "./verify.js";
import { withWorker } from "./worker.js";
import type { Entry } from "./worker-calls.js";

/** Samples that warm up both processes and are not counted. */
const warmUpSamples = 20;
/** Pauses let the worker fall idle; they differ, so that no rhythm of the worker's can favour them. */
const pauseMinMs = 15;
const pauseSpreadMs = 20;
/** A prime, so that the pauses go through the whole spread. */
const pauseStepMs = 7;
const entryTimeoutMs = 60_000;

/** The times of many pickups. */
export interface PickupReport {
  readonly medianMs: number;
  readonly percentile99Ms: number;
}

/** Creates one job at a time beside an idle worker. */
export async function pickupStage(bench: Bench, stage: Stage): Promise<PickupReport> {
  const entries = new EventEmitter();
  const jobs: BenchJob[] = [];
  const times: number[] = [];
  const tell = (entry: Entry) => entries.emit(String(entry.number), entry);
  await withWorker(
    bench,
    stage,
    async (worker) => {
      await worker.listen();
      for (let number = 0; number < warmUpSamples + bench.sizes.pickupSamples; number += 1) {
        await sleep(pauseMinMs + ((number * pauseStepMs) % pauseSpreadMs));
        const entered = nextEntry(entries, number);
        const start = now();
        const [job, entry] = await Promise.all([createJob(stage, "plain", number), entered]);
        jobs.push(job);
        times.push(millisecondsBetween(start, entry.at));
      }
    },
    tell,
  );
  await verifyHistories(stage, jobs, undisturbedHistory);
  const counted = times.slice(warmUpSamples);
  return { medianMs: percentile(counted, 0.5), percentile99Ms: percentile(counted, 0.99) };
}

async function nextEntry(entries: EventEmitter, number: number): Promise<Entry> {
  try {
    const signal = AbortSignal.timeout(entryTimeoutMs);
    const [entry] = await once(entries, String(number), { signal });
    return entry as Entry;
  } catch {
    throw new VerificationFailure(`job ${number} was not picked up in ${entryTimeoutMs} ms`);
  }
}
