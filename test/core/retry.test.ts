// Retry policies: how long to wait before the next try.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  type Backoff,
  backoffProblem,
  delayMaxMs,
  namedBackoffs,
  retryDelayMs,
} from "#millrace/core/retry.js";

const secondMs = 1_000;
const minuteMs = 60 * secondMs;
const middle = 0.5;

/** Every kind of policy, also silly ones. */
const backoffs: fc.Arbitrary<Backoff> = fc.oneof(
  fc.constantFrom("default", "linear-1m", "linear-10m", "linear-1h", "exponential"),
  fc.array(fc.double(), { minLength: 1 }),
  fc.record(
    {
      kind: fc.constant("exponential" as const),
      baseMs: fc.double(),
      factor: fc.double(),
      maxMs: fc.double(),
      jitter: fc.double({ min: 0, max: 1, noNaN: true }),
    },
    { requiredKeys: ["kind"] },
  ),
  fc.double().map((delayMs) => () => delayMs),
);

describe("retry delays", () => {
  it("are whole milliseconds within bounds, whatever the policy says", () => {
    const random = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
    fc.assert(
      fc.property(backoffs, fc.integer({ min: 1, max: 2_000 }), random, (backoff, tries, dice) => {
        const delayMs = retryDelayMs(backoff, tries, dice);
        expect(Number.isInteger(delayMs)).toBe(true);
        expect(delayMs).toBeGreaterThanOrEqual(0);
        expect(delayMs).toBeLessThanOrEqual(delayMaxMs);
      }),
    );
  });

  it("of the default follow its list, of which the last repeats", () => {
    const delays = [1, 2, 3, 4, 5, 6, 99].map((tries) => retryDelayMs("default", tries, middle));
    const list = [5, 30, 120, 600, 1_800].map((seconds) => seconds * secondMs);
    expect(delays).toEqual([...list, 1_800 * secondMs, 1_800 * secondMs]);
  });

  it("are spread both ways by half of the jitter", () => {
    expect(retryDelayMs("default", 1, 0)).toBe(4_500);
    expect(retryDelayMs("default", 1, 0.999_999)).toBe(5_500);
  });

  it.each([
    ["linear-1m", secondMs, minuteMs, 20],
    ["linear-10m", minuteMs, 10 * minuteMs, 20],
    ["linear-1h", 10 * minuteMs, 60 * minuteMs, 50],
  ] as const)("of %s grow in even steps", (name, firstMs, lastMs, count) => {
    const { delaysMs } = namedBackoffs[name];
    expect([delaysMs[0], delaysMs.at(-1), delaysMs.length]).toEqual([firstMs, lastMs, count]);
    const steps = delaysMs.slice(1).map((delayMs, index) => delayMs - (delaysMs[index] ?? 0));
    expect(Math.max(...steps) - Math.min(...steps)).toBeLessThanOrEqual(1);
    expect(retryDelayMs(name, 1_000, middle)).toBe(lastMs);
  });

  it("of exponential double up to the maximum", () => {
    const delays = [1, 2, 3, 4].map((tries) => retryDelayMs("exponential", tries, middle));
    expect(delays).toEqual([1_000, 2_000, 4_000, 8_000]);
    const settings = { kind: "exponential", baseMs: 10, factor: 3, maxMs: 50, jitter: 0 } as const;
    expect([1, 2, 3].map((tries) => retryDelayMs(settings, tries, 0))).toEqual([10, 30, 50]);
    expect(retryDelayMs("exponential", 5_000, middle)).toBe(60 * minuteMs);
  });

  it("come from a list as they stand, without jitter", () => {
    expect([1, 2, 3].map((tries) => retryDelayMs([7, 9], tries, 0))).toEqual([7, 9, 9]);
  });

  it("come from a function that knows the tries and the message", () => {
    const backoff: Backoff = ({ tries, message }) => (message === "busy" ? tries * 100 : -1);
    expect(retryDelayMs(backoff, 3, middle, "busy")).toBe(300);
    expect(retryDelayMs(backoff, 3, middle)).toBe(0);
    expect(retryDelayMs(() => Number.NaN, 1, middle)).toBe(5_000);
    expect(retryDelayMs(() => Number.POSITIVE_INFINITY, 1, middle)).toBe(delayMaxMs);
  });
});

describe("a backoff", () => {
  it.each([
    ["default", true],
    ["linear-2m", false],
    [[], false],
    [[5, 30], true],
    [[5, -1], false],
    [[Number.POSITIVE_INFINITY], false],
    [{ kind: "exponential" }, true],
    [{ kind: "exponential", baseMs: 100, maxMs: 10 }, false],
    [{ kind: "exponential", factor: 0.5 }, false],
    [{ kind: "exponential", jitter: 2 }, false],
    [() => 5, true],
  ] as const)("%j is good: %s", (backoff, good) => {
    const problem = backoffProblem(backoff as Backoff);
    if (good) expect(problem).toBeNull();
    else expect(problem).toMatch(/\.$/);
  });
});
