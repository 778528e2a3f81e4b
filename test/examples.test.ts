// Every example runs as it is written, in a folder of its own, and says what it should.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it, onTestFinished } from "vitest";
import { freshStoreUrl } from "./support/nats.js";

const examples = fileURLToPath(new URL("../examples/", import.meta.url));
const main = fileURLToPath(new URL("../dist/cli/main.js", import.meta.url));

interface Program {
  readonly child: ChildProcess;
  /** Resolves when the output holds the text. */
  says(text: string): Promise<void>;
  /** Resolves with everything that it wrote when it has ended. */
  readonly ended: Promise<{
    readonly code: number | null;
    readonly out: string;
    readonly err: string;
  }>;
}

/** Runs an example as it is, with more in its environment if that is given. */
function start(name: string, environment: Environment = {}): Promise<Program> {
  return startNode(["--import", import.meta.resolve("tsx"), join(examples, name)], environment);
}

type Environment = { readonly [name: string]: string };

/** Runs the shop as `npm start` does, at a free port. */
function startShop(...options: readonly string[]): Promise<Program> {
  const shop = join(examples, "shop", "service.ts");
  return startNode([main, "dev", shop, "--bind", "127.0.0.1:0", ...options]);
}

async function startNode(
  words: readonly string[],
  environment: Environment = {},
): Promise<Program> {
  const folder = await mkdtemp(join(tmpdir(), "millrace-example-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const child = spawn(process.execPath, [...words], {
    cwd: folder,
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, ...environment },
  });
  onTestFinished(() => {
    child.kill("SIGKILL");
  });
  let out = "";
  let err = "";
  let onOutput = () => {};
  child.stdout.on("data", (data: Buffer) => {
    out += data.toString();
    onOutput();
  });
  child.stderr.on("data", (data: Buffer) => {
    err += data.toString();
  });
  return {
    child,
    says: (text) =>
      new Promise((resolve) => {
        onOutput = () => {
          if (out.includes(text)) resolve();
        };
        onOutput();
      }),
    ended: once(child, "close").then(([code]) => ({ code, out, err })),
  };
}

const outputs: { readonly [name: string]: readonly string[] } = {
  "quickstart.ts": [
    "message-for-o-1",
    "created: nothing → pending",
    "started: pending → active",
    "progress: active → active",
    "completed: active → completed",
  ],
  "approval.ts": [
    "r-1: blocked",
    'r-1: {"approved":true,"processed":"r-1 for Anna"}',
    "r-2: blocked",
    "r-2: completed, by nobody's worker",
    'r-2: {"approved":false}',
    "r-3: blocked",
    'r-3: {"approved":false}',
    "r-3: JobAlreadyCompleted",
  ],
  "keyed.ts": [
    "north: accepted",
    "north: accepted",
    "north: coalesced",
    "south: accepted",
    "north: JobNotEnqueued",
    "stock/north: 1 active, 1 queued",
    "stock/south: 1 active, 0 queued",
    "at most 1 at a time for a shop",
  ],
  "delayed-and-deadline.ts": [
    "scheduled",
    "the same job: true, existing: true",
    "sent to an important customer",
    "sent to a customer",
    "sent to a customer, once",
    "sent to a patient customer",
    "expired",
  ],
  "failing.ts": [
    "flaky: completed after 3 tries (created started retry started retry started completed)",
    "stolen: failed after 1 tries (created started failed)",
    "busy: completed after 1 tries (created started released started completed)",
    "paid: skipped after 1 tries (created started skipped)",
    "broken: dead after 3 tries (created started retry started retry started dead)",
    "replayed: completed in run 2",
  ],
  "cancelling.ts": [
    "b.mov: cancelled",
    "a.mov: requested",
    "a.mov: stopped, cancelled",
    "a.mov: cancelled",
    "c.mov: stopped, shutdown",
    "c.mov: pending, 0 tries spent",
    "c.mov: done by the next process",
  ],
  "isolated.ts": [
    "one two three: completed, 3 words",
    "exit: dead, The process of the handler ended with exit code 3.",
    "loop: dead, The try took longer than 5000 ms.",
    "sorted: apple, pear",
  ],
  "schedules.ts": [
    "poll 1 of orders",
    "poll 2 of orders",
    "poll 3 of orders",
    "nightly: made by the contract, enabled",
    "poll: made by the caller, paused",
    "nightly fires at 02:30",
    "the sales report",
    "everyMs is 1; it must be a whole number from 100 to 31536000000.",
  ],
  "several-processes.ts": ["resize: 40 completed"],
  "testing.ts": ["the shop works"],
  "outbox.ts": ["o-1: sold out", "the receipt of o-2", "orders: o-2", "jobs: 1"],
  "webhooks.ts": [
    "request 1: millrace.job.completed, completed",
    "request 2: millrace.job.completed, completed",
    "InvalidOption",
  ],
  "transactions.ts": [
    "o-2: sold out",
    "try 1: sending the receipt of o-1",
    "try 2: sending the receipt of o-1",
    "receipts: o-1",
    "jobs: 1",
  ],
};

it("the readme shows what the quickstart prints", async () => {
  const readme = await readFile(new URL("../README.md", import.meta.url), "utf8");
  expect(readme).toContain(`\`\`\`text\n${outputs["quickstart.ts"]?.join("\n")}\n\`\`\``);
});

it("every example has its output here", async () => {
  const names = (await readdir(examples)).filter((name) => name.endsWith(".ts"));
  expect(names.sort()).toEqual(Object.keys(outputs).sort());
});

describe("the example", () => {
  it.for(Object.entries(outputs))("%s runs", async ([name, lines]) => {
    const program = await start(name);
    expect(await program.ended).toEqual({ code: 0, out: `${lines.join("\n")}\n`, err: "" });
  });
});

it("the example outbox.ts gives its jobs to JetStream, if it is told where that is", async () => {
  const program = await start("outbox.ts", { MILLRACE_URL: await freshStoreUrl() });
  const out = `${outputs["outbox.ts"]?.join("\n")}\n`;
  expect(await program.ended).toEqual({ code: 0, out, err: "" });
});

describe("the shop", () => {
  it("runs jobs of every kind and tells how they went", async () => {
    const sample = ["--until-done", "--sample", "seconds=2", "--sample", "jobs=100"];
    const program = await startShop(...sample);
    const { code, out, err } = await program.ended;
    expect([code, err]).toEqual([0, ""]);
    expect(out).toMatch(/HTTP API +http:\/\/127\.0\.0\.1:\d+\/v1\/info/);
    const summary = out.slice(out.indexOf("Summary"));
    for (const state of ["completed", "cancelled", "expired", "dead"]) {
      expect(summary).toMatch(new RegExp(`^ {2}${state} +\\d+`, "m"));
    }
    expect(summary).not.toMatch(/^ {2}(?:pending|active|retry) /m);
    expect(summary).toMatch(/jobs created, \d+ ended in [\d.]+ s: \d+ jobs\/s/);
    expect(summary).toMatch(
      /The history of chargeCard \w+: completed after 3 tries\n +\+0 ms {2}created/,
    );
    expect(summary).toContain("What to try next");
  });

  it("drains on Ctrl-C, says so, and goes on with a kept file", async () => {
    const folder = await mkdtemp(join(tmpdir(), "millrace-example-"));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    const url = `file:${join(folder, "shop.db")}`;
    // Customers who come for a second only ask for no quote, whose deadline could come between the runs.
    const customers = ["--sample", "seconds=1", "--sample", "jobs=600"];
    const program = await startShop("--url", url, ...customers);
    await program.says("chargeCard");
    program.child.kill("SIGINT");
    const { code, out, err } = await program.ended;
    expect([code, err]).toEqual([0, ""]);
    expect(out).toContain("Stopping: running jobs get 3 s to finish or go back to the queue.");
    const waiting = /Stopped: nothing runs any more, and (\d+) jobs wait\./.exec(out)?.[1];
    expect(Number(waiting)).toBeGreaterThan(0);

    const sample = ["--until-done", "--sample", "seconds=1", "--sample", "jobs=1"];
    const next = await startShop("--url", url, ...sample);
    const second = await next.ended;
    expect(second.out).toContain(`${waiting} jobs of an earlier run go on.`);
    expect(second.out).not.toMatch(/^ {2}(?:pending|active|retry) /m);
  });

  it.for([
    { options: ["--sample", "seconds=soon"], code: 1, says: "seconds=soon is not a whole number" },
    {
      options: ["--url", `file:${join(examples, "quickstart.ts")}`],
      code: 1,
      says: "is not a SQLite database",
    },
  ])("says what is wrong with $options", async ({ options, code, says }) => {
    const outcome = await (await startShop(...options)).ended;
    expect(outcome.code).toBe(code);
    expect(outcome.err).toContain(says);
    expect(outcome.err).not.toMatch(/^ +at /m);
  });
});
