// The first half of the simulated seeds, and what the simulator promises about itself.
import { describe, expect, it } from "vitest";
import { simulationTests } from "./shard.js";
import { simulate } from "./simulate.js";

simulationTests(1, 500);

describe("the simulator", () => {
  it("gives the same log for the same seed, and another for another", async () => {
    const [first, second, other] = [await simulate(11), await simulate(11), await simulate(12)];
    expect(second.hash).toBe(first.hash);
    expect(other.hash).not.toBe(first.hash);
  });

  it("tells what happened when it is asked to", async () => {
    const { lines } = await simulate(11, { verbose: true });
    expect(lines.some((line) => line.includes("the storm is over"))).toBe(true);
  });
});
