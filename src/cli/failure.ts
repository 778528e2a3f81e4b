/**
 * How a command fails: one sentence, perhaps a remedy, and an exit code that scripts can rely on.
 */

/** Every exit code, with what it means. */
export const exitCodes = {
  ok: { code: 0, meaning: "it was done" },
  failure: { code: 1, meaning: "something else failed" },
  usage: { code: 2, meaning: "the command, an option or a value is wrong" },
  notFound: { code: 3, meaning: "what was named does not exist" },
  conflict: { code: 4, meaning: "it was refused as things stand, or is there already" },
  unavailable: { code: 5, meaning: "the server or the store cannot be reached, or is busy" },
  badEnd: { code: 6, meaning: "the job that was waited for has ended, and not well" },
  timeout: { code: 7, meaning: "the time to wait was over" },
  notPermitted: { code: 8, meaning: "a token is missing, unknown, or may not do this" },
  interrupted: { code: 130, meaning: "Ctrl-C, or a signal to stop" },
} as const;

/** The kinds of ends that a command can have. */
export type Exit = keyof typeof exitCodes;

/** A command failed in a way that its user can understand. It is told without a stack trace. */
export class Failure extends Error {
  override readonly name = "Failure";
  readonly exit: Exit;
  /** The code and details that the server gave, for `--json`. */
  readonly code: string;
  readonly details: object | undefined;

  constructor(exit: Exit, message: string, told: { code?: string; details?: object } = {}) {
    super(message);
    this.exit = exit;
    this.code = told.code ?? exit;
    this.details = told.details;
  }
}

/** The end of a command that somebody stopped. */
export function interrupted(): Failure {
  return new Failure("interrupted", "Stopped.");
}

/** The message of anything that was thrown. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
