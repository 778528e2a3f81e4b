/**
 * Creating inside a transaction of the caller's. What cannot be done there fails as a whole, so that the caller
 * knows to roll back; what the key's policy or an idempotency key says is the outcome of each job.
 */
import { Result } from "better-result";
import type { AppendOutcome, Engine } from "../engine/engine.js";
import {
  isTransactionError,
  type StoreError,
  type TransactionError,
  TransactionRefused,
  transactionsNotSupported,
} from "../engine/errors.js";
import type { CallerTransaction, SyncTransaction } from "../engine/transaction.js";
import { storeFault } from "./async-result.js";
import { wrongBlockers } from "./blocker-types.js";
import type { Client } from "./client.js";
import type { InvalidOption } from "./errors.js";
import { outboxEntry } from "./outbox.js";
import type { PreparedCreate } from "./prepare.js";
import { appendMany, runSteps, runStepsSync, type StoreStep } from "./store-steps.js";
import {
  createChange,
  followKey,
  type SubmitFailure,
  type Submitted,
  submitted,
} from "./submit.js";
import { callerTransaction } from "./transactions/recognise.js";

/** What became of each create, in their order. */
type Submissions = readonly Result<Submitted, SubmitFailure>[];

/** What can be wrong with a transaction as a whole. */
export type InsideFailure = InvalidOption | TransactionError | StoreError;

/** Appends creates inside the transaction of a client. */
export async function submitInside(
  client: Client,
  given: unknown,
  creates: readonly PreparedCreate[],
): Promise<Result<Submissions, InsideFailure>> {
  const { engine, outbox } = client.runtime;
  const tx = createTransaction(client, given);
  if (tx instanceof Error) return Result.err(tx);
  if (tx.kind === "async") {
    if (outbox === undefined)
      return runSteps(engine, tx, submitSteps(creates, engine.url)).then(
        (results) => Result.ok(results),
        transactionFault,
      );
    const put = outbox.put(creates.map(outboxEntry), tx);
    return put.then(() => accepted(client, creates), transactionFault);
  }
  if (!tx.isOpen()) return submitSync(client, tx, creates);
  // The caller awaits the outcome, so the transaction has to live that long: inside a callback of better-sqlite3
  // it is committed before anybody could see that a create failed.
  await null;
  return tx.isOpen() ? submitSync(client, tx, creates) : Result.err(endedEarly("job was created"));
}

/** Appends creates inside the synchronous transaction of a client, before it returns. */
export function submitInsideSync(
  client: Client,
  given: unknown,
  creates: readonly PreparedCreate[],
): Result<Submissions, InsideFailure> {
  const tx = createTransaction(client, given);
  if (tx instanceof Error) return Result.err(tx);
  return tx.kind === "sync"
    ? submitSync(client, tx, creates)
    : Result.err(answersLater("creates", "create, submit or createMany"));
}

/** The caller's transaction as the store or the outbox uses it for creates, or why it cannot. */
function createTransaction(
  { runtime: { engine, outbox } }: Client,
  given: unknown,
): CallerTransaction | InvalidOption | TransactionError {
  return outbox === undefined ? usableTransaction(engine, given) : callerTransaction(given);
}

/** What is in the outbox counts as accepted: the store says more when it is published. */
function accepted(
  { onItsWay }: Client,
  creates: readonly PreparedCreate[],
): Result<Submissions, never> {
  for (const { event } of creates) onItsWay.add(event.jobId);
  return Result.ok(
    creates.map(({ event }) => Result.ok({ outcome: "accepted", id: event.jobId } as const)),
  );
}

/** The caller's transaction as the store uses it, or why it cannot. */
export function usableTransaction(
  engine: Engine,
  client: unknown,
): CallerTransaction | InvalidOption | TransactionError {
  return engine.capabilities.transactions
    ? callerTransaction(client)
    : transactionsNotSupported(engine.url);
}

/** Appends the creates that can be, and gives the outcome of each. */
function* submitSteps(creates: readonly PreparedCreate[], url: string): StoreStep<Submissions> {
  const wrong = yield* wrongBlockers(creates);
  const fitting = creates.filter((_, index) => wrong[index] === null);
  const answers = fitting.length === 0 ? [] : yield* appendMany(fitting.map(createOnce));
  const results: Result<Submitted, SubmitFailure>[] = [];
  let next = 0;
  for (const [index, create] of creates.entries()) {
    const refused = wrong[index];
    if (refused) {
      results.push(Result.err(refused));
      continue;
    }
    const answer = answers[next++] as AppendOutcome;
    results.push(submitted(create, answer) ?? (yield* followKey(create, answer, url, true)));
  }
  return results;
}

function submitSync(
  client: Client,
  tx: SyncTransaction,
  creates: readonly PreparedCreate[],
): Result<Submissions, InsideFailure> {
  const { engine, outbox } = client.runtime;
  try {
    if (outbox !== undefined) {
      outbox.putSync(creates.map(outboxEntry), tx);
      return accepted(client, creates);
    }
    return Result.ok(runStepsSync(engine.within(tx), submitSteps(creates, engine.url)));
  } catch (error) {
    return transactionFault(error);
  }
}

const createOnce = (create: PreparedCreate) => createChange(create);

/** A fault of the transaction or of the store as a `Result`. Everything else stays thrown. */
export function transactionFault(error: unknown): Result<never, TransactionError | StoreError> {
  return isTransactionError(error) ? Result.err(error) : storeFault(error);
}

/** The error of a call that is awaited in a transaction which ends before. */
export function endedEarly(wish: string): TransactionRefused {
  const message = `The transaction ended before the ${wish}. Inside db.transaction(() => …) use createSync, submitSync, createManySync, completeSync, chains.startSync or chains.completeSync, which answer at once; what is awaited needs a BEGIN by hand.`;
  return new TransactionRefused({ reason: "not_open", message });
}

/** The error of a synchronous call in the transaction of a client that answers later. */
export function answersLater(calls: string, remedy: string): TransactionRefused {
  const message = `Synchronous ${calls} take a better-sqlite3 connection; with this client await ${remedy}.`;
  return new TransactionRefused({ reason: "not_synchronous", message });
}
