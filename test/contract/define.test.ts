// A definition that cannot work is refused where it is written, and one that can gets its defaults.
import { defineJob, defineService, InvalidDefinition, versions } from "millrace";
import { describe, expect, it } from "vitest";
import { z } from "zod";

const payload = z.object({ origin: z.string() });

/** Options that do not compile are part of what is tested. */
function define(options: object): unknown {
  return defineJob({ payload, ...options } as Parameters<typeof defineJob>[0]);
}

function problemOf(act: () => unknown): InvalidDefinition {
  try {
    act();
  } catch (problem) {
    if (problem instanceof InvalidDefinition) return problem;
    throw problem;
  }
  throw new Error("Nothing was refused.");
}

const key = { key: ["zendesk", "/origin"] };

const refused: readonly (readonly [field: string, options: object, message: RegExp])[] = [
  ["payload", { payload: undefined }, /is missing/],
  ["payload", { payload: { type: "object" } }, /plain JSON Schema/],
  ["result", { result: 5 }, /is not a schema/],
  ["version", { version: 0 }, /whole number from 1 to 2147483647/],
  ["version", { version: 2 ** 31 }, /whole number from 1 to 2147483647/],
  ["version", { version: 1.5 }, /whole number/],
  ["timeoutMs", { timeoutMs: -1 }, /whole number from 1/],
  ["leaseMs", { leaseMs: Number.NaN }, /whole number/],
  ["concurrency", { concurrency: 0 }, /from 1 to 1000/],
  ["maxActive", { maxActive: "3" }, /whole number/],
  ["deadlineMs", { deadlineMs: 0 }, /whole number/],
  ["priority", { priority: 1_001 }, /from -1000 to 1000/],
  ["progress", { progress: "yes" }, /true or false/],
  ["deadLetter", { deadLetter: 1 }, /true or false/],
  ["retry.maxTries", { retry: { maxTries: 0 } }, /whole number/],
  ["retry.backoff", { retry: { backoff: "quick" } }, /use one of default/],
  ["retry.backoff", { retry: { backoff: [] } }, /at least one/],
  ["retry.backoff", { retry: { backoff: { baseMs: 5 } } }, /kind: "exponential"/],
  ["retry.backoff", { retry: { backoff: { kind: "exponential", jitter: 2 } } }, /jitter/],
  ["retry.backoff", { retry: { backoff: 5 } }, /a list of delays/],
  ["keyConcurrency.key", { keyConcurrency: {} }, /is missing/],
  ["keyConcurrency.key", { keyConcurrency: { key: "/tenant" } }, /must be a list/],
  ["keyConcurrency.key", { keyConcurrency: { key: [] } }, /at least one segment/],
  ["keyConcurrency.key", { keyConcurrency: { key: ["/a~2"] } }, /JSON Pointer/],
  ["keyConcurrency.key", { keyConcurrency: { key: ["x".repeat(513)] } }, /at most 512/],
  ["keyConcurrency.maxActive", { keyConcurrency: { ...key, maxActive: 0 } }, /whole number/],
  [
    "keyConcurrency.stalePolicy",
    { keyConcurrency: { ...key, stalePolicy: "panic" } },
    /fail-stale/,
  ],
  [
    "keyConcurrency.heartbeatTtlMs",
    { keyConcurrency: { ...key, heartbeatIntervalMs: 5_000, heartbeatTtlMs: 5_000 } },
    /must exceed heartbeatIntervalMs/,
  ],
  [
    "keyConcurrency.heartbeatTtlMs",
    { keyConcurrency: { ...key, heartbeatIntervalMs: 40_000 } },
    /\(30000\) must exceed heartbeatIntervalMs \(40000\)/,
  ],
  ["leaseMs", { leaseMs: 5_000, keyConcurrency: key }, /heartbeatTtlMs is the lease/],
  ["queue.name", { queue: { name: "_mine" } }, /not a valid queue name/],
  ["queue.maxActive", { queue: { maxActive: 0 } }, /whole number/],
  ["queue.whenFull", { keyConcurrency: key, queue: { whenFull: "wait" } }, /replace-oldest/],
  ["queue.whenFull", { queue: { whenFull: "coalesce" } }, /without keyConcurrency/],
  ["queue.maxQueuedPerKey", { queue: { maxQueuedPerKey: 3 } }, /without keyConcurrency/],
  ["retention.completed", { retention: { completed: -1 } }, /0 \(discard at once\)/],
  ["retention.completed", { retention: { completed: 1.5 } }, /whole milliseconds/],
  ["retention.pending", { retention: { pending: 1 } }, /is not an option/],
  ["retires", { retires: 5 }, /is not an option; use one of payload/],
  ["retry.tries", { retry: { tries: 5 } }, /use one of maxTries, backoff/],
  ["isolate", { isolate: false }, /^isolate must be an object\.$/],
  ["isolate.memoryMb", { isolate: { memoryMb: 10 } }, /whole number from 64/],
  ["isolate.cpuSeconds", { isolate: { cpuSeconds: 0.5 } }, /whole number from 1/],
  ["isolate.environment", { isolate: { environment: ["A=B"] } }, /names of environment variables/],
  ["isolate.outputBytesMax", { isolate: { outputBytesMax: -1 } }, /whole number from 0/],
  ["isolate.mayLeaveProcesses", { isolate: { mayLeaveProcesses: 1 } }, /must be true or false/],
  ["isolate.cpu", { isolate: { cpu: 1 } }, /use one of memoryMb, cpuSeconds/],
  ["blockers", { blockers: ["invoice"] }, /must name job types/],
  ["blockers", { blockers: {} }, /must name job types/],
  ["onStart", { onStart: () => {} }, /not an option/],
  ["secret.payload", { secret: { payload: ["card"] } }, /must be a JSON Pointer/],
  ["secret.payload", { secret: { payload: "/card" } }, /must be a list/],
  ["secret.results", { secret: { results: [] } }, /not an option/],
  [
    "secret.payload",
    { secret: { payload: ["/card"] }, keyConcurrency: { key: ["/card/number"] } },
    /which the key of keyConcurrency shows/,
  ],
  ["hooks.onStart", { hooks: { onStart: "send" } }, /must be a function/],
  ["hooks.onEnded", { hooks: { onEnded: () => {} } }, /not an option; use one of onStart/],
  ["continuations", { continuations: "ship" }, /must be a list of job types/],
];

describe("defineJob", () => {
  it.for(refused)("refuses %s", ([field, options, message]) => {
    const problem = problemOf(() => define(options));
    expect(problem.field).toBe(field);
    expect(problem.message).toMatch(message);
    expect(problem._tag).toBe("InvalidDefinition");
  });

  it("fills in what is not said", () => {
    const { settings } = defineJob({ payload });
    expect(settings).toMatchObject({
      version: 1,
      maxTries: 5,
      backoff: "default",
      timeoutMs: 3_600_000,
      leaseMs: 30_000,
      concurrency: 10,
      priority: 0,
      deadLetter: true,
    });
    expect(settings.retention.dead).toBe(90 * 24 * 3_600_000);
  });

  it("takes every option of its own", () => {
    const { settings } = defineJob({
      payload,
      result: z.string(),
      version: 3,
      retry: { maxTries: 2, backoff: { kind: "exponential", baseMs: 10 } },
      timeoutMs: 5_000,
      concurrency: 4,
      maxActive: 8,
      keyConcurrency: { ...key, maxActive: 2, heartbeatIntervalMs: 1_000, heartbeatTtlMs: 4_000 },
      queue: {
        name: "sync",
        maxActive: 9,
        maxQueuedPerKey: 1,
        whenFull: "coalesce",
        maxAgeMs: 60_000,
      },
      deadlineMs: 30_000,
      priority: -5,
      progress: false,
      logs: false,
      deadLetter: false,
      retention: { completed: 0, dead: Number.POSITIVE_INFINITY },
    });
    expect(settings.leaseMs).toBe(4_000);
    expect(settings.queue.name).toBe("sync");
    expect(settings.retention).toMatchObject({ completed: 0, dead: Number.POSITIVE_INFINITY });
  });
});

describe("versions", () => {
  const one = defineJob({ payload });
  const two = defineJob({ payload, version: 2 });

  it("stand side by side, lowest first", () => {
    expect(versions(one, two).definitions).toEqual([one, two]);
  });

  it("are refused when two are equal or out of order", () => {
    expect(problemOf(() => versions(one, one)).message).toMatch(/1 is defined twice/);
    expect(problemOf(() => versions(two, one)).message).toMatch(/list the lowest first/);
  });

  it("are refused when there are none, or one that defineJob did not make", () => {
    const make = versions as (...definitions: readonly unknown[]) => unknown;
    expect(problemOf(() => make()).message).toMatch(/at least one definition/);
    expect(problemOf(() => make(one, null)).field).toBe("versions[1]");
  });
});

describe("defineService", () => {
  const job = defineJob({ payload });

  it("refuses names that are not one safe token", () => {
    expect(problemOf(() => defineService("my shop", {})).field).toBe("name");
    expect(problemOf(() => defineService("shop", { "a b": job })).field).toBe("jobs.a b");
    expect(problemOf(() => defineService("shop", { _a: job })).message).toMatch(
      /not a valid type name/,
    );
  });

  it("refuses what no define function made", () => {
    const entry = { payload } as unknown as typeof job;
    expect(problemOf(() => defineService("shop", { entry })).message).toMatch(
      /must come from defineJob/,
    );
  });

  it("refuses to go without jobs", () => {
    const define = defineService as (...values: readonly unknown[]) => unknown;
    for (const jobs of [undefined, null, "send", [job]])
      expect(problemOf(() => define("shop", jobs)).field).toBe("jobs");
    expect(problemOf(() => define("shop", { send: null })).field).toBe("jobs.send");
  });

  it("shares the limits of a queue and of a type among all who use them", () => {
    const { jobs } = defineService("shop", {
      limited: defineJob({ payload, queue: { name: "api", maxActive: 3 } }),
      other: defineJob({ payload, queue: { name: "api" } }),
      grown: versions(defineJob({ payload }), defineJob({ payload, version: 2, maxActive: 5 })),
    });
    expect(jobs.other.settings.queue.maxActive).toBe(3);
    expect(jobs.grown.definitions.map(({ settings }) => settings.maxActive)).toEqual([5, 5]);
  });

  it("refuses two numbers for one limit", () => {
    const problem = problemOf(() =>
      defineService("shop", {
        one: defineJob({ payload, queue: { name: "api", maxActive: 3 } }),
        two: defineJob({ payload, queue: { name: "api", maxActive: 4 } }),
      }),
    );
    expect(problem.message).toMatch(/queue api is 3 in one definition and 4 in another/);
  });
});
