// The creating process of the crash test: `creator.ts URL FOLDER JOBS SEED`. It creates jobs at an even pace, as many
// as it is told, until it is sent a line and some of each kind are there; chains and jobs that wait for others are among them. It repeats some
// creates, cancels and retries some jobs, releases blocked keys, and writes down what it was told: every error, too,
// that is no answer to its wish. Where the store can take part in transactions of its own, it works in those as well.
import {
  CommandRefused,
  type CreateOptions,
  connect,
  JobNotEnqueued,
  type JobRef,
  type JobState,
  type Result,
  StoreBusy,
} from "millrace";
import { Random } from "../simulation/random.js";
import { Booker } from "./booker.js";
import { booksOf } from "./books.js";
import { contract, keys, noWork, plainTypes, triesMax, type Work } from "./contract.js";
import { type CallerLine, faultOf, ledgerFile, openLedger } from "./lines.js";

const [, , url = "", folder = "", jobs = "0", seed = "0"] = process.argv;
const write = openLedger<CallerLine>(ledgerFile.callers(folder));
const random = new Random(Number(seed));
const service = await connect(contract, { url, instance: "creator" });
const table = booksOf(url);

type Ref = JobRef<unknown, unknown>;

/** How many jobs are created in a round: plain ones, a family of three and a repeated one; and how long it rests. */
const jobsPerRound = 10;
const plainPerRound = 6;
const roundMs = 30;
const roundsPerRelease = 30;

/** How many of the newest jobs are given commands, because most of the others have ended. */
const recentJobs = 40;
const commandsPerRound = 2;

/**
 * How many families must be there whose blocker ends badly and takes the other with it, and how many others. Creates that meet a store
 * without a leader are lost, and so rounds are added until enough have met one that has.
 */
const familiesMin = 4;

/** How many rounds a create may be repeated after. */
const repeatedRounds = 3;

/** What chains go on with after their first job. */
const ways: readonly Work["next"][] = [
  ["linked", "quick"],
  ["linked", "linked", "capped"],
  ["linked", "requeues"],
  ["failsStale"],
  ["blocks"],
];

const acknowledged: Ref[] = [];
/** Jobs that others wait for. They are not run again: a job may go on that has seen the end of their first run. */
const awaited = new Set<string>();

/** How many families of each kind are there. */
const families = { doomed: 0, other: 0 };

let isEnough = false;
process.stdin.once("data", () => {
  isEnough = true;
  process.stdin.destroy();
});
// Whoever started this process is gone, and nobody else would end it.
process.stdin.once("end", () => process.exit(1));
console.log("ready");
const booking =
  table === null
    ? undefined
    : new Booker({ url, table, service, random: random.fork(), write, work: booked }).run(
        () => isEnough,
      );
for (let round = 0; !isEnough || round * jobsPerRound < Number(jobs) || !hasFamilies(); round++) {
  const recent = acknowledged.slice(-recentJobs);
  await Promise.all([
    ...Array.from({ length: plainPerRound }, () => createPlain(recent)),
    createFamily(round),
    createRepeatable(round),
    ...(table === null ? [] : [createCharge()]),
    ...Array.from({ length: recent.length > 0 ? commandsPerRound : 0 }, () =>
      command(random.pick(recent)),
    ),
  ]);
  if (round % roundsPerRelease === 0) await releaseKeys();
  await new Promise((resolve) => setTimeout(resolve, roundMs)); // clock: creates are spread over the whole time of trouble
}
await booking;
console.log("created");
await service.stop();

/** Creates a job of any type that needs nothing else; now and then behind others. */
async function createPlain(recent: readonly Ref[]): Promise<void> {
  const type = random.chance(0.4) ? "quick" : random.pick(plainTypes);
  const id = freshId();
  const payload = work(type === "flaky" ? random.whole(0, triesMax) : 0);
  const delay = random.chance(0.1) ? { delayMs: random.whole(1, 1_000) } : {};
  const blockers = random.chance(0.1) && recent.length > 0 ? [random.pick(recent)] : [];
  for (const blocker of blockers) awaited.add(blocker.id);
  const options: CreateOptions = {
    id,
    ...delay,
    blockers: blockers.map((job) => ({ job, onBadEnd: badEnd() })),
  };
  judged(`create of ${type}`, id, await service.jobs[type].create(payload, options));
}

/** Creates a job, a chain, and a job that waits for both. Every second time the job that is waited for ends badly. */
async function createFamily(round: number): Promise<void> {
  const [jobId, chainId, id] = [freshId(), freshId(), freshId()];
  awaited.add(jobId).add(chainId);
  const fails = round % 2 === 0 ? triesMax : random.whole(0, triesMax - 1);
  const links = {
    ...work(random.chance(0.8) ? 0 : random.whole(1, triesMax)),
    next: random.pick(ways),
  };
  const [job, chain] = await Promise.all([
    service.jobs.flaky.create(work(fails), { id: jobId }),
    service.jobs.linked.create(links, { id: chainId }),
  ]);
  const isThere = [
    judged("create of flaky", jobId, job),
    judged("create of linked", chainId, chain),
  ];
  if (isThere.includes(false)) return;
  const blockers = {
    job: { job: jobId, onBadEnd: badEnd() },
    chain: { chain: chainId, onBadEnd: badEnd() },
  };
  const isDoomed = fails === triesMax && blockers.job.onBadEnd === "unreachable";
  const waits = await service.jobs.waits.create(work(0), { id, blockers });
  if (judged("create of waits", id, waits)) families[isDoomed ? "doomed" : "other"] += 1;
}

function hasFamilies(): boolean {
  return Math.min(families.doomed, families.other) >= familiesMin;
}

/** Creates a job that is carried out in a transaction of its handler's. */
async function createCharge(): Promise<void> {
  const id = freshId();
  const created = await service.jobs.charge.create(booked(random), { id });
  judged("create of charge", id, created);
}

/** Creates a job that this process, and others in the same rounds, create again and again. */
async function createRepeatable(round: number): Promise<void> {
  const id = freshId();
  const idempotencyKey = `repeated-${Math.max(0, round - random.whole(0, repeatedRounds))}`;
  const created = await service.jobs.quick.create(noWork, { id, idempotencyKey });
  if (created.isErr()) judged("repeatable create", id, created);
  else {
    write({ line: "acknowledged", id: created.value.id, idempotencyKey });
    if (created.value.id !== id) write({ line: "refused", id });
  }
}

/** Writes down what became of a create, and says whether its job is there. */
function judged(call: string, id: string, created: Result<Ref, Error>): boolean {
  if (created.isOk()) {
    acknowledged.push(created.value);
    write({ line: "acknowledged", id });
    return true;
  }
  const { error } = created;
  // A store that is not there may have stored the job; nobody knows. One that is held up for too long has not.
  if (JobNotEnqueued.is(error) || StoreBusy.is(error)) write({ line: "refused", id });
  if (!JobNotEnqueued.is(error)) write(faultOf(call, error));
  return false;
}

async function command(ref: Ref): Promise<void> {
  if (random.chance(0.3)) {
    if (!awaited.has(ref.id)) obeyed("retry", ref.id, await ref.retry());
    return;
  }
  const force = random.chance(0.5);
  obeyed("cancel", ref.id, await ref.cancel("by hand", { force }));
}

/**
 * Writes down what became of a command. That the job is in no state for it is an answer, and so is that somebody has locked it
 * in a transaction.
 */
function obeyed(call: string, id: string, told: Result<{ readonly state: JobState }, Error>): void {
  if (told.isOk()) write({ line: "told", id, state: told.value.state });
  else if (CommandRefused.is(told.error)) return;
  else if (table === null || !isLocked(told.error)) write(faultOf(call, told.error));
}

function isLocked(error: Error): boolean {
  return StoreBusy.is(error) && error.message.includes("is locked by a transaction");
}

async function releaseKeys(): Promise<void> {
  for (const key of keys) {
    const released = await service.keys.release({ type: "blocks", key });
    if (released.isErr()) write(faultOf("release of a key", released.error));
  }
}

function freshId(): string {
  return `job-${random.whole(0, 2 ** 32)}-${acknowledged.length}`;
}

/** The work of a job that is created in a transaction: now and then its first try fails. */
function booked(random: Random): Work {
  return work(random.chance(0.2) ? 1 : 0, random);
}

function work(fails: number, from = random): Work {
  return {
    ...noWork,
    key: from.pick(keys),
    workMs: from.chance(0.8) ? from.whole(0, 20) : from.whole(20, 400),
    fails,
    isDeaf: from.chance(0.3),
  };
}

/** What the bad end of a blocker means for a job that waits for it. */
function badEnd() {
  return random.pick(["continue", "unreachable"] as const);
}
