// Each field of a contract, changed one way and the other: what is an update and what a migration.
import {
  contractDiff,
  defineJob,
  defineService,
  type JobOptions,
  type Manifest,
  manifest,
  type RetentionOptions,
  versions,
} from "millrace";
import { describe, expect, it } from "vitest";
import { z } from "zod";

const payload = z.object({ tenant: z.string() });

function withOptions(options: JobOptions): Manifest {
  return manifest(defineService("shop", { send: defineJob({ payload, ...options }) }));
}

function kinds(before: Manifest, after: Manifest): readonly string[] {
  return contractDiff(before, after).changes.map(({ path, kind }) => `${kind} ${path}`);
}

const key = ["send", "/tenant"];

describe("a change of", () => {
  it.for<[string, JobOptions, JobOptions, "both" | "there"]>([
    ["retry.maxTries", { retry: { maxTries: 5 } }, { retry: { maxTries: 3 } }, "there"],
    [
      "retry.backoff",
      { retry: { backoff: [1_000, 5_000] } },
      { retry: { backoff: [1_000, 4_000] } },
      "there",
    ],
    [
      "retry.backoff",
      { retry: { backoff: "linear-1h" } },
      { retry: { backoff: "linear-1m" } },
      "there",
    ],
    ["retry.backoff", { retry: { backoff: "default" } }, { retry: { backoff: () => 5 } }, "both"],
    ["timeoutMs", { timeoutMs: 60_000 }, { timeoutMs: 30_000 }, "there"],
    ["leaseMs", { leaseMs: 60_000 }, { leaseMs: 30_000 }, "there"],
    ["maxActive", {}, { maxActive: 5 }, "there"],
    ["maxActive", { maxActive: 6 }, { maxActive: 5 }, "there"],
    ["deadlineMs", {}, { deadlineMs: 60_000 }, "there"],
    ["deadlineMs", { deadlineMs: 60_000 }, { deadlineMs: 50_000 }, "there"],
    ["deadLetter", { deadLetter: true }, { deadLetter: false }, "there"],
    ["queue.maxActive", {}, { queue: { maxActive: 5 } }, "there"],
    ["queue.maxAgeMs", { queue: { maxAgeMs: 9 } }, { queue: { maxAgeMs: 8 } }, "there"],
    ["queue.name", {}, { queue: { name: "post" } }, "both"],
    [
      "retention.completed",
      { retention: { completed: 9 } },
      { retention: { completed: 8 } },
      "there",
    ],
    ["retention.dead", { retention: { dead: Number.POSITIVE_INFINITY } }, {}, "there"],
    ["keyConcurrency.key", {}, { keyConcurrency: { key } }, "both"],
    [
      "keyConcurrency.key",
      { keyConcurrency: { key } },
      { keyConcurrency: { key: ["all"] } },
      "both",
    ],
    ["isolate.memoryMb", { isolate: { memoryMb: 600 } }, { isolate: true }, "there"],
    ["isolate.cpuSeconds", { isolate: true }, { isolate: { cpuSeconds: 9 } }, "there"],
    ["isolate.environment", { isolate: { environment: ["A"] } }, { isolate: true }, "there"],
    [
      "isolate.mayLeaveProcesses",
      { isolate: { mayLeaveProcesses: true } },
      { isolate: true },
      "there",
    ],
    ["isolate.outputBytesMax", { isolate: true }, { isolate: { outputBytesMax: 9 } }, "there"],
    [
      "keyConcurrency.maxActive",
      { keyConcurrency: { key, maxActive: 3 } },
      { keyConcurrency: { key } },
      "there",
    ],
    [
      "keyConcurrency.stalePolicy",
      { keyConcurrency: { key } },
      { keyConcurrency: { key, stalePolicy: "requeue" } },
      "both",
    ],
    [
      "keyConcurrency.heartbeatTtlMs",
      { keyConcurrency: { key, heartbeatTtlMs: 60_000 } },
      { keyConcurrency: { key } },
      "there",
    ],
    [
      "keyConcurrency.heartbeatIntervalMs",
      { keyConcurrency: { key, heartbeatIntervalMs: 5_000 } },
      { keyConcurrency: { key, heartbeatIntervalMs: 9_000 } },
      "there",
    ],
    [
      "queue.maxQueuedPerKey",
      { keyConcurrency: { key }, queue: { maxQueuedPerKey: 2 } },
      { keyConcurrency: { key } },
      "there",
    ],
    [
      "queue.whenFull",
      { keyConcurrency: { key }, queue: { whenFull: "coalesce" } },
      { keyConcurrency: { key } },
      "there",
    ],
    [
      "queue.whenFull",
      { keyConcurrency: { key }, queue: { whenFull: "replace-oldest" } },
      { keyConcurrency: { key } },
      "there",
    ],
    [
      "queue.whenFull",
      { keyConcurrency: { key }, queue: { whenFull: "replace-oldest" } },
      { keyConcurrency: { key }, queue: { whenFull: "coalesce" } },
      "both",
    ],
  ])("%s from %j to %j is a migration, and back it is one in %s", ([path, before, after, ways]) => {
    const [had, has] = [withOptions(before), withOptions(after)];
    expect(kinds(had, has)).toEqual([`migration jobs.send@1.${path}`]);
    expect(kinds(has, had)).toEqual([
      `${ways === "both" ? "migration" : "update"} jobs.send@1.${path}`,
    ]);
  });

  it.for<[string, JobOptions, JobOptions]>([
    ["concurrency", { concurrency: 5 }, { concurrency: 4 }],
    ["priority", { priority: 5 }, { priority: -5 }],
    ["progress", { progress: true }, { progress: false }],
    ["logs", { logs: true }, { logs: false }],
    [
      "retry.backoff",
      { retry: { backoff: { kind: "exponential", jitter: 0 } } },
      { retry: { backoff: { kind: "exponential", jitter: 1 } } },
    ],
  ])("%s is an update both ways", ([path, before, after]) => {
    const [had, has] = [withOptions(before), withOptions(after)];
    expect(kinds(had, has)).toEqual([`update jobs.send@1.${path}`]);
    expect(kinds(has, had)).toEqual([`update jobs.send@1.${path}`]);
  });

  it("a name of the queue that is its own already is none", () => {
    expect(kinds(withOptions({}), withOptions({ queue: { name: "send" } }))).toEqual([]);
  });

  describe("continuations", () => {
    const job = (options: JobOptions, result?: z.ZodType) =>
      manifest(
        defineService("shop", {
          send: defineJob({ payload, ...options, ...(result && { result }) }),
          other: defineJob({ payload }),
        }),
      );
    const [first, second] = [{ continuations: ["other"] }, { continuations: ["other", "send"] }];

    it("is a migration when one is gone", () => {
      expect(kinds(job(first), job(second))).toEqual(["update jobs.send@1.continuations"]);
      expect(kinds(job(second), job(first))).toEqual(["migration jobs.send@1.continuations"]);
      expect(kinds(job(first), job({}))).toEqual(["migration jobs.send@1.continuations"]);
    });

    it("is a migration when it is the first one and jobs can no longer end by themselves", () => {
      expect(kinds(job({}, z.int()), job(first, z.int()))).toEqual([
        "update jobs.send@1.continuations",
      ]);
      const { changes, migration } = contractDiff(job({}), job(first));
      expect(changes).toMatchObject([
        {
          ...{ path: "jobs.send@1.continuations", kind: "migration" },
          sentence:
            'send@1: continuations goes from [] to ["other"]: a job that ends without a continuation fails, because its type names continuations and no result.',
        },
      ]);
      expect(migration).toMatch(/^[0-9a-f]{16}$/);
    });

    it("makes it one that the result is gone", () => {
      expect(kinds(job(first, z.int()), job(first))).toEqual(["migration jobs.send@1.result"]);
      expect(kinds(job({}, z.int()), job(first))).toEqual([
        "migration jobs.send@1.result",
        "migration jobs.send@1.continuations",
      ]);
      expect(kinds(job(first, z.int()), job(second))).toEqual([
        "migration jobs.send@1.result",
        "update jobs.send@1.continuations",
      ]);
      expect(kinds(job(first, z.int()), job({}))).toEqual([
        "update jobs.send@1.result",
        "migration jobs.send@1.continuations",
      ]);
    });

    it("is unlike blockers, a change of which is always one", () => {
      const waiting = job({ blockers: { first: "other" } });
      expect(kinds(job({}), waiting)).toEqual(["migration jobs.send@1.blockers"]);
      expect(kinds(waiting, job({}))).toEqual(["migration jobs.send@1.blockers"]);
    });
  });

  it("a setting that this version does not know is a migration", () => {
    const [job] = withOptions({}).jobs;
    if (job === undefined) throw new Error("There is one.");
    const strange = {
      ...withOptions({}),
      jobs: [{ ...job, settings: { ...job.settings, sign: true } }],
    };
    expect(kinds(withOptions({}), strange)).toEqual(["migration jobs.send@1.sign"]);
  });
});

describe("the service's own retention", () => {
  const keeping = (retention?: RetentionOptions) =>
    manifest(defineService("shop", {}, retention === undefined ? {} : { retention }));
  const dayMs = 24 * 60 * 60 * 1_000;

  it.for<[RetentionOptions | undefined, RetentionOptions | undefined]>([
    [{ completed: 9 }, { completed: 8 }],
    [undefined, { completed: 6 * dayMs }],
    [{ completed: 8 * dayMs }, undefined],
    [{ completed: Number.POSITIVE_INFINITY }, {}],
  ])("from %j to %j is a migration, and back it is an update", ([before, after]) => {
    expect(kinds(keeping(before), keeping(after))).toEqual(["migration retention.completed"]);
    expect(kinds(keeping(after), keeping(before))).toEqual(["update retention.completed"]);
  });

  it("is the same where it says what holds anyway", () => {
    expect(kinds(keeping(), keeping({ completed: 7 * dayMs }))).toEqual([]);
  });

  it("says whose jobs go, and has a name of its own", () => {
    const { changes, migration } = contractDiff(keeping({ dead: 9 }), keeping({ dead: 8 }));
    expect(changes[0]?.sentence).toBe(
      "other types: retention.dead goes from 9 to 8: dead jobs are removed earlier, also those that have ended already.",
    );
    expect(migration).toMatch(/^[0-9a-f]{16}$/);
  });

  it("of a kind that this version does not know is a migration", () => {
    const strange = { ...keeping(), retention: { resting: 5 } };
    expect(kinds(keeping(), strange)).toEqual(["migration retention.resting"]);
  });
});

describe("job types", () => {
  const one = defineJob({ payload });
  const two = defineJob({ payload, version: 2 });
  const single = manifest(defineService("shop", { send: one }));

  it("come as an update and go as a migration, versions likewise", () => {
    const more = manifest(defineService("shop", { send: versions(one, two), mail: one }));
    expect(kinds(single, more)).toEqual(["update jobs.mail@1", "update jobs.send@2"]);
    expect(kinds(more, single)).toEqual(["migration jobs.mail@1", "migration jobs.send@2"]);
  });

  it("that are renamed are gone", () => {
    const renamed = manifest(defineService("shop", { post: one }));
    expect(kinds(single, renamed)).toEqual(["migration jobs.send@1", "update jobs.post@1"]);
  });
});

describe("schemas", () => {
  /** A schema of a library that gives no JSON Schema. */
  const unseen = {
    "~standard": { version: 1, vendor: "x", validate: (value: unknown) => ({ value }) },
  } as const;
  const job = (given: z.ZodType | typeof unseen, result?: z.ZodType | typeof unseen) =>
    manifest(
      defineService("shop", { send: defineJob({ payload: given, ...(result && { result }) }) }),
    );

  it("are an update while all that fitted still fits", () => {
    const wider = z.object({ tenant: z.string(), note: z.string().optional() });
    expect(kinds(job(payload), job(wider))).toEqual(["update jobs.send@1.payload"]);
    expect(kinds(job(payload, z.int()), job(payload, z.number()))).toEqual([
      "update jobs.send@1.result",
    ]);
    expect(kinds(job(payload, z.int()), job(payload))).toEqual(["update jobs.send@1.result"]);
  });

  it("are a migration when something may be refused, and it is said what", () => {
    const narrower = z.object({ tenant: z.string().min(1) });
    const { changes } = contractDiff(job(payload), job(narrower));
    expect(changes).toMatchObject([{ kind: "migration", path: "jobs.send@1.payload" }]);
    expect(changes[0]?.sentence).toBe(
      "send@1: the payload's schema changes: what fitted before may be refused: /tenant must be longer.",
    );
    expect(kinds(job(payload), job(payload, z.int()))).toEqual(["migration jobs.send@1.result"]);
  });

  it("that cannot be seen are a migration when one can, and are named when neither can", () => {
    expect(kinds(job(payload), job(unseen))).toEqual(["migration jobs.send@1.payload"]);
    expect(kinds(job(unseen), job(payload))).toEqual(["migration jobs.send@1.payload"]);
    expect(kinds(job(payload), job(payload, unseen))).toEqual(["migration jobs.send@1.result"]);
    expect(contractDiff(job(unseen, unseen), job(unseen, unseen))).toEqual({
      changes: [],
      migration: null,
      unseen: ["jobs.send@1.payload", "jobs.send@1.result"],
    });
  });
});

describe("the name of a migration", () => {
  const [five, three, two] = [5, 3, 2].map((maxTries) => withOptions({ retry: { maxTries } }));
  if (!five || !three || !two) throw new Error("There are three.");

  it("is none without one", () => {
    expect(contractDiff(three, five).migration).toBeNull();
  });

  it("stands for its changes and no others, whatever updates come with them", () => {
    const { migration } = contractDiff(five, three);
    expect(migration).toMatch(/^[0-9a-f]{16}$/);
    expect(contractDiff(five, two).migration).not.toBe(migration);
    const more = withOptions({ retry: { maxTries: 3 }, priority: 5 });
    expect(contractDiff(five, more).migration).toBe(migration);
  });
});
