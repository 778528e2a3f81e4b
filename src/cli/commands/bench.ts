/**
 * `millrace bench`: measures the user's own store.
 */
import type { Command } from "commander";
import { define, option, type Run } from "../define.js";
import { wholeNumber } from "../values.js";

const jobsDefault = 2_000;
const jobsMax = 1_000_000;

/** Adds the command. */
export function addBench(program: Command, run: Run): void {
  define<{ jobs: number }>(program, run, {
    words: "bench",
    says: "measure your own store with jobs that do nothing, and remove them",
    examples: ["millrace bench", "millrace bench --url postgres://localhost/app --jobs 20000"],
    options: [option("--jobs <number>", "how many", wholeNumber(1, jobsMax)).default(jobsDefault)],
    run: async (session, { options: { jobs } }) => {
      const { bench } = await import("../bench.js");
      await bench(session, jobs);
    },
  });
}
