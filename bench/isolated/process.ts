// A worker of isolated jobs, in a process without a loader of TypeScript, which every try would have to load as well.
// Prints what it has measured as one line of JSON.
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { connect, defineJob, defineService } from "millrace";
import { z } from "zod";

/** What the process has measured. */
export interface IsolatedReadings {
  /** Jobs per second of a burst that finds a process ready for each of its jobs. */
  readonly burst: number;
  /** Jobs per second of a backlog, whose processes have to be started first. */
  readonly backlog: number;
  /** Milliseconds from the create of a job to its end, one after the other: in a process of its own, and in this one. */
  readonly isolatedMs: number;
  readonly plainMs: number;
}

const [, , url, burstJobs, backlogJobs] = process.argv;
const warm = Number(burstJobs);
/** How many jobs go one after the other. */
const singleJobs = 20;
const lookMs = 100;
const looksMax = 600;
/** How long the last processes may take to load after they are there. */
const settleMs = 1_000;

const payload = z.object({});
const contract = defineService("isolated", {
  isolated: defineJob({ payload, concurrency: warm, isolate: true }),
  plain: defineJob({ payload }),
});
const service = await connect(contract, { url: url ?? "memory:" });
service.jobs.isolated.handle({ module: new URL("./nothing.js", import.meta.url), warm });
service.jobs.plain.handle(() => {});
await service.start();
await allWarm();
const burst = await rateOf(warm);
await allWarm();
const isolatedMs = await timeOf("isolated");
const plainMs = await timeOf("plain");
const backlog = await rateOf(Number(backlogJobs));
await service.stop();
const readings: IsolatedReadings = { burst, backlog, isolatedMs, plainMs };
console.log(JSON.stringify(readings));

/** Waits until a process is ready for each job of a burst. The warden is a process, too. */
async function allWarm(): Promise<void> {
  for (let looks = 0; looks < looksMax && children() <= warm; looks++) await sleep(lookMs);
  await sleep(settleMs);
}

function children(): number {
  const list = readFileSync(`/proc/self/task/${process.pid}/children`, "utf8");
  return list.split(" ").filter(Boolean).length;
}

async function rateOf(jobs: number): Promise<number> {
  const start = performance.now();
  const batch = Array.from({ length: jobs }, () => ({ payload: {} }));
  const created = await service.jobs.isolated.createMany(batch).orThrow();
  const refs = created.map((result) => result.unwrap());
  await Promise.all(refs.map((ref) => ref.wait().orThrow()));
  const rate = (jobs * 1_000) / (performance.now() - start);
  for (const ref of refs) {
    const names = (await ref.events().orThrow()).map(({ name }) => name).join(", ");
    if (names !== "created, started, completed")
      throw new Error(`The history of a job is ${names}.`);
  }
  return rate;
}

/** The time of one job, from its create to its end, while nothing else goes on. */
async function timeOf(type: "isolated" | "plain"): Promise<number> {
  const start = performance.now();
  for (let job = 0; job < singleJobs; job++) await service.jobs[type].run({}).orThrow();
  return (performance.now() - start) / singleJobs;
}
