// Drains a backlog with one worker and verifies afterwards what became of every job.
import type { Bench } from "../bench.js";
import type { JobType } from "./contract.js";
import { createJobs, type Stage, withStage } from "./stage.js";
import { verifyHistories } from "./verify.js";
import { withWorker } from "./worker.js";
import type { DrainReport } from "./worker-calls.js";

/** What the log of a job says that was created and ran without trouble. */
export const undisturbedHistory = ["created", "started", "completed"] as const;

/** Drains a backlog on an empty store. */
export function drainFresh(bench: Bench, type: JobType, jobs: number): Promise<DrainReport> {
  return withStage(bench, (stage) => drainStage(bench, stage, type, jobs));
}

/** Drains a backlog beside whatever a store keeps already. */
export async function drainStage(
  bench: Bench,
  stage: Stage,
  type: JobType,
  jobs: number,
): Promise<DrainReport> {
  const created = await createJobs(stage, type, jobs);
  const report = await withWorker(bench, stage, (worker) => worker.drain(jobs));
  await verifyHistories(stage, created, undisturbedHistory);
  return report;
}
