// A share of the seeds of the normal test run. Shares are files of their own, so that they run side by side.
import { describe, expect, it } from "vitest";
import { failureText } from "./report.js";
import { simulate } from "./simulate.js";
import type { EngineName } from "./world.js";

/** How many seeds one test runs, so that progress shows. */
const seedsPerTest = 25;
const timeoutMs = 120_000;

/** Declares the tests of `seeds` seeds from `first` on. */
export function simulationTests(first: number, seeds: number, engine: EngineName = "memory"): void {
  describe("a storm of faults breaks no rule, and afterwards every job ends", () => {
    for (let start = first; start < first + seeds; start += seedsPerTest) {
      const last = start + seedsPerTest - 1;
      it(`seeds ${start} to ${last}`, { timeout: timeoutMs }, async () => {
        const failures: string[] = [];
        for (let seed = start; seed <= last; seed++) {
          const outcome = await simulate(seed, { engine });
          if (outcome.violations.length > 0) failures.push(failureText(outcome));
        }
        expect(failures.join("\n")).toBe("");
      });
    }
  });
}
