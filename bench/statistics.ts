// The little arithmetic that measures share: time spans, rates, medians and percentiles.

const nanosecondsPerSecond = 1e9;
const nanosecondsPerMillisecond = 1e6;

/** Now on a clock that only moves forward and that all processes of a machine share (on Linux). */
export function now(): bigint {
  return process.hrtime.bigint();
}

/** Milliseconds from one time of `now` to another. */
export function millisecondsBetween(start: bigint, end: bigint): number {
  return Number(end - start) / nanosecondsPerMillisecond;
}

/** How often per second something happened that happened `count` times since a time of `now`. */
export function ratePerSecond(count: number, start: bigint): number {
  return (count * nanosecondsPerSecond) / Number(now() - start);
}

/** The value in the middle; the mean of the two in the middle when their number is even. */
export function median(values: readonly number[]): number {
  const mirrored = values.map((value) => -value);
  return (percentile(values, 0.5) - percentile(mirrored, 0.5)) / 2;
}

/** The smallest value that is no smaller than the given share of all. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const value = sorted[Math.max(Math.ceil(share * sorted.length) - 1, 0)];
  if (value === undefined) throw new Error("there is no percentile of no values");
  return value;
}
