/**
 * What travels between the engine and its threads.
 */
import type { ClaimAsk } from "../engine.js";
import type { Fault } from "./faults.js";

/** An operation by name; one that writes has items, each answered for itself. */
export interface Operation {
  readonly kind: string;
  readonly items?: readonly unknown[];
}

/** How many jobs or records an operation is about. */
export function weigh({ kind, items }: Operation): number {
  if (items === undefined) return 1;
  return kind === "claim"
    ? (items as readonly ClaimAsk[]).reduce((sum, ask) => sum + ask.limit, 0)
    : items.length;
}

/** Whether operations are a single one that is about one thing. */
export function isLone(operations: readonly Operation[]): boolean {
  const [first] = operations;
  return operations.length === 1 && first !== undefined && weigh(first) === 1;
}

/** What a thread is started with. */
export interface ThreadData {
  readonly path: string;
  readonly role: "writer" | "reader";
  /** How many requests have been sent, so that a thread which looks out for the next need not open its mail to know. */
  readonly sentCount: Int32Array;
}

/**
 * A batch of writes for one transaction, or of reads. The time is given where a clock of the caller's own rules;
 * otherwise it is the machine's at the moment when the transaction has the file to itself.
 */
export type Request<Write, Read> =
  | { readonly id: number; readonly now: number | null; readonly writes: readonly Write[] }
  | { readonly id: number; readonly now: number | null; readonly reads: readonly Read[] };

/** A request on its way to a thread. */
export type Sent = Request<Operation, Operation> | "close";

/** What became of one item, or of one read. */
export type ItemReply = { readonly answer: unknown } | { readonly fault: Fault };

/** What became of one operation; of each of its items, where they were carried out one by one. */
export type Reply = ItemReply | { readonly items: readonly ItemReply[] };

/** What a committed batch did that others may wait for. */
export interface Woke {
  readonly ready: boolean;
  readonly ended: boolean;
  readonly cancel: boolean;
}

/** The answer to a request; the first one, with id 0, says whether the file could be opened. */
export interface Response {
  readonly id: number;
  readonly replies: readonly Reply[];
  readonly woke: Woke | null;
}
