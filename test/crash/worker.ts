// A worker process of the crash test: `worker.ts URL FOLDER INSTANCE`. It carries out jobs, writes down
// every entry and exit of its handlers, and may be killed or paused at any moment.
import { connect, type Engine, openEngine, StoreUnavailable } from "millrace";
import { contract, type JobType, type Work } from "./contract.js";
import { type HandlerLine, ledgerFile, openLedger } from "./lines.js";
import { pass, tick } from "./time.js";

const [, , url = "", folder = "", instance = ""] = process.argv;
const write = openLedger<HandlerLine>(ledgerFile.handlers(folder));
const tokens = new Map<string, number>();
const name = `${instance}.${process.pid}`;

/** A server that is being started again is waited for, as a supervisor would. */
const connectAttemptsMax = 100;
const connectPauseMs = 100;

const service = await started();
console.log("ready");
await service.wait();
await service.engine.close();
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
  const service = await connect(contract, { engine, instance, graceMs: 500, keeper });
  for (const type of Object.keys(contract.jobs) as JobType[]) {
    service.jobs[type].handle((job) => work(job.id, type, job.payload, job.tries, job.signal));
  }
  await service.start();
  return service;
}

async function work(id: string, type: JobType, payload: Work, tries: number, signal: AbortSignal) {
  const token = tokens.get(id) ?? 0;
  const place = { jobId: id, token, process: name };
  write({ line: "entered", ...place, type, key: payload.key, at: Date.now(), tick: tick() });
  let said = "threw";
  try {
    await worked(payload, signal);
    if (tries <= payload.fails) throw new Error(`Try ${tries} fails.`);
    said = "returned";
    return { tries };
  } finally {
    write({ line: "left", ...place, said, at: Date.now(), tick: tick() });
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
