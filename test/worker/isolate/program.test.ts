// Programs as handlers: what goes in, what comes out, and what their exit codes mean.
import { connect, defineJob, defineService, type IsolateOptions } from "millrace";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { sqliteStore } from "../../transactions/shop-file.js";
import { gone, logOf, tryFolders } from "./workplace.js";

const payload = z.object({ words: z.array(z.string()) });
const words = { words: ["ä", "'; rm -rf", "$HOME"] };

type Program = Parameters<Awaited<ReturnType<typeof open>>["jobs"]["run"]["handle"]>[0];

async function open(isolate: true | IsolateOptions = true, job: { timeoutMs?: number } = {}) {
  const { url } = await sqliteStore();
  const contract = defineService("programs", {
    run: defineJob({ payload, retry: { maxTries: 1 }, isolate, ...job }),
  });
  const service = await connect(contract, { url, graceMs: 50 });
  onTestFinished(() => service.stop());
  return service;
}

/** Runs one job with a program, and gives the job as it ended. */
async function run(program: Program, ...wish: Parameters<typeof open>) {
  const service = await open(...wish);
  service.jobs.run.handle(program);
  await service.start();
  const ref = await service.jobs.run.create(words).orThrow();
  await ref.wait();
  const job = { ...(await ref.get().orThrow()), events: await ref.events().orThrow() };
  await service.stop();
  expect(tryFolders()).toEqual([]);
  return job;
}

function shell(script: string, ...rest: readonly string[]): { readonly exec: readonly string[] } {
  return { exec: ["sh", "-c", script, "sh", ...rest] };
}

describe("a program", () => {
  it("gets the payload on its stdin, and prints the result", async () => {
    expect(await run({ exec: ["cat"] })).toMatchObject({ state: "completed", result: words });
  });

  it("gets the payload as a file where an argument names it", async () => {
    const job = await run(shell('cat "$1"; cat >&2', "{payload}"));
    expect(job).toMatchObject({ state: "completed", result: words });
    expect(logOf(job.events)).toEqual([]);
  });

  it("has the arguments that a function makes of the payload", async () => {
    const job = await run({
      exec: async ({ words }) => ["printf", "%s\\n", ...words],
      output: "text",
    });
    expect(job.result).toBe(words.words.join("\n"));
  });

  it("need not read, and need not print", async () => {
    const job = await run({ exec: ["true"] });
    expect(job.state).toBe("completed");
    expect(job).not.toHaveProperty("result");
  });

  it("has what it says on stderr in its log", async () => {
    const job = await run(shell("echo working >&2; echo 1"));
    expect(job.result).toBe(1);
    expect(logOf(job.events)).toEqual(["warn: working"]);
  });

  it("sees nothing of the worker's environment, and has a folder of its own", async () => {
    vi.stubEnv("MILLRACE_TEST_SECRET", "secret");
    onTestFinished(() => void vi.unstubAllEnvs());
    const job = await run({ ...shell("env; pwd"), output: "text" });
    expect(job.result).not.toContain("secret");
    expect(job.result).toMatch(/millrace-try-\w+$/);
  });

  it("may be completed in the worker", async () => {
    const job = await run({
      ...shell("cat"),
      prepare: () => "unused",
      complete: ({ value, job }) => ({ value, tries: job.tries }),
    });
    expect(job.result).toEqual({ value: words, tries: 1 });
  });
});

describe("a program that fails", () => {
  it.for([
    [
      "an exit code",
      shell("echo no space left >&2; exit 1"),
      "dead",
      /^sh ended with exit code 1: no space left$/,
    ],
    [
      "a declared exit code",
      { ...shell("echo bad file >&2; exit 2"), terminateCodes: [2] },
      "failed",
      /^sh ended with exit code 2: bad file$/,
    ],
    ["a signal", shell("kill -TERM $$"), "dead", /^sh was ended by SIGTERM\.$/],
    [
      "no such program",
      { exec: ["/no/such/program"] },
      "dead",
      /^program ended with exit code 127: .*not found/,
    ],
    ["nothing to run", { exec: () => [] }, "dead", /^The exec of run gave no program to run; /],
    [
      "an argument that is no text",
      { exec: () => ["sleep", 1 as never] },
      "dead",
      /^The exec of run gave no program to run; /,
    ],
    ["a result that is not JSON", shell("echo hello"), "failed", /^What sh printed is not JSON: /],
    [
      "a result that is too large",
      { exec: ["yes"] },
      "failed",
      /^yes gave a result of more than 262144 bytes and was killed\.$/,
    ],
    [
      "a flood on stderr",
      shell("yes >&2"),
      "dead",
      /^sh printed more than 1048576 bytes and was killed\.$/,
    ],
  ] as const)("with %s", async ([, program, state, message]) => {
    const job = await run(program);
    expect(job.state).toBe(state);
    expect(job.error?.message).toMatch(message);
  });

  it("uses too much of the processor", async () => {
    const job = await run(shell("while :; do :; done"), { cpuSeconds: 1 });
    expect(job.error?.message).toBe("sh used more than 1 s of processor time and was ended.");
  });

  it("holds too much memory", async () => {
    const script = "data=x; while :; do data=$data$data; done";
    const job = await run(shell(script), { memoryMb: 100 });
    expect(job.error?.message).toMatch(
      /^sh held \d+ MB of memory, more than the 100 MB that it may/,
    );
  });

  it("ignores what it is told, and is killed with what it has started", async () => {
    const script = 'trap "" TERM; sleep 1000 & echo $! >&2; wait; sleep 1000';
    const job = await run(shell(script), true, { timeoutMs: 1_500 });
    expect(job.error).toEqual({ message: "The try took longer than 1500 ms.", reason: "timeout" });
    await gone(Number(logOf(job.events)[0]?.replace("warn: ", "")));
  });

  it("leaves a process behind", async () => {
    const job = await run(shell("sleep 1000 & echo $! >&2; echo 7"));
    expect(job.error?.message).toMatch(/^sh left processes behind that it had started/);
    const [pid] = logOf(job.events);
    await gone(Number(pid?.replace("warn: ", "")));
  });
});
