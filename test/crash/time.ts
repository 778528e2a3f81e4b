// Real time, which the processes of the crash tests share.

/** The machine's monotonic clock in milliseconds, which all processes share. */
export function tick(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** Lets real time pass. */
export function pass(forMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, forMs)); // clock: how long real processes run and stand still is what is tested
}
