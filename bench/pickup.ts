// Times how long a job takes from the call of create in this process to its handler in an idle worker.
import { setTimeout as sleep } from "node:timers/promises";
import { type Bench, VerificationFailure } from "./bench.js";
import type { Stage, StagedSystem } from "./stage.js";
import { millisecondsBetween, now, percentile } from "./statistics.js";
import { settleStore } from "./stores.js";
import type { Entry } from "./worker/calls.js";
import { type Workers, withWorkers } from "./worker/workers.js";

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
export function pickupStage<Job>(
  bench: Bench,
  system: StagedSystem<Job>,
  stage: Stage<Job>,
): Promise<PickupReport> {
  const warmUpJobs = bench.sizes.warmUpSequentialJobs;
  const samples = system.amounts(bench.sizes).pickupSamples;
  const wish = { processes: 1, watch: "each" } as const;
  return withWorkers(bench, system, stage, wish, async (workers) => {
    await workers.open();
    await workers.start();
    const jobs = await warmUp(workers, stage, warmUpJobs);
    await settleStore(bench, stage.url);
    const times: number[] = [];
    for (let number = warmUpJobs; number < warmUpJobs + samples; number += 1) {
      await sleep(pauseMinMs + ((number * pauseStepMs) % pauseSpreadMs));
      const entered = nextEntry(workers, number);
      const start = now();
      const [job, entry] = await Promise.all([stage.create(number, "plain"), entered]);
      jobs.push(job);
      times.push(millisecondsBetween(start, entry.at));
    }
    await workers.stop();
    await stage.verify(jobs, "ended");
    return { medianMs: percentile(times, 0.5), percentile99Ms: percentile(times, 0.99) };
  });
}

/** Both processes have been at work before they fall idle, as those of a system that has run for a while. */
async function warmUp<Job>(workers: Workers, stage: Stage<Job>, count: number): Promise<Job[]> {
  const jobs: Job[] = [];
  const entries: Promise<Entry>[] = [];
  for (let number = 0; number < count; number += 1) {
    entries.push(nextEntry(workers, number));
    jobs.push(await stage.create(number, "plain"));
  }
  await Promise.all(entries);
  return jobs;
}

async function nextEntry(workers: Workers, number: number): Promise<Entry> {
  try {
    return await workers.entry(number, AbortSignal.timeout(entryTimeoutMs));
  } catch {
    throw new VerificationFailure(`job ${number} was not picked up in ${entryTimeoutMs} ms`);
  }
}
