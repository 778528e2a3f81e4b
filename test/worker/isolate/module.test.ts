// A handler in a process of its own: what it gets, what it may say, and what the process is like.
import { existsSync } from "node:fs";
import Database from "better-sqlite3";
import {
  betterSqliteTransactions,
  connect,
  defineJob,
  defineService,
  HandlerNotLoaded,
  openEngine,
} from "millrace";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { sqliteStore } from "../../transactions/shop-file.js";
import { act, childrenOf, gone, logOf, pidsOf, runs, tryFolders, workplace } from "./workplace.js";

const acting = new URL("./fixtures/acting.mjs", import.meta.url);

describe("the job in its process", () => {
  it("is the job of the worker", async () => {
    const service = await workplace();
    const ref = await service.jobs.act
      .create({ act: "echo", more: ["ä", { deep: null }] }, { tags: ["red"] })
      .orThrow();
    expect(await ref.wait().orThrow()).toEqual({
      payload: { act: "echo", more: ["ä", { deep: null }] },
      id: ref.id,
      type: "act",
      queue: "act",
      createdAt: (await ref.get().orThrow()).createdAt,
      requestId: ref.id,
      tags: ["red"],
      tries: 1,
      isRedelivery: false,
    });
  });

  it("speaks through the worker, and what is printed is in its log", async () => {
    const service = await workplace();
    const { events, progress, result } = await act(service, "speak");
    expect(progress).toEqual({ step: "half", current: 1, total: 2 });
    expect(events.map(({ name }) => name)).toEqual(
      expect.arrayContaining(["progress", "logged", "emitted", "heartbeat", "completed"]),
    );
    expect(logOf(events).sort()).toEqual([
      "info: printed",
      "info: without an end",
      "warn: complained",
      "warn: said through the job",
    ]);
    expect(result).toEqual([
      'log knows the levels info, warn, error, not "loud".',
      "log takes at most 1048576 characters.",
      expect.stringContaining("BigInt"),
    ]);
  });

  it("logs everything that it says, however much that is at once", async () => {
    const service = await workplace();
    const { events } = await act(service, "chatter");
    expect(logOf(events)).toEqual(Array.from({ length: 5_000 }, (_, line) => `info: line ${line}`));
  });

  it("logs the beginning of what is printed, and says that there was more", async () => {
    const service = await workplace();
    const { events, state } = await act(service, "print");
    const lines = logOf(events);
    expect(state).toBe("completed");
    expect(lines[0]).toMatch(/^info: 0: x+$/);
    expect(lines.at(-1)).toBe("warn: What it printed beyond 65536 characters is left out.");
    expect(lines.join("").length).toBeLessThan(70_000);
  });
});

describe("the outcome of a handler in its process", () => {
  it.for([
    [
      "throw",
      "dead",
      { message: "out of range", name: "RangeError", code: "E_RANGE", reason: "error" },
    ],
    ["throwText", "dead", { message: "only text", reason: "error" }],
    ["terminate", "failed", { message: "never again", reason: "terminated" }],
    ["terminateThrown", "failed", { message: "never again", reason: "terminated" }],
    ["map", "failed", { message: expect.stringContaining("/inner is a Map"), reason: "result" }],
    ["large", "failed", { message: expect.stringContaining("at most 262144"), reason: "result" }],
    [
      "enormous",
      "failed",
      { message: expect.stringContaining("at most 262144"), reason: "result" },
    ],
  ] as const)("%s", async ([name, state, error]) => {
    const service = await workplace();
    expect(await act(service, name)).toMatchObject({ state, error });
  });

  it("may be to skip the job, or to run it later", async () => {
    const service = await workplace();
    expect(await act(service, "skip")).toMatchObject({ state: "skipped", reason: "nothing to do" });
    expect(await act(service, "snooze")).toMatchObject({ result: "awake", tries: 1, token: 2 });
  });
});

describe("the process", () => {
  it("is another one for every try", async () => {
    const service = await workplace({ job: { concurrency: 3 }, warm: 3 });
    const jobs = await Promise.all(Array.from({ length: 9 }, () => act(service, "pid")));
    const pids = new Set(jobs.map(({ result }) => result));
    expect(pids.size).toBe(9);
    expect(pids).not.toContain(process.pid);
    for (const pid of pids) expect(runs(Number(pid))).toBe(false);
  });

  it("sees nothing of the worker's environment but what its type allows", async () => {
    vi.stubEnv("MILLRACE_TEST_SECRET", "secret");
    vi.stubEnv("MILLRACE_TEST_OPEN", "open");
    onTestFinished(() => void vi.unstubAllEnvs());
    const service = await workplace({ isolate: { environment: ["MILLRACE_TEST_OPEN"] } });
    const { result } = await act(service, "environment");
    const names = Object.keys(result as object);
    expect(result).toMatchObject({ MILLRACE_TEST_OPEN: "open", PATH: process.env.PATH });
    const common = ["PATH", "LANG", "LC_ALL", "TZ"];
    const own = ["HOME", "TMPDIR", "PWD", "MILLRACE_TRY_FOLDER"];
    expect([...common, ...own, "MILLRACE_TEST_OPEN"]).toEqual(expect.arrayContaining(names));
  });

  it("has a folder of its own, which is gone afterwards", async () => {
    const service = await workplace();
    const { result } = await act(service, "folder");
    const { folder, files, home } = result as { folder: string; files: string[]; home: string };
    expect(files).toEqual(["scratch.txt"]);
    expect(home).toBe(folder);
    expect(existsSync(folder)).toBe(false);
  });

  it("and all that waits for jobs are gone once the service has stopped", async () => {
    const before = childrenOf(process.pid);
    const service = await workplace({ warm: 4 });
    await act(service, "nothing");
    const started = childrenOf(process.pid).filter((pid) => !before.includes(pid));
    expect(started.length).toBeGreaterThan(0);
    await service.stop();
    expect(started.filter(runs)).toEqual([]);
    expect(tryFolders()).toEqual([]);
  });
});

describe("a handler that is asked to stop", () => {
  it("hears why", async () => {
    const service = await workplace();
    const ref = await service.jobs.act.create({ act: "obey" }).orThrow();
    await pidsOf(service, ref);
    await ref.cancel("not needed").orThrow();
    await ref.wait();
    expect((await ref.get().orThrow()).state).toBe("cancelled");
    expect(logOf(await ref.events().orThrow())).toEqual(["info: stopping: cancelled"]);
  });

  it("gives its job back without a try when the service stops", async () => {
    const { url } = await sqliteStore();
    const service = await workplace({ url });
    const ref = await service.jobs.act.create({ act: "obey" }).orThrow();
    await pidsOf(service, ref);
    await service.stop();
    const later = await connect(defineService("workplace", {}), { url });
    onTestFinished(() => later.stop());
    expect(await later.ref(ref.id).get().orThrow()).toMatchObject({ state: "pending", tries: 0 });
  });

  it("is killed after the grace time with all that it has started", async () => {
    const service = await workplace({ graceMs: 50 });
    const ref = await service.jobs.act.create({ act: "ignore" }).orThrow();
    const pids = await pidsOf(service, ref);
    expect(pids.map(runs)).toEqual([true, true]);
    await ref.cancel().orThrow();
    await ref.wait();
    expect((await ref.get().orThrow()).state).toBe("cancelled");
    await Promise.all(pids.map(gone));
  });
});

it("prepares and completes in the worker, in a transaction with its own tables", async () => {
  const { url, path } = await sqliteStore();
  const engine = await openEngine(url);
  onTestFinished(() => engine.close());
  await engine.provision();
  const db = new Database(path);
  onTestFinished(() => void db.close());
  db.exec("CREATE TABLE done (job TEXT, value TEXT)");
  const contract = defineService("shop", {
    act: defineJob({
      payload: z.looseObject({ act: z.string() }),
      result: z.object({ rows: z.number() }),
      continuations: ["after"],
      isolate: true,
    }),
    after: defineJob({ payload: z.object({ of: z.string() }) }),
  });
  const service = await connect(contract, { engine, transactions: betterSqliteTransactions(db) });
  onTestFinished(() => service.stop());
  service.jobs.act.handle({
    module: acting,
    prepare: ({ tx, job }) => {
      tx.prepare("INSERT INTO done VALUES (?, 'prepared')").run(job.id);
      return { rows: 1 };
    },
    complete: ({ tx, job, value, continueWith }) => {
      tx.prepare("INSERT INTO done VALUES (?, ?)").run(job.id, JSON.stringify(value));
      return job.payload.ends === true ? { rows: 2 } : continueWith("after", { of: job.id });
    },
  });
  service.jobs.after.handle(() => {});
  await service.start();
  const ending = await service.jobs.act.create({ act: "echo", ends: true }).orThrow();
  expect(await ending.wait().orThrow()).toEqual({ rows: 2 });
  const rows = db.prepare("SELECT value FROM done WHERE job = ?").pluck().all(ending.id);
  expect(rows[0]).toBe("prepared");
  expect(JSON.parse(String(rows[1]))).toMatchObject({ id: ending.id, prepared: { rows: 1 } });
  const going = await service.jobs.act.create({ act: "nothing" }).orThrow();
  await going.wait().orThrow();
  expect((await going.get().orThrow()).continuedBy).toEqual(expect.any(String));
});

describe("a handler that cannot run", () => {
  async function service() {
    const { url } = await sqliteStore();
    const payload = z.looseObject({});
    const contract = defineService("shop", {
      isolated: defineJob({ payload, isolate: true }),
      plain: defineJob({ payload }),
      going: defineJob({ payload, isolate: true, continuations: ["plain"] }),
      ending: defineJob({ payload, result: payload, isolate: true, continuations: ["plain"] }),
    });
    const service = await connect(contract, { url });
    onTestFinished(() => service.stop());
    return service;
  }

  it("is refused when it is registered", async () => {
    const { isolated, plain } = (await service()).jobs;
    expect(() => isolated.handle(() => {})).toThrow(
      'isolated is isolated, so that no function of this process can handle it; give a module, handle({ module: new URL("./isolated.js", import.meta.url) }), or a program',
    );
    expect(() => plain.handle({ module: acting })).toThrow("say so in the definition of plain");
    expect(() => isolated.handle({ module: "acting.mjs" as never })).toThrow(
      "which must be a file",
    );
    expect(() => isolated.handle({ exec: [] })).toThrow("which must be a program");
    expect(() => isolated.handle({ module: acting, exec: ["true"] })).toThrow(
      "either module or exec",
    );
    expect(() => isolated.handle({ module: acting, output: "text" } as never)).toThrow(
      "has output",
    );
    expect(() => isolated.handle({} as never)).toThrow("either module or exec");
    expect(() => isolated.handle(7 as never)).toThrow("must be a function, or { module }");
  });

  it("is refused where its jobs always continue and it has no complete to say how", async () => {
    const { going, ending } = (await service()).jobs;
    for (const handler of [{ module: acting }, { exec: ["true"] }])
      expect(() => going.handle(handler as never)).toThrow(
        'going needs a handler with complete: its definition names continuations and no result, so that it always continues; continue with "plain", as in complete: ({ continueWith }) => continueWith("plain", …).',
      );
    going.handle({ module: acting, complete: ({ continueWith }) => continueWith("plain", {}) });
    ending.handle({ module: acting });
  });

  it.for([
    ["missing.mjs", /Cannot find module/],
    ["without-handler.mjs", /It has no function as its default export/],
    ["crashing.mjs", /broken from the start/],
  ] as const)("keeps the service from starting: %s", async ([name, problem]) => {
    const starting = await service();
    const module = new URL(`./fixtures/${name}`, import.meta.url);
    starting.jobs.isolated.handle({ module });
    const error = await starting.start().catch((error: unknown) => error);
    expect(error).toBeInstanceOf(HandlerNotLoaded);
    expect((error as Error).message).toMatch(problem);
  });
});
