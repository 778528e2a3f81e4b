// Cancelling a job that waits and one that runs, and stopping a process while a job runs.
import { setTimeout as pause } from "node:timers/promises";
import { connect, defineJob, defineService, JobAborted, openEngine } from "millrace";
import { z } from "zod";

const video = defineService("video", {
  transcode: defineJob({ payload: z.object({ file: z.string() }), concurrency: 1 }),
});

// Two services on one store, as two processes would be: the second goes on where the first stops.
const engine = await openEngine("memory:");
const first = await connect(video, { engine, graceMs: 1_000 });

let onStarted = () => {};
const started = () => new Promise<void>((resolve) => (onStarted = resolve));

first.jobs.transcode.handle(async ({ payload, signal }) => {
  onStarted();
  try {
    // A handler that hands its signal on stops when it is asked to.
    await pause(60_000, undefined, { signal });
  } catch (error) {
    if (JobAborted.is(signal.reason))
      console.log(`${payload.file}: stopped, ${signal.reason.reason}`);
    throw error;
  }
});

const isRunning = started();
await first.start();
const running = await first.jobs.transcode.create({ file: "a.mov" }).orThrow();
await isRunning;
const waiting = await first.jobs.transcode.create({ file: "b.mov" }).orThrow();

console.log(`b.mov: ${(await waiting.cancel().orThrow()).outcome}`);
console.log(`a.mov: ${(await running.cancel("wrong file").orThrow()).outcome}`);
await running.wait();
console.log(`a.mov: ${(await running.get().orThrow()).state}`);

const isRunningAgain = started();
const interrupted = await first.jobs.transcode.create({ file: "c.mov" }).orThrow();
await isRunningAgain;
await first.stop();
const job = await interrupted.get().orThrow();
console.log(`c.mov: ${job.state}, ${job.tries} tries spent`);

const second = await connect(video, { engine });
second.jobs.transcode.handle(({ payload }) =>
  console.log(`${payload.file}: done by the next process`),
);
await second.start();
await second.ref(interrupted.id).wait();
await second.stop();
await engine.close();
