// A worker as its own process sees it: opens the host of a system, and tells who is entered.
import { now } from "../statistics.js";
import type { EntryListener, Watch, WorkerCalls } from "./calls.js";
import type { HostOpener, WorkerHost } from "./host.js";
import { watchLoopDelay } from "./loop-delay.js";

const kibibytesPerMebibyte = 1_024;
const microsecondsPerMillisecond = 1_000;
/** How long after an entry the count is told. */
const tellPauseMs = 2;

/** Makes a worker on a store, not opened yet. */
export function createWorker(
  openHost: HostOpener,
  url: string,
  watch: Watch,
  listener: EntryListener,
): WorkerCalls {
  let host: WorkerHost | undefined;
  let untold = 0;
  let telling: NodeJS.Timeout | undefined;
  let loopDelayMs: (() => number) | undefined;

  // Whoever watches sets timers of its own. There are none before the first job, so that an idle worker is idle.
  const onEntry = {
    count: () => {
      loopDelayMs ??= watchLoopDelay();
      untold += 1;
      if (untold === 1) telling = setTimeout(tellCount, tellPauseMs);
    },
    each: (number: number) => listener.onEntry({ number, at: now() }),
  }[watch];

  function tellCount(): void {
    listener.onCount(untold);
    untold = 0;
  }

  return {
    async open() {
      host = await openHost(url, onEntry);
    },
    async start() {
      loopDelayMs = undefined;
      await host?.start();
    },
    async usage() {
      const { user, system } = process.cpuUsage();
      return {
        processorMs: (user + system) / microsecondsPerMillisecond,
        memoryMaxMb: process.resourceUsage().maxRSS / kibibytesPerMebibyte,
        loopDelayMs: loopDelayMs?.() ?? 0,
      };
    },
    async stop() {
      clearTimeout(telling);
      untold = 0;
      await host?.stop();
    },
  };
}
