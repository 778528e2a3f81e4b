// Ids sort by time, never repeat, and cost next to nothing.

import { describe, expect, it } from "vitest";
import { createIds, systemIds } from "#millrace/client/ids.js";
import { nameProblem } from "#millrace/core/names.js";

describe("ids", () => {
  it("grow, even within a millisecond and when the clock goes back", () => {
    let now = 1_000;
    const ids = createIds(() => now);
    const made = Array.from({ length: 1_000 }, () => ids.jobId());
    now = 500;
    made.push(ids.eventId(), ids.jobId());
    expect(made).toEqual([...made].sort());
    expect(new Set(made).size).toBe(made.length);
  });

  it("are valid names of jobs", () => {
    expect(nameProblem("id", systemIds.jobId())).toBeNull();
  });

  it("come with random values from all of their range", () => {
    const values = Array.from({ length: 10_000 }, () => systemIds.random());
    expect(Math.min(...values)).toBeGreaterThanOrEqual(0);
    expect(Math.min(...values)).toBeLessThan(0.01);
    expect(Math.max(...values)).toBeLessThan(1);
    expect(Math.max(...values)).toBeGreaterThan(0.99);
    expect(systemIds.randomHex(24)).toMatch(/^[0-9a-f]{48}$/);
    const hexes = Array.from({ length: 2_000 }, () => systemIds.randomHex(24));
    expect(new Set(hexes).size).toBe(hexes.length);
  });
});
