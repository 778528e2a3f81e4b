// The first half of the simulated seeds, and what the simulator promises about itself.
import { describe, expect, it } from "vitest";
import type { EventName } from "#millrace/core/event.js";
import { simulationTests } from "./shard.js";
import { simulate } from "./simulate.js";

/** All events but those that only later versions cause: agents and tickets. */
const happening: readonly EventName[] = [
  "created",
  "unblocked",
  "unreachable",
  "started",
  "progress",
  "logged",
  "emitted",
  "heartbeat",
  "retry",
  "released",
  "completed",
  "failed",
  "cancelRequested",
  "cancelled",
  "expired",
  "skipped",
  "stale",
  "keyBlocked",
  "staleCompletionIgnored",
  "dead",
  "retried",
  "dismissed",
  "deleted",
];

/** So many seeds cause all of them. */
const coverageSeeds = 100;

simulationTests(1, 500);

describe("the simulator", () => {
  it("gives the same log for the same seed, and another for another", async () => {
    const [first, second, other] = [await simulate(11), await simulate(11), await simulate(12)];
    expect(second.hash).toBe(first.hash);
    expect(other.hash).not.toBe(first.hash);
  });

  it("leaves nothing out that can happen to a job of this version", {
    timeout: 60_000,
  }, async () => {
    const seen = new Set<EventName>();
    for (let seed = 1; seed <= coverageSeeds; seed++) {
      for (const name of (await simulate(seed)).eventNames) seen.add(name);
    }
    expect([...seen].sort()).toEqual([...happening].sort());
  });

  it("tells what happened when it is asked to", async () => {
    const { lines } = await simulate(11, { verbose: true });
    expect(lines.some((line) => line.includes("the storm is over"))).toBe(true);
  });
});
