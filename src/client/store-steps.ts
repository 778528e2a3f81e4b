/**
 * Asking the store step by step: a generator yields what it asks and is sent the answer. The same code so runs
 * on the store itself, in a transaction whose client answers later, and in a synchronous one.
 */
import type {
  AppendOutcome,
  Change,
  Engine,
  JobHold,
  LoadedJob,
  SyncStore,
} from "../engine/engine.js";
import type { JobRow, Page, Queries } from "../engine/query.js";
import type { CallerTransaction } from "../engine/transaction.js";
import { atOnce } from "./promise-like.js";

/** What a step asks: to load jobs, to change or lock one, to list some, or to wait for what a callback gave. */
type StoreAsk =
  | { readonly kind: "load"; readonly ids: readonly string[] }
  | { readonly kind: "append" | "settle"; readonly changes: readonly Change[] }
  | { readonly kind: "hold"; readonly hold: JobHold }
  | { readonly kind: "jobs"; readonly ask: Queries["jobs"]["ask"] }
  | { readonly kind: "wait"; readonly for: unknown };

/** Code that asks the store and gives `Value` in the end. */
export type StoreStep<Value> = Generator<StoreAsk, Value, unknown>;

/** Loads jobs, in the order of the ids; `null` for one that is not there. */
export function* loadMany(ids: readonly string[]): StoreStep<readonly (LoadedJob | null)[]> {
  return (yield { kind: "load", ids }) as readonly (LoadedJob | null)[];
}

/** Loads one job; `null` if there is none. */
export function* loadOne(id: string): StoreStep<LoadedJob | null> {
  const [loaded] = yield* loadMany([id]);
  return loaded ?? null;
}

/** Appends one change. */
export function* appendOne(change: Change): StoreStep<AppendOutcome> {
  return one(yield* appendMany([change]));
}

/** Appends changes, each on its own. */
export function* appendMany(changes: readonly Change[]): StoreStep<readonly AppendOutcome[]> {
  return (yield { kind: "append", changes }) as readonly AppendOutcome[];
}

/** Settles an attempt with one change. */
export function* settleOne(change: Change): StoreStep<AppendOutcome> {
  return one((yield { kind: "settle", changes: [change] }) as readonly AppendOutcome[]);
}

function one([answer]: readonly AppendOutcome[]): AppendOutcome {
  if (!answer) throw new Error("The store gave no answer to a change.");
  return answer;
}

/** Locks one job until the transaction ends; `false` where it is not locked. Asked only in a transaction. */
export function* holdOne(hold: JobHold): StoreStep<boolean> {
  return (yield { kind: "hold", hold }) as boolean;
}

/** A page of jobs: as others see them, or in a synchronous transaction as that does. */
export function* listJobs(ask: Queries["jobs"]["ask"]): StoreStep<Page<JobRow>> {
  return (yield { kind: "jobs", ask }) as Page<JobRow>;
}

/** Waits for what a callback or a schema gave. In a synchronous transaction that must not be a promise. */
export function* waitFor<Value>(value: Value): StoreStep<Awaited<Value>> {
  return (yield { kind: "wait", for: value }) as Awaited<Value>;
}

/** Runs steps on the store, or inside a transaction. */
export async function runSteps<Value>(
  engine: Engine,
  tx: CallerTransaction | undefined,
  step: StoreStep<Value>,
): Promise<Value> {
  let next = step.next();
  while (!next.done) {
    let answer: unknown;
    try {
      answer = await answered(engine, tx, next.value);
    } catch (fault) {
      next = step.throw(fault);
      continue;
    }
    next = step.next(answer);
  }
  return next.value;
}

function answered(engine: Engine, tx: CallerTransaction | undefined, ask: StoreAsk): unknown {
  switch (ask.kind) {
    case "load":
      return engine.load(ask.ids, tx && { tx });
    case "hold":
      return tx !== undefined && engine.hold(ask.hold, tx);
    case "jobs":
      return engine.query("jobs", ask.ask);
    case "wait":
      return ask.for;
    default:
      return engine[ask.kind](ask.changes, tx);
  }
}

/** Runs steps inside a synchronous transaction. */
export function runStepsSync<Value>(store: SyncStore, step: StoreStep<Value>): Value {
  return runAtOnce(step, (ask) => answeredAtOnce(store, ask));
}

/** Runs steps that ask the store nothing, where nobody can wait. */
export function runWaits<Value>(step: StoreStep<Value>): Value {
  return runAtOnce(step, (ask) => {
    if (ask.kind !== "wait") throw new Error(`A step without a store asked it to ${ask.kind}.`);
    return atOnce(ask.for, cannotWait);
  });
}

function runAtOnce<Value>(step: StoreStep<Value>, answerTo: (ask: StoreAsk) => unknown): Value {
  let next = step.next();
  while (!next.done) {
    let answer: unknown;
    try {
      answer = answerTo(next.value);
    } catch (fault) {
      next = step.throw(fault);
      continue;
    }
    next = step.next(answer);
  }
  return next.value;
}

function answeredAtOnce(store: SyncStore, ask: StoreAsk): unknown {
  switch (ask.kind) {
    case "load":
      return store.load(ask.ids);
    case "hold":
      // The transaction has loaded the job, so that nobody else can write until it ends.
      return true;
    case "jobs":
      return store.query("jobs", ask.ask);
    case "wait":
      return atOnce(ask.for, cannotWait);
    default:
      return store[ask.kind](ask.changes);
  }
}

const cannotWait =
  "A callback or a schema gave a promise, which a synchronous completion cannot wait for; give a function that is not async, or begin the transaction by hand and await chains.complete.";
