/**
 * Asking the store step by step: a generator yields what it asks and is sent the answer. The same code so runs
 * on the store itself, in a transaction whose client answers later, and in a synchronous one.
 */
import type { AppendOutcome, Change, Engine, LoadedJob, SyncStore } from "../engine/engine.js";
import type { AsyncTransaction } from "../engine/transaction.js";

/** What a step asks: to load one job, to append one change, or to settle an attempt with one. */
type StoreAsk =
  | { readonly kind: "load"; readonly id: string }
  | { readonly kind: "append" | "settle"; readonly change: Change };

/** What the store answers. */
type StoreAnswer = LoadedJob | AppendOutcome | null | undefined;

/** Code that asks the store and gives `Value` in the end. */
export type StoreStep<Value> = Generator<StoreAsk, Value, StoreAnswer>;

/** Loads one job; `null` if there is none. */
export function* loadOne(id: string): StoreStep<LoadedJob | null> {
  const answer = yield { kind: "load", id };
  return (answer ?? null) as LoadedJob | null;
}

/** Appends one change. */
export function appendOne(change: Change): StoreStep<AppendOutcome> {
  return changeOne({ kind: "append", change });
}

/** Settles an attempt with one change. */
export function settleOne(change: Change): StoreStep<AppendOutcome> {
  return changeOne({ kind: "settle", change });
}

function* changeOne(ask: StoreAsk): StoreStep<AppendOutcome> {
  const answer = yield ask;
  if (!answer) throw new Error("The store gave no answer to a change.");
  return answer as AppendOutcome;
}

/** Runs steps on the store, or inside a transaction whose client answers later. */
export async function runSteps<Value>(
  engine: Engine,
  tx: AsyncTransaction | undefined,
  step: StoreStep<Value>,
): Promise<Value> {
  let answer: StoreAnswer;
  for (;;) {
    const next = step.next(answer);
    if (next.done) return next.value;
    const ask = next.value;
    if (ask.kind === "load") [answer] = await engine.load([ask.id], tx && { tx });
    else [answer] = await engine[ask.kind]([ask.change], tx);
  }
}

/** Runs steps inside a synchronous transaction. */
export function runStepsSync<Value>(store: SyncStore, step: StoreStep<Value>): Value {
  let answer: StoreAnswer;
  for (;;) {
    const next = step.next(answer);
    if (next.done) return next.value;
    const ask = next.value;
    if (ask.kind === "load") [answer] = store.load([ask.id]);
    else [answer] = store[ask.kind]([ask.change]);
  }
}
