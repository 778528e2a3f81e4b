/**
 * Where the runtime says what it does: an interface that pino, console and others fit.
 */

/** Takes structured lines. Fields come first, as pino has it. */
export interface Logger {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** Says nothing. */
export const silentLogger: Logger = { info: () => {}, warn: () => {}, error: () => {} };
