/**
 * What may be wrong with a handler that runs in a process of its own before any job has come.
 */
import { TaggedError } from "better-result";

/** The module of an isolated job type cannot be loaded, or has no handler as its default export. */
export class HandlerNotLoaded extends TaggedError("HandlerNotLoaded")<{
  readonly message: string;
  readonly type: string;
  readonly module: string;
}> {}
