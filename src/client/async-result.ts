/**
 * A `Result` on its way: `await` gives the `Result`, `orThrow()` the value for those who prefer exceptions.
 */
import { Result } from "better-result";
import { isStoreError, type StoreError } from "../engine/errors.js";

/**
 * A promise of a `Result`. Expected failures are values and never reject it.
 *
 * @example
 * const created = await service.jobs.sendReceipt.create(payload);
 * if (created.isErr()) return reply(created.error.message);
 *
 * const ref = await service.jobs.sendReceipt.create(payload).orThrow();
 */
export class AsyncResult<Value, Failure extends Error>
  implements PromiseLike<Result<Value, Failure>>
{
  readonly #promise: Promise<Result<Value, Failure>>;

  constructor(promise: Promise<Result<Value, Failure>>) {
    this.#promise = promise;
  }

  /** Makes the value awaitable. */
  // biome-ignore lint/suspicious/noThenProperty: being awaited is what this class is for.
  then<Then = Result<Value, Failure>, Otherwise = never>(
    onFulfilled?: ((result: Result<Value, Failure>) => Then | PromiseLike<Then>) | null,
    onRejected?: ((reason: unknown) => Otherwise | PromiseLike<Otherwise>) | null,
  ): Promise<Then | Otherwise> {
    return this.#promise.then(onFulfilled, onRejected);
  }

  /** Gives the value, or throws the failure. */
  async orThrow(): Promise<Value> {
    const result = await this.#promise;
    if (result.isErr()) throw result.error;
    return result.value;
  }
}

/** The answer of a call that is refused before it does anything. */
export function refusal<Value, Failure extends Error>(
  failure: Failure,
): AsyncResult<Value, Failure> {
  return new AsyncResult<Value, Failure>(Promise.resolve(Result.err(failure)));
}

/** Runs work whose expected failures are `Result`s already, and makes a fault of the store one of them. */
export function attempt<Value, Failure extends Error>(
  work: () => Promise<Result<Value, Failure>>,
): AsyncResult<Value, Failure | StoreError> {
  return new AsyncResult<Value, Failure | StoreError>(work().catch(storeFault));
}

/** A fault of the store as a `Result`. Everything else is a broken invariant and stays thrown. */
export function storeFault(fault: unknown): Result<never, StoreError> {
  if (isStoreError(fault)) return Result.err(fault);
  throw fault;
}
