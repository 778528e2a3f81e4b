/**
 * Lines in which calls wait for the batch of their kind that is under way, and the answers of batches to the calls in them.
 */
import { type BatchAnswer, Batcher } from "../batching.js";
import { type AppendOutcome, batchMax, type Change } from "../engine.js";
import type { Step } from "../sql/statement.js";
import type { PostgresTransaction } from "./transaction.js";

/** Calls of one kind, each a list of items with a list of answers. */
export type Calls<Item, Answer> = Batcher<readonly Item[], readonly Answer[]>;

/** Answers for the calls of a batch. */
export type Answers<Answer> = readonly BatchAnswer<readonly Answer[]>[];

/** Carries out changes in one transaction. */
export type Perform<Item> = (
  tx: PostgresTransaction,
  changes: readonly Item[],
) => Step<readonly AppendOutcome[]>;

/** Gathers calls of one kind into batches. */
export function calls<Item, Answer>(
  send: (batch: readonly (readonly Item[])[]) => Promise<Answers<Answer>>,
): Calls<Item, Answer> {
  return new Batcher(send, { weightMax: batchMax, weigh: (items) => items.length });
}

/** Completes the outcomes of changes: what has none goes on in another line, each change by itself. */
export function withRest<Item extends Change>(
  changes: readonly Item[],
  known: readonly (AppendOutcome | null)[],
  line: { readonly call: (changes: readonly Item[]) => Promise<readonly AppendOutcome[]> },
): readonly AppendOutcome[] | Promise<readonly AppendOutcome[]> {
  if (isWhole(known)) return known;
  const go = async (change: Item) => (await line.call([change])) as readonly [AppendOutcome];
  return Promise.all(changes.map(async (change, index) => known[index] ?? (await go(change))[0]));
}

/** Whether all outcomes are there. */
function isWhole(
  outcomes: readonly (AppendOutcome | null)[],
): outcomes is readonly AppendOutcome[] {
  return !outcomes.includes(null);
}

/** Gives each call of a batch the answers to its own items. */
export function parted<Item, Answer>(
  batch: readonly (readonly Item[])[],
  answers: readonly Answer[],
): Answers<Answer> {
  let next = 0;
  return batch.map((items) => {
    const start = next;
    next += items.length;
    return { answer: answers.slice(start, next) };
  });
}
