/**
 * Where the runtime says what it does: an interface that pino, console and others fit.
 */

/** Takes structured lines. Fields come first, as pino has it. */
export interface Logger {
  /** What happens all the time; a logger without it is not told. */
  debug?(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** Says nothing. */
export const silentLogger: Logger = { info: () => {}, warn: () => {}, error: () => {} };
