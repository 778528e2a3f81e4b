// The small rules of the core: admission, order, aggregates, chains and blockers.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { admit, type KeyFacts, mayTakeSlot } from "#millrace/core/admission.js";
import { aggregate, aggregateState } from "#millrace/core/aggregate.js";
import { blockerVerdict, chainOf, continuationId, derivedId } from "#millrace/core/chains.js";
import { contextFrom, freshContext } from "#millrace/core/context.js";
import { isEnded, type JobState, jobStates } from "#millrace/core/job.js";
import { compareOrder, laneOf } from "#millrace/core/order.js";
import { policies } from "./lives.js";

const policy = {
  key: "k",
  hash: "h",
  maxActive: 2,
  maxQueued: 1,
  whenFull: "reject",
  stalePolicy: "fail-stale",
} as const;

describe("admission", () => {
  it("lets a job in while the key has a place", () => {
    expect(admit(policy, { occupied: 2, active: 2 })).toEqual({ outcome: "accepted" });
  });

  it.each([
    ["reject", { oldestQueued: "q", running: "r" }, "rejected"],
    ["coalesce", { oldestQueued: "q", running: "r" }, "coalesced"],
    ["coalesce", { running: "r" }, "coalesced"],
    ["coalesce", {}, "rejected"],
    ["replace-oldest", { oldestQueued: "q", running: "r" }, "replaced"],
    ["replace-oldest", { running: "r" }, "rejected"],
  ] as const)("when full, %s with %o is %s", (whenFull, facts, outcome) => {
    const full = { occupied: 3, active: 2, ...facts };
    expect(admit({ ...policy, whenFull }, full).outcome).toBe(outcome);
  });

  it("names the queued job before the running one, and the counts that refuse", () => {
    expect(admit(policy, { occupied: 4, active: 2, oldestQueued: "q", running: "r" })).toEqual({
      outcome: "rejected",
      reason: "queue_full",
      existingJobId: "q",
      active: 2,
      queued: 2,
      limit: 3,
    });
    const alone = { ...policy, maxQueued: 0 };
    expect(admit(alone, { occupied: 2, active: 2 })).toMatchObject({ reason: "active_limit" });
  });

  it("never replaces or answers with a job that nobody named, and accepts only below the limit", () => {
    const facts: fc.Arbitrary<KeyFacts> = fc.record(
      {
        occupied: fc.integer({ min: 0, max: 8 }),
        active: fc.integer({ min: 0, max: 3 }),
        oldestQueued: fc.constant("queued"),
        running: fc.constant("running"),
      },
      { requiredKeys: ["occupied", "active"] },
    );
    fc.assert(
      fc.property(policies, facts, (limits, known) => {
        const admission = admit(limits, known);
        const room = known.occupied < limits.maxActive + limits.maxQueued;
        expect(admission.outcome === "accepted").toBe(room);
        if (admission.outcome === "replaced") {
          expect(admission.replacedJobId).toBe(known.oldestQueued);
        }
        if (admission.outcome === "coalesced") {
          expect([known.oldestQueued, known.running]).toContain(admission.existingJobId);
        }
      }),
    );
  });

  it("gives a slot only below the limit", () => {
    expect([mayTakeSlot(1, 0), mayTakeSlot(1, 1), mayTakeSlot(2, 1)]).toEqual([true, false, true]);
  });
});

describe("the order of claims", () => {
  const jobs = fc.record({
    priority: fc.integer({ min: -2, max: 2 }),
    runAt: fc.integer({ min: 0, max: 3 }),
    id: fc.constantFrom("a", "b", "B", "a-1", "10", "9"),
  });

  it("is total and follows priority, run time and id", () => {
    fc.assert(
      fc.property(jobs, jobs, jobs, (a, b, c) => {
        expect(Math.sign(compareOrder(a, b))).toBe(-Math.sign(compareOrder(b, a)) + 0);
        if (compareOrder(a, b) <= 0 && compareOrder(b, c) <= 0) {
          expect(compareOrder(a, c)).toBeLessThanOrEqual(0);
        }
        if (a.priority > b.priority) expect(compareOrder(a, b)).toBeLessThan(0);
        else if (a.priority === b.priority && a.runAt < b.runAt) {
          expect(compareOrder(a, b)).toBeLessThan(0);
        }
        expect(compareOrder(a, a)).toBe(0);
      }),
    );
  });

  it("lines jobs up by service, queue, type and version", () => {
    const job = { service: "shop", queue: "slow", type: "mail:new", typeVersion: 2 };
    expect(laneOf(job)).toBe("shop/slow/mail:new@2");
  });
});

describe("aggregates", () => {
  it.each([
    [[], "completed"],
    [["completed", "completed"], "completed"],
    [["completed", "skipped"], "completed"],
    [["skipped", "skipped"], "skipped"],
    [["failed", "dead"], "failed"],
    [["failed", "skipped"], "failed"],
    [["completed", "expired"], "partial_failure"],
    [["completed", "active"], null],
    [["pending"], null],
  ] as const)("%j is %s", (children, expected) => {
    expect(aggregate(children)).toBe(expected);
  });

  it("is decided exactly when every child has ended, and ends its parent", () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...jobStates)), (children) => {
        const outcome = aggregate(children);
        expect(outcome !== null).toBe(children.every(isEnded));
        if (outcome !== null) expect(isEnded(aggregateState(outcome))).toBe(true);
      }),
    );
  });
});

describe("blockers and chains", () => {
  const states: Record<string, JobState> = { done: "completed", bad: "failed", open: "active" };
  const verdict = (...blockers: readonly [string, "unreachable" | "continue"][]) =>
    blockerVerdict(
      blockers.map(([jobId, onBadEnd]) => ({ jobId, onBadEnd })),
      ({ jobId }) => states[jobId],
    );

  it("waits for open ones, goes on after good ends, and stops at a bad end that matters", () => {
    expect(verdict()).toEqual({ verdict: "unblock" });
    expect(verdict(["done", "unreachable"])).toEqual({ verdict: "unblock" });
    expect(verdict(["open", "unreachable"])).toEqual({ verdict: "wait" });
    expect(verdict(["done", "unreachable"], ["open", "continue"])).toEqual({ verdict: "wait" });
    expect(verdict(["bad", "continue"])).toEqual({ verdict: "unblock" });
    const bad = { verdict: "unreachable", blockerId: "bad" };
    expect(verdict(["open", "continue"], ["bad", "unreachable"])).toEqual(bad);
    expect(verdict(["missing", "unreachable"])).toMatchObject({ verdict: "unreachable" });
  });

  it("derives the same id from the same cause, and another from another run", () => {
    const job = { id: "job-1", run: 1, createdAt: 5 };
    expect(continuationId(job)).toBe(continuationId({ ...job }));
    expect(continuationId({ ...job, run: 2 })).not.toBe(continuationId(job));
    expect(continuationId({ ...job, createdAt: 6 })).not.toBe(continuationId(job));
    expect(derivedId("a", "b")).toMatch(/^[0-9a-f]{26}$/);
    expect([chainOf({ id: "a" }), chainOf({ id: "a", chainId: "c" })]).toEqual(["a", "c"]);
  });
});

describe("trace context", () => {
  const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
  const traceparent = `00-${traceId}-00f067aa0ba902b7-01`;

  it("comes from a traceparent, or is made fresh", () => {
    expect(contextFrom("r", traceparent)).toEqual({ requestId: "r", traceId, traceparent });
    expect(contextFrom("r", traceparent, "a=b")).toMatchObject({ tracestate: "a=b" });
    const fresh = freshContext("r", "0123456789abcdef".repeat(3));
    expect(contextFrom("r", fresh.traceparent)).toEqual(fresh);
  });

  it.each([
    "",
    "nonsense",
    `01-${traceId}-00f067aa0ba902b7-01`,
    `00-${"0".repeat(32)}-00f067aa0ba902b7-01`,
    `00-${traceId}-${"0".repeat(16)}-01`,
    `00-${traceId.toUpperCase()}-00f067aa0ba902b7-01`,
  ])("refuses %j", (text) => {
    expect(contextFrom("r", text)).toBeNull();
  });
});
