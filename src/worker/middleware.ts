/**
 * Middleware: functions around handlers, for what many of them have in common. What is given first is outermost, and
 * what holds for the whole service lies around what a single handler has.
 */
import { TaggedError } from "better-result";
import type { IdSource } from "../client/ids.js";
import type { Clock } from "../engine/clock.js";
import type { Engine } from "../engine/engine.js";
import type { Logger } from "../engine/logger.js";
import type { ActiveJob } from "./active-job.js";

/** Goes on to the next middleware, or to the handler. Gives what that returns, and throws what it throws. */
export type Next = () => Promise<unknown>;

/** What middleware may use besides the job: the store and the clock of the process that runs it. */
export interface MiddlewareContext {
  readonly service: string;
  /** The name of this process among those of the service. */
  readonly instance: string;
  readonly engine: Engine;
  readonly clock: Clock;
  readonly ids: IdSource;
  readonly logger: Logger;
}

/**
 * A function around a handler. It gives what `next` gives, or something else, and does not have to call `next` at all.
 *
 * @example
 * const traced: Middleware = (job, next) => storage.run(job.context, next);
 */
export type Middleware = (
  job: ActiveJob<unknown>,
  next: Next,
  context: MiddlewareContext,
) => unknown;

/** Something that is no function was given as middleware. It is a mistake of the program, and so it is thrown. */
export class InvalidMiddleware extends TaggedError("InvalidMiddleware")<{
  readonly message: string;
  /** Which of those that were given together, from 0. */
  readonly position: number;
}> {}

/**
 * Makes one middleware of several: the first is outermost. Throws `InvalidMiddleware` for what is none.
 *
 * @example
 * service.use(chain(logging(logger), timing(record)));
 */
export function chain(...middleware: readonly Middleware[]): Middleware {
  checkMiddleware(middleware);
  return (job, next, context) => {
    const from = (position: number): Next => {
      const current = middleware[position];
      return current === undefined ? next : async () => current(job, from(position + 1), context);
    };
    return from(0)();
  };
}

/** Throws `InvalidMiddleware` for the first that is no function. */
function checkMiddleware(middleware: readonly unknown[]): void {
  const position = middleware.findIndex((each) => typeof each !== "function");
  if (position === -1) return;
  const given = middleware[position];
  const kind = given === null ? "null" : typeof given;
  const message = `Middleware must be a function (job, next) => …; number ${position + 1} is ${kind}.`;
  throw new InvalidMiddleware({ position, message });
}

/** The middleware of a whole service. Attempts that have begun keep what they began with. */
export class MiddlewareStack {
  #all: readonly Middleware[] = [];
  /** All of it as one; `undefined` while there is none. */
  current: Middleware | undefined;

  /** Adds middleware inside of what is there. */
  use(middleware: readonly Middleware[]): void {
    const all = [...this.#all, ...middleware];
    checkMiddleware(middleware);
    this.#all = all;
    this.current = all.length === 0 ? undefined : chain(...all);
  }
}
