/**
 * A transaction of the handlers' source is tried when a worker starts: one that is of another database would otherwise be
 * noticed only by the handlers, whose jobs would fail until they are dead.
 */
import { InvalidOption } from "../client/errors.js";
import { inTime } from "../client/in-time.js";
import type { Runtime } from "../client/runtime.js";
import type { TransactionSource } from "../client/transactions/source.js";
import type { Engine } from "../engine/engine.js";
import { TransactionRefused } from "../engine/errors.js";
import { begin, enlist } from "./open-transaction.js";

/** Why no transaction of a source can be used. */
type Refusal = InvalidOption | TransactionRefused;

/** How long a start waits for a transaction. The database may be away, or all connections to it in use. */
const waitMaxMs = 3_000;

/**
 * Begins a transaction, lets the store look at it, and rolls it back. Throws what the store says of one that it cannot use, or gives it
 * to `onLate` where that comes after the wait. Where none could be begun or looked at, nothing is known, and the worker goes
 * on as it would without.
 */
export async function tryTransactions(
  { engine, clock, logger }: Runtime,
  source: TransactionSource<unknown>,
  onLate: (refusal: Refusal) => void,
): Promise<void> {
  let isWaitedFor = true;
  const trial = tryOne(engine, source).catch((error: unknown) => {
    if (isRefused(error) && isWaitedFor) throw error;
    if (isRefused(error) && !mayPass(error)) {
      onLate(error);
      return;
    }
    const message =
      "No transaction of handlers could be tried; whether they can be used is not known.";
    logger.warn({ error }, message);
  });
  isWaitedFor = await inTime(clock, trial, waitMaxMs);
}

async function tryOne(engine: Engine, source: TransactionSource<unknown>): Promise<void> {
  if (source.kind === "sync") {
    source.read((client) => {
      const tx = enlist(source, client);
      if (tx.kind === "sync") engine.within(tx).load([]);
    });
    return;
  }
  const open = await begin(source);
  try {
    await engine.load([], { tx: enlist(source, open.client) });
  } finally {
    await open.rollback();
  }
}

/** A server that is about to take over takes no writes for a moment. A start that meets one fails; a worker at work goes on. */
function mayPass(refusal: Refusal): boolean {
  return TransactionRefused.is(refusal) && refusal.reason === "read_only";
}

/** Whether every transaction of the source would be refused. A connection that was lost meanwhile tells nothing. */
function isRefused(error: unknown): error is Refusal {
  if (InvalidOption.is(error)) return true;
  return TransactionRefused.is(error) && error.reason !== "closed";
}
