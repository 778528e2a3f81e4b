/**
 * The writing operations of the SQLite engine by name, as its thread is asked for them.
 */
import type { AppendOutcome, ClaimAsk, HeldLease, RenewOutcome } from "../engine.js";
import type { RecordWrite, SwapOutcome } from "../record.js";
import { appendChange, noteChange, settleChange } from "../sql/append.js";
import type { FlatChange } from "../sql/change.js";
import { renewLease } from "../sql/lease.js";
import type { PlainCreate, PlainEnd } from "../sql/plain.js";
import { swapRecord } from "../sql/records.js";
import type { Step } from "../sql/statement.js";
import type { Transaction } from "../sql/transaction.js";
import { type ClaimRows, claimJobs } from "./claim.js";
import { pruneDeleted } from "./feed.js";
import { createPlain } from "./plain-create.js";
import { endPlain } from "./plain-end.js";

/** What each writing operation is asked and what it answers. */
export interface Writes {
  create: { readonly items: readonly PlainCreate[]; readonly answer: readonly AppendOutcome[] };
  end: { readonly items: readonly PlainEnd[]; readonly answer: readonly AppendOutcome[] };
  append: { readonly items: readonly FlatChange[]; readonly answer: readonly AppendOutcome[] };
  settle: { readonly items: readonly FlatChange[]; readonly answer: readonly AppendOutcome[] };
  note: { readonly items: readonly FlatChange[]; readonly answer: readonly boolean[] };
  renew: { readonly items: readonly HeldLease[]; readonly answer: readonly RenewOutcome[] };
  swap: { readonly items: readonly RecordWrite[]; readonly answer: readonly SwapOutcome[] };
  claim: { readonly items: readonly ClaimAsk[]; readonly answer: readonly ClaimRows[] };
  prune: { readonly items: readonly number[]; readonly answer: readonly number[] };
}

/** A writing operation: some items of one kind, each answered for itself. */
export type Write = {
  [Kind in keyof Writes]: { readonly kind: Kind; readonly items: Writes[Kind]["items"] };
}[keyof Writes];

/** What carries out one item of each kind. Plain creates and plain outcomes go many at a time. */
const writers: {
  readonly [Kind in Exclude<keyof Writes, "create" | "end">]: (
    tx: Transaction,
    item: Writes[Kind]["items"][number],
  ) => Step<Writes[Kind]["answer"][number]>;
} = {
  append: appendChange,
  settle: settleChange,
  note: noteChange,
  renew: renewLease,
  swap: swapRecord,
  claim: claimJobs,
  prune: (tx, before) => pruneDeleted(tx.now, before),
};

/** Carries out writes in order; gives a list of answers for each, one per item. */
export function* writeAll(
  tx: Transaction,
  writes: readonly Write[],
): Step<readonly (readonly unknown[])[]> {
  const answers: (readonly unknown[])[] = [];
  for (let index = 0; index < writes.length; index++) {
    const creates = createsFrom(writes, index);
    if (creates.length > 1) {
      answers.push(...(yield* createTogether(tx, creates)));
      index += creates.length - 1;
    } else {
      answers.push(yield* writeItems(tx, writes[index] as Write));
    }
  }
  return answers;
}

type CreateWrite = Extract<Write, { kind: "create" }>;

/** The creates that stand one after the other from here on. */
function createsFrom(writes: readonly Write[], start: number): readonly CreateWrite[] {
  const creates: CreateWrite[] = [];
  for (let index = start; index < writes.length; index++) {
    const write = writes[index];
    if (write?.kind !== "create") break;
    creates.push(write);
  }
  return creates;
}

/** Creates of many callers are stored like those of one, and each caller gets the answers to its own. */
function* createTogether(
  tx: Transaction,
  creates: readonly CreateWrite[],
): Step<readonly (readonly AppendOutcome[])[]> {
  const outcomes = yield* createPlain(
    tx,
    creates.flatMap(({ items }) => items),
  );
  let next = 0;
  return creates.map(({ items }) => {
    const start = next;
    next += items.length;
    return outcomes.slice(start, next);
  });
}

/** Carries out a write; gives one answer per item. */
function* writeItems(tx: Transaction, write: Write): Step<readonly unknown[]> {
  if (write.kind === "create") return yield* createPlain(tx, write.items);
  if (write.kind === "end") return yield* endPlain(tx, write.items);
  const writer = writers[write.kind] as (tx: Transaction, item: unknown) => Step<unknown>;
  const answers: unknown[] = [];
  for (const item of write.items) answers.push(yield* writer(tx, item));
  return answers;
}
