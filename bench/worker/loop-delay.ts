// Watches how late the event loop of this process is.
import { monitorEventLoopDelay } from "node:perf_hooks";

const resolutionMs = 1;
const nanosecondsPerMillisecond = 1e6;

/** Starts to watch. What it gives stops watching and tells the 99th percentile in milliseconds. */
export function watchLoopDelay(): () => number {
  const histogram = monitorEventLoopDelay({ resolution: resolutionMs });
  histogram.enable();
  return () => {
    histogram.disable();
    return histogram.percentile(99) / nanosecondsPerMillisecond;
  };
}
