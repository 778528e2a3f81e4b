/**
 * Every operation that an engine carries out in SQL, by kind: what is asked and what comes back.
 * Writes of one batch share a transaction; reads need none.
 */
import type {
  AppendOutcome,
  ClaimAsk,
  DueAsk,
  DueJob,
  HeldLease,
  RenewOutcome,
} from "../engine.js";
import type { Queries, QueryName } from "../query.js";
import type { RecordWrite, StoredRecord, SwapOutcome } from "../record.js";
import { appendChange, noteChange, settleChange } from "./append.js";
import type { FlatChange } from "./change.js";
import { type ClaimRows, claimJobs } from "./claim.js";
import { dueJobs, renewLease } from "./lease.js";
import { createPlain, type PlainCreate } from "./plain-create.js";
import { endPlain, type PlainEnd } from "./plain-end.js";
import {
  countAhead,
  countJobs,
  listJobs,
  listKeys,
  listQueues,
  listRecords,
  readJob,
  readKey,
} from "./query.js";
import { type FeedRow, type JobLog, pruneDeleted, readFeed, readHead, readLogs } from "./read.js";
import { readRecord, swapRecord } from "./records.js";
import type { Step, Transaction } from "./statement.js";

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

/** What carries out one item of each kind. Plain creates go many at a time. */
const writers: {
  readonly [Kind in Exclude<keyof Writes, "create">]: (
    tx: Transaction,
    item: Writes[Kind]["items"][number],
  ) => Step<Writes[Kind]["answer"][number]>;
} = {
  end: endPlain,
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
  const writer = writers[write.kind] as (tx: Transaction, item: unknown) => Step<unknown>;
  const answers: unknown[] = [];
  for (const item of write.items) answers.push(yield* writer(tx, item));
  return answers;
}

/** What each reading operation is asked and what it answers. */
export interface Reads {
  load: { readonly ask: readonly string[]; readonly answer: readonly (JobLog | null)[] };
  records: { readonly ask: readonly string[]; readonly answer: readonly (StoredRecord | null)[] };
  due: {
    readonly ask: { readonly due: DueAsk; readonly limit: number };
    readonly answer: readonly DueJob[];
  };
  query: {
    readonly ask: { readonly name: QueryName; readonly ask: unknown };
    readonly answer: unknown;
  };
  feed: {
    readonly ask: { readonly after: number; readonly limit: number };
    readonly answer: readonly FeedRow[];
  };
  head: { readonly ask: null; readonly answer: number };
}

/** A reading operation. */
export type Read = {
  [Kind in keyof Reads]: { readonly kind: Kind; readonly ask: Reads[Kind]["ask"] };
}[keyof Reads];

/** Carries out one read. */
export function* readItem(now: number, read: Read): Step<unknown> {
  switch (read.kind) {
    case "load":
      return yield* readLogs(read.ask);
    case "records": {
      const records: (StoredRecord | null)[] = [];
      for (const id of read.ask) records.push(yield* readRecord(now, id));
      return records;
    }
    case "due":
      return yield* dueJobs(now, read.ask.due, read.ask.limit);
    case "query":
      return yield* answerQuery(now, read.ask.name, read.ask.ask);
    case "feed":
      return yield* readFeed(read.ask.after, read.ask.limit);
    case "head":
      return yield* readHead();
  }
}

/** The most records that one question gives. */
const recordsMax = 1_000;

function answerQuery(now: number, name: QueryName, ask: unknown): Step<unknown> {
  const of = <Name extends QueryName>(_: Name) => ask as Queries[Name]["ask"];
  switch (name) {
    case "jobs":
      return listJobs(of("jobs"));
    case "job":
      return readJob(of("job").id);
    case "counts":
      return countJobs(of("counts").filter ?? {});
    case "keys":
      return listKeys(now, of("keys"));
    case "key":
      return readKey(now, of("key").hash);
    case "queues":
      return listQueues(now, of("queues").service);
    case "records":
      return listRecords(now, of("records").prefix, of("records").limit ?? recordsMax);
    case "ahead":
      return countAhead(of("ahead").id);
  }
}
