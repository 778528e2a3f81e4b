// Runs a worker of Millrace with a handler that does nothing, and watches it from its own process.
import { setTimeout as sleep } from "node:timers/promises";
import { now, ratePerSecond } from "../statistics.js";
import { watchLoopDelay } from "./loop-delay.js";
import { type BenchService, openJobs } from "./stage.js";
import type { Entry, WorkerCalls } from "./worker-calls.js";

const kibibytesPerMebibyte = 1_024;
const microsecondsPerMillisecond = 1_000;
/** How long to wait between two looks at whether the last jobs have been recorded as completed. */
const lookPauseMs = 2;

/** Makes a worker on a service, which nobody has started yet. */
export function createWorkerHost(
  service: BenchService,
  onEntry: (entry: Entry) => void,
): WorkerCalls {
  let entered = 0;
  let isListening = false;
  let onEntered = () => {};

  function handle(payload: { readonly number: number }): void {
    entered += 1;
    onEntered();
    if (isListening) onEntry({ number: payload.number, at: now() });
  }
  service.jobs.plain.handle((job) => handle(job.payload));
  service.jobs.keyed.handle((job) => handle(job.payload));

  return {
    async drain(jobs) {
      const loopDelay = watchLoopDelay();
      const allEntered = new Promise<void>((resolve) => {
        onEntered = () => {
          if (entered === jobs) resolve();
        };
      });
      const start = now();
      await service.start();
      await allEntered;
      while ((await openJobs(service)) > 0) await sleep(lookPauseMs);
      return {
        jobsPerSecond: ratePerSecond(jobs, start),
        loopDelayMs: loopDelay(),
        memoryMaxMb: process.resourceUsage().maxRSS / kibibytesPerMebibyte,
      };
    },
    async listen() {
      isListening = true;
      await service.start();
    },
    async processorMs() {
      const { user, system } = process.cpuUsage();
      return (user + system) / microsecondsPerMillisecond;
    },
    stop: () => service.stop(),
  };
}
