/**
 * Draining: lets the real worker run jobs until it comes to rest, and, where it is asked to, moves
 * the clock from one due time to the next until every job has ended.
 */
import type { Engine } from "../engine/engine.js";
import type { Keeper } from "../keeper/keeper.js";
import { jobsStuck } from "./errors.js";
import type { FakeClock } from "./fake-clock.js";
import { nextChangeAt, openJobs, type WaitingJob } from "./open-jobs.js";
import { pause, type WatchedEngine } from "./watched-engine.js";

/** How `drain` runs jobs. */
export interface DrainOptions {
  /** Move the clock through delays and retries until every job has ended; false by default. */
  readonly untilIdle?: boolean;
  /** How long in real time a handler may take while nothing else happens; 5 s by default. */
  readonly patienceMs?: number;
}

/** What draining works with. */
export interface DrainParts {
  readonly engine: Engine;
  readonly watched: Pick<WatchedEngine, "isBusy" | "rest" | "hint">;
  readonly clock: FakeClock;
  readonly keeper: Keeper;
  readonly service: string;
  readonly waiting: () => Promise<readonly WaitingJob[]>;
}

const patienceDefaultMs = 5_000;

/** The longest pause between two looks at handlers that do real I/O. */
const pauseMaxMs = 10;

/** How often jobs may be seen to move before they are taken to make each other for ever. */
const looksMax = 200_000;
const roundsMax = 1_000;
const endlessly = "Jobs keep moving, as if they made each other for ever";

/** How often the clock is moved for each job before they are taken to put themselves off for ever. */
const movesPerJobMax = 1_000;

/** What holds a slot without a job that shows it lapses within this time. */
const lastWaitMs = 24 * 60 * 60 * 1_000;

/** Runs every job that can run now. */
export async function drainNow(parts: DrainParts, options: DrainOptions): Promise<void> {
  const { patienceMs = patienceDefaultMs } = options;
  await settle(parts, patienceMs);
  for (let rounds = 0; rounds < roundsMax; rounds++) {
    const head = await parts.engine.head();
    await parts.keeper.tick();
    await settle(parts, patienceMs);
    if ((await parts.engine.head()) === head) return;
  }
  throw jobsStuck(endlessly, await parts.waiting());
}

/** Runs every job to its end, through delays and retries. */
export async function drainAll(parts: DrainParts, options: DrainOptions): Promise<void> {
  const { engine, clock, service, waiting } = parts;
  let isLastWait = false;
  let movesMax = movesPerJobMax;
  for (let moves = 0; moves < movesMax; moves++) {
    await drainNow(parts, options);
    const open = await openJobs(engine, service);
    if (open.length === 0) return;
    movesMax = Math.max(movesMax, open.length * movesPerJobMax);
    const changeAt = nextChangeAt(open, clock.now());
    if (changeAt === null && isLastWait) {
      throw jobsStuck(`${counted(open.length, "job")} cannot end by waiting`, await waiting());
    }
    isLastWait = changeAt === null;
    await clock.leap(changeAt === null ? lastWaitMs : changeAt - clock.now());
  }
  const problem = `The clock was moved ${movesMax} times and jobs are still put off`;
  throw jobsStuck(problem, await waiting());
}

/** Waits until nothing runs and nothing moves any more. */
async function settle(parts: DrainParts, patienceMs: number): Promise<void> {
  const { engine, watched, service, waiting } = parts;
  watched.hint();
  let head = await engine.head();
  let pauseMs = 0;
  let movedAt = performance.now();
  for (let looks = 0; looks < looksMax; looks++) {
    await watched.rest();
    const wasBusy = watched.isBusy();
    const newHead = await engine.head();
    const isStill = newHead === head;
    head = newHead;
    if (!isStill) {
      movedAt = performance.now();
      pauseMs = 0;
      continue;
    }
    if (!wasBusy && !(await isRunning(engine, service)) && !watched.isBusy()) return;
    if (performance.now() - movedAt > patienceMs) {
      const running = (await waiting()).filter(({ state }) => state === "active");
      throw jobsStuck(`Handlers have not returned within ${patienceMs} ms of real time`, running);
    }
    await pause(pauseMs);
    pauseMs = Math.min(pauseMs + 1, pauseMaxMs);
  }
  throw jobsStuck(endlessly, await waiting());
}

async function isRunning(engine: Engine, service: string): Promise<boolean> {
  const counts = await engine.query("counts", { filter: { service, state: ["active"] } });
  return counts.some(({ count }) => count > 0);
}

function counted(count: number, noun: string): string {
  return count === 1 ? `1 ${noun}` : `${count} ${noun}s`;
}
