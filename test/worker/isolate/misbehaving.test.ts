// Handlers that do their worst in a process of their own: each fails with words that say what happened, nothing of it is
// left, and the jobs beside it do not notice.
import type { JobEvent } from "millrace";
import { expect, it } from "vitest";
import {
  act,
  gone,
  logOf,
  pidsOf,
  tryFolders,
  type Workplace,
  wardenOf,
  workplace,
} from "./workplace.js";

/** The service still runs jobs of both kinds, and leaves no folder behind. */
async function isUnharmed(service: Workplace): Promise<void> {
  expect(await service.jobs.plain.run({ act: "plain" }).orThrow()).toBe("plain");
  expect(await act(service, "nothing")).toMatchObject({ state: "completed" });
  await service.stop();
  expect(tryFolders()).toEqual([]);
}

/** The process that a handler has told of. */
function pidIn(events: readonly JobEvent[]): number {
  const [pid] = events.flatMap((event) =>
    event.name === "emitted" ? (event.data as number[]) : [],
  );
  if (pid === undefined) throw new Error("The handler has told of no process.");
  return pid;
}

const who = "The process of the handler";

it.for([
  ["exit", `${who} ended with exit code 3.`],
  ["exitWell", `${who} ended with exit code 0.`],
  ["crash", "The process crashed: thrown by nobody"],
  ["reject", "The process crashed: rejected by nobody"],
  ["signalled", `${who} was ended by SIGTERM.`],
  ["killed", `${who} was killed (SIGKILL), perhaps because the machine has no memory left.`],
  ["flood", `${who} printed more than 1048576 bytes and was killed.`],
  ["nonsense", `${who} said something that its worker does not understand, and was killed.`],
] as const)("%s", async ([name, message]) => {
  const service = await workplace();
  const job = await act(service, name);
  expect(job).toMatchObject({ state: "dead", error: { message, reason: "error" } });
  await isUnharmed(service);
});

it("says where a crash was, in the log", async () => {
  const { events } = await act(await workplace(), "crash");
  expect(logOf(events).join("\n")).toMatch(/Error: thrown by nobody\n.*acting\.mjs/);
});

it.for([["heap"], ["buffers"], ["memoryOfOthers"]] as const)(
  "takes too much memory: %s",
  async ([name]) => {
    const service = await workplace({ isolate: { memoryMb: 100 } });
    const { state, error } = await act(service, name);
    expect(state).toBe("dead");
    expect(error?.message).toMatch(
      /ran out of memory: its heap may hold 100 MB|held \d{3} MB of memory, more than the 100 MB that it may/,
    );
    await isUnharmed(service);
  },
);

it("takes too much time on the processor", async () => {
  const service = await workplace({ isolate: { cpuSeconds: 1 } });
  const { state, error } = await act(service, "cpu");
  expect(state).toBe("dead");
  expect(error?.message).toBe(`${who} used more than 1 s of processor time and was ended.`);
  await isUnharmed(service);
});

it("never returns", async () => {
  const service = await workplace({ job: { timeoutMs: 2_000 }, graceMs: 50 });
  const ref = await service.jobs.act.create({ act: "loop" }).orThrow();
  const [pid = 0] = await pidsOf(service, ref);
  await ref.wait();
  const { state, error } = await ref.get().orThrow();
  expect(state).toBe("dead");
  expect(error).toEqual({ message: "The try took longer than 2000 ms.", reason: "timeout" });
  await gone(pid);
  await isUnharmed(service);
});

it("leaves a process behind and returns", async () => {
  const service = await workplace();
  const job = await act(service, "linger");
  expect(job.error?.message).toBe(
    `${who} left processes behind that it had started, and they were killed; wait for them, or allow it with isolate.mayLeaveProcesses.`,
  );
  await gone(pidIn(job.events));
  await isUnharmed(service);
});

it("leaves a process behind that is about to end, and returns", async () => {
  const service = await workplace();
  const job = await act(service, "hurry");
  expect(job.state).toBe("completed");
  expect(logOf(job.events)).toEqual([]);
});

it("leaves a process behind where it may", async () => {
  const service = await workplace({ isolate: { mayLeaveProcesses: true } });
  const job = await act(service, "linger");
  expect(job.state).toBe("completed");
  expect(logOf(job.events)).toEqual([
    "warn: Processes that it had started were still running and were ended.",
  ]);
  await gone(pidIn(job.events));
  await isUnharmed(service);
});

it("leaves a process behind and exits", async () => {
  const service = await workplace();
  const job = await act(service, "lingerAndExit");
  expect(job.error?.message).toBe(`${who} ended with exit code 1.`);
  await gone(pidIn(job.events));
  await isUnharmed(service);
});

it("leaves a process behind that has left its group", async () => {
  const service = await workplace();
  const job = await act(service, "leave");
  expect(job.state).toBe("completed");
  await gone(pidIn(job.events));
  await isUnharmed(service);
});

it("ends the process that watches over it", async () => {
  const lines: string[] = [];
  const logger = {
    info: () => {},
    warn: () => {},
    error: (_: object, line: string) => lines.push(line),
  };
  const service = await workplace({ isolate: { memoryMb: 100 }, logger });
  const warden = wardenOf(process.pid);
  process.kill(warden, "SIGKILL");
  await gone(warden);
  const { error } = await act(service, "buffers");
  expect(error?.message).toMatch(/^The process of the handler held/);
  expect(lines).toContain("The warden of isolated jobs has ended and is started again.");
  await isUnharmed(service);
});
