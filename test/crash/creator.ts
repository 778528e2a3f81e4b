// The creating process of the crash test: `creator.ts URL FOLDER JOBS SEED [STORE]`. It creates jobs at an
// even pace, cancels and retries some, releases blocked keys, and writes down what it was told. With a
// word about the store, it may be told that the store is busy or not there.
import { connect, JobNotEnqueued, type JobRef, StoreBusy, StoreUnavailable } from "millrace";
import { Random } from "../simulation/random.js";
import { contract, type JobType, keys, type Work } from "./contract.js";
import { type CallerLine, ledgerFile, openLedger } from "./lines.js";

const [, , url = "", folder = "", jobs = "0", seed = "0", store] = process.argv;
const write = openLedger<CallerLine>(ledgerFile.callers(folder));
const random = new Random(Number(seed));
const service = await connect(contract, { url, instance: "creator" });

/** How many jobs are created at once, and how long the creator waits before the next ones. */
const jobsPerRound = 10;
const roundMs = 30;
const roundsPerRelease = 30;

/** How many of the newest jobs are given commands, because most of the others have ended. */
const recentJobs = 40;
const commandsPerRound = 2;

const types = Object.keys(contract.jobs) as readonly JobType[];
const acknowledged: JobRef<unknown, unknown>[] = [];

console.log("ready");
for (let created = 0, round = 0; created < Number(jobs); created += jobsPerRound, round++) {
  const recent = acknowledged.slice(-recentJobs);
  await Promise.all([
    ...Array.from({ length: jobsPerRound }, () => create()),
    ...Array.from({ length: recent.length > 0 ? commandsPerRound : 0 }, () =>
      command(random.pick(recent)),
    ),
  ]);
  if (round % roundsPerRelease === 0) await releaseKeys();
  await new Promise((resolve) => setTimeout(resolve, roundMs)); // clock: creates are spread over the whole time of trouble
}
console.log("created");
await service.stop();

async function create(): Promise<void> {
  const type = random.chance(0.4) ? "quick" : random.pick(types);
  const id = `job-${random.whole(0, 2 ** 32)}-${acknowledged.length}`;
  const payload: Work = {
    key: random.pick(keys),
    workMs: random.chance(0.8) ? random.whole(0, 20) : random.whole(20, 400),
    fails: type === "flaky" ? random.whole(0, 4) : 0,
    isDeaf: random.chance(0.3),
  };
  const delay = random.chance(0.1) ? { delayMs: random.whole(1, 1_000) } : {};
  const created = await service.jobs[type].create(payload, { id, ...delay });
  if (created.isOk()) {
    acknowledged.push(created.value);
    write({ line: "acknowledged", id });
  } else if (JobNotEnqueued.is(created.error) || isHeldUp(created.error)) {
    write({ line: "refused", id });
  } else if (store === undefined || !StoreUnavailable.is(created.error)) {
    // Of a create that a store in trouble did not acknowledge nobody knows what became of it.
    console.error(`A create failed: ${created.error.message}`);
  }
}

/** A process that is paused amid a transaction holds its locks for longer than others wait; nothing is stored then. */
function isHeldUp(error: Error): boolean {
  return store !== undefined && StoreBusy.is(error);
}

async function command(ref: JobRef<unknown, unknown>): Promise<void> {
  if (random.chance(0.3)) {
    const outcome = await ref.retry();
    if (outcome.isOk()) write({ line: "told", id: ref.id, state: outcome.value.state });
    return;
  }
  const outcome = await ref.cancel("by hand", { force: random.chance(0.5) });
  if (outcome.isOk()) write({ line: "told", id: ref.id, state: outcome.value.state });
}

async function releaseKeys(): Promise<void> {
  for (const key of keys) await service.keys.release({ type: "blocks", key });
}
