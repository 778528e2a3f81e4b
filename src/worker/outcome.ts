/**
 * What a handler may say besides a value or an error: that retrying cannot help, that the job
 * should run later, or that it should not run at all. Each is returned or thrown.
 */
import { TaggedError } from "better-result";
import { delayMaxMs } from "../core/retry.js";

/** Ends the job as `failed`; made by `terminate`. */
export class Terminate extends TaggedError("Terminate")<{ readonly message: string }> {}

/** Gives the job back for a while; made by `snooze`. */
export class Snooze extends TaggedError("Snooze")<{
  readonly message: string;
  readonly delayMs: number;
  readonly reason?: string;
}> {}

/** Ends the job as `skipped`; made by `skip`. */
export class Skip extends TaggedError("Skip")<{ readonly message: string }> {}

/** The handler has completed its job itself; given by `job.complete`, and returned in place of a result. */
export class Completed {
  readonly jobId: string;
  /** The job that continues the chain, if one does. */
  readonly continuedBy: string | undefined;

  constructor(jobId: string, continuedBy?: string) {
    this.jobId = jobId;
    this.continuedBy = continuedBy;
  }
}

/** What a handler returns or throws instead of a result. */
export type HandlerOutcome = Terminate | Snooze | Skip;

/**
 * Ends the job as `failed`, because retrying cannot help.
 *
 * @example
 * if (order === undefined) return terminate(`There is no order ${job.payload.orderId}.`);
 */
export function terminate(message: string): Terminate {
  checkText("terminate", message);
  return new Terminate({ message });
}

/**
 * Gives the job back to run again after a delay. It costs no try.
 *
 * @example
 * if (response.status === 429) return snooze(60_000, "rate limited");
 */
export function snooze(delayMs: number, reason?: string): Snooze {
  if (!(delayMs >= 0 && delayMs <= delayMaxMs)) {
    throw new RangeError(`snooze needs a delay from 0 to ${delayMaxMs} ms, not ${delayMs}.`);
  }
  if (reason !== undefined) checkText("snooze", reason);
  const message = `The job sleeps for ${delayMs} ms.`;
  return new Snooze(reason === undefined ? { message, delayMs } : { message, delayMs, reason });
}

/**
 * Ends the job as `skipped`, because there is nothing to do.
 *
 * @example
 * if (await alreadySent(job.payload.orderId)) return skip("sent already");
 */
export function skip(reason: string): Skip {
  checkText("skip", reason);
  return new Skip({ message: reason });
}

function checkText(what: string, reason: unknown): void {
  if (typeof reason === "string") return;
  throw new TypeError(`${what} needs its reason as text, not ${typeof reason}.`);
}

/** Whether a handler gave one of these instead of a result or an error. */
export function isHandlerOutcome(value: unknown): value is HandlerOutcome {
  return value instanceof Terminate || value instanceof Snooze || value instanceof Skip;
}
