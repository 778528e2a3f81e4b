// A worker process of the crash test: `worker.ts URL FOLDER INSTANCE`. It carries out jobs, writes down
// every entry and exit of its handlers and every fault that they are shown, and may be killed or paused at any moment.
// Where the store can take part in transactions, every second worker has some of its own and carries out charges in them.
import { Socket } from "node:net";
import {
  type ActiveJob,
  connect,
  type Engine,
  type HandlerOf,
  isStoreError,
  openEngine,
  pgTransactions,
  StoreUnavailable,
} from "millrace";
import { Pool, type PoolClient } from "pg";
import { booksOf, enter, finish } from "./books.js";
import { contract, type JobType, plainTypes, type Work } from "./contract.js";
import { type CallerLine, faultOf, type HandlerLine, ledgerFile, openLedger } from "./lines.js";
import { pass, tick } from "./time.js";

const { jobs } = contract;
const [, , url = "", folder = "", instance = ""] = process.argv;
const write = openLedger<HandlerLine>(ledgerFile.handlers(folder));
const complain = openLedger<CallerLine>(ledgerFile.callers(folder));
const tokens = new Map<string, number>();
const name = `${instance}.${process.pid}`;
const table = /[13579]$/.test(instance) ? booksOf(url) : null;
const pool = table === null ? null : new Pool({ connectionString: url, max: 4 });

/** A server that is being started again is waited for, as a supervisor would. */
const connectAttemptsMax = 100;
const connectPauseMs = 100;

// Whoever started this process is gone, and nobody else would end it.
process.stdin.once("end", () => process.exit(1)).resume();
// The pipe alone does not keep the process.
if (process.stdin instanceof Socket) process.stdin.unref();
const service = await started();
console.log("ready");
await service.wait();
await service.engine.close();
await pool?.end();
console.log("stopped");

async function started() {
  for (let attempt = 1; ; attempt++) {
    let engine: Engine | null = null;
    try {
      engine = watched(await openEngine(url));
      return await startedOn(engine);
    } catch (error) {
      await engine?.close();
      if (!StoreUnavailable.is(error) || attempt === connectAttemptsMax) throw error;
      await pass(connectPauseMs);
    }
  }
}

async function startedOn(engine: Engine) {
  const keeper = { ttlMs: 2_000, renewMs: 500, tickMs: 250 };
  const service = await connect<typeof jobs, PoolClient>(contract, {
    engine,
    instance,
    graceMs: 500,
    keeper,
    ...(pool && { transactions: pgTransactions(pool) }),
  });
  for (const type of plainTypes) {
    service.jobs[type].handle((job) => work(type, job, () => ({ tries: job.tries })));
  }
  service.jobs.waits.handle((job) => work("waits", job, () => ({ tries: job.tries })));
  service.jobs.linked.handle((job) =>
    work("linked", job, async (place) => {
      const [next, ...rest] = job.payload.next;
      if (next === undefined) throw new Error(`The chain of ${job.id} has no next step.`);
      return complained(
        job.complete(({ continueWith }) => {
          completing(place);
          return continueWith(next, { ...job.payload, next: rest });
        }),
      );
    }),
  );
  if (table !== null) service.jobs.charge.handle(charging(table));
  await service.start();
  return service;
}

/** Carries out a charge in one transaction, from its first row in the books to its outcome. */
function charging(table: string): HandlerOf<typeof jobs.charge, typeof jobs, PoolClient> {
  return (job) => {
    const begin = () =>
      job.prepare({ mode: "atomic" }, ({ tx }) => enter(tx, table, "begun", job.id));
    const end = (place: HandlerPlace) =>
      job.complete(async ({ tx, continueWith }) => {
        await finish(tx, table, job.id);
        completing(place);
        const [next] = job.payload.next;
        if (next === undefined) return { tries: job.tries };
        return continueWith(next, { ...job.payload, next: [] });
      });
    return work(
      "charge",
      job,
      (place) => complained(end(place)),
      () => complained(begin()),
    );
  };
}

/** A try of a job, as far as its work goes. */
type Try = Pick<ActiveJob<Work>, "id" | "payload" | "tries" | "signal">;

/** The token that a handler works under. */
type HandlerPlace = Pick<HandlerLine, "jobId" | "token" | "process">;

async function work<Value>(
  type: JobType,
  { id, payload, tries, signal }: Try,
  end: (place: HandlerPlace) => Value | Promise<Value>,
  begin: () => unknown = () => {},
): Promise<Value> {
  const token = tokens.get(id) ?? 0;
  const place = { jobId: id, token, process: name };
  write({ line: "entered", ...place, type, key: payload.key, at: Date.now(), tick: tick() });
  let said = "threw";
  try {
    await begin();
    await worked(payload, signal);
    if (tries <= payload.fails) throw new Error(`Try ${tries} fails.`);
    const value = await end(place);
    said = "returned";
    return value;
  } finally {
    write({ line: "left", ...place, said, at: Date.now(), tick: tick() });
  }
}

/** The outcome may be stored and the process be gone before the handler is told. */
function completing(place: HandlerPlace): void {
  write({ line: "completing", ...place, at: Date.now(), tick: tick() });
}

/** Writes down a fault of the store that a handler is shown. */
async function complained<Value>(call: Promise<Value>): Promise<Value> {
  try {
    return await call;
  } catch (error) {
    if (isStoreError(error)) complain(faultOf("call of a handler", error));
    throw error;
  }
}

function worked({ workMs, isDeaf }: Work, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    setTimeout(resolve, workMs); // clock: a handler of a real process takes real time
    if (!isDeaf) signal.addEventListener("abort", () => reject(signal.reason));
  });
}

/** Handlers are not told their tokens and leases, so they are written down where the store grants them. */
function watched(engine: Engine): Engine {
  const seen: Pick<Engine, "claim" | "renew"> = {
    claim: async (ask) => {
      const askedAt = { at: Date.now(), tick: tick() };
      const answer = await engine.claim(ask);
      for (const { job, leaseUntil } of answer.jobs) {
        tokens.set(job.id, job.token);
        granted(job.id, job.token, leaseUntil, askedAt);
      }
      return answer;
    },
    renew: async (held) => {
      const askedAt = { at: Date.now(), tick: tick() };
      const outcomes = await engine.renew(held);
      for (const [index, { job, token }] of held.entries()) {
        const outcome = outcomes[index];
        if (outcome?.outcome === "held") granted(job.id, token, outcome.leaseUntil, askedAt);
      }
      return outcomes;
    },
  };
  return new Proxy(engine, {
    get: (target, member) => {
      if (member === "claim" || member === "renew") return seen[member];
      const found = Reflect.get(target, member, target) as unknown;
      return typeof found === "function" ? found.bind(target) : found;
    },
  });
}

function granted(
  jobId: string,
  token: number,
  until: number,
  askedAt: { readonly at: number; readonly tick: number },
): void {
  write({ line: "granted", jobId, token, process: name, until, ...askedAt });
}
