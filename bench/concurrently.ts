// Many callers that each do one thing after the other, as the callers of a busy service do.

/** Does something for the numbers from 0 up to a count, with a number of callers at a time. */
export async function concurrently(
  count: number,
  callers: number,
  work: (number: number) => Promise<unknown>,
): Promise<void> {
  let next = 0;
  async function caller(): Promise<void> {
    while (next < count) {
      const number = next;
      next += 1;
      await work(number);
    }
  }
  await Promise.all(Array.from({ length: callers }, caller));
}
