// The first half of the seeds of the JetStream engine, and those that once found something.
import { describe, expect, it } from "vitest";
import { failureText } from "../report.js";
import { simulationTests } from "../shard.js";
import { simulate } from "../simulate.js";

const engine = "nats";

/** Seeds that broke a rule before what they found was mended. */
const instructive = [19, 33, 71, 176, 191, 204, 3244, 5267] as const;

simulationTests(1, 75, engine);

describe("the simulator of the JetStream engine", () => {
  it("gives the same log for the same seed, and another for another", async () => {
    const [first, second, other] = [
      await simulate(11, { engine }),
      await simulate(11, { engine }),
      await simulate(12, { engine }),
    ];
    expect(second.hash).toBe(first.hash);
    expect(other.hash).not.toBe(first.hash);
  });

  it.for(instructive)("breaks no rule with seed %i any more", async (seed) => {
    const outcome = await simulate(seed, { engine });
    expect(outcome.violations.length === 0 ? "" : failureText(outcome)).toBe("");
  });
});
