// A worker as its own process sees it: opens the host of a system, and tells who is entered.
import { now } from "../statistics.js";
import type { EntryListener, Watch, WorkerCalls } from "./calls.js";
import type { HostOpener, WorkerHost } from "./host.js";
import { watchLoopDelay } from "./loop-delay.js";

const kibibytesPerMebibyte = 1_024;
const microsecondsPerMillisecond = 1_000;
/** How often counts are told. */
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
  let loopDelayMs = () => 0;

  const onEntry = {
    count: () => {
      untold += 1;
    },
    each: (number: number) => listener.onEntry({ number, at: now() }),
  }[watch];

  function tellCount(): void {
    if (untold > 0) listener.onCount(untold);
    untold = 0;
  }

  return {
    async open() {
      host = await openHost(url, onEntry);
    },
    async start() {
      loopDelayMs = watchLoopDelay();
      telling = setInterval(tellCount, tellPauseMs);
      await host?.start();
    },
    async usage() {
      const { user, system } = process.cpuUsage();
      return {
        processorMs: (user + system) / microsecondsPerMillisecond,
        memoryMaxMb: process.resourceUsage().maxRSS / kibibytesPerMebibyte,
        loopDelayMs: loopDelayMs(),
      };
    },
    async stop() {
      clearInterval(telling);
      await host?.stop();
    },
  };
}
