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

  it("are ULIDs, which tell the millisecond at which they were made", () => {
    const at = Date.UTC(2026, 10, 17, 9, 30, 15, 123);
    const ids = createIds(() => at);
    const letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    for (const id of [ids.jobId(), ids.eventId()]) {
      expect(id).toMatch(/^[0-9A-HJKMNP-TV-Z]{26}$/);
      const told = [...id.slice(0, 10)].reduce(
        (sum, letter) => sum * 32 + letters.indexOf(letter),
        0,
      );
      expect(told).toBe(at);
    }
  });

  it("differ between sources of the same millisecond", () => {
    const made = Array.from({ length: 1_000 }, () => createIds(() => 1_000).jobId());
    expect(new Set(made.map((id) => id.slice(10))).size).toBe(made.length);
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
