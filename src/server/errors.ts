/**
 * The expected failures of the admin calls. They carry no codes of a transport; whoever serves them maps them.
 */
import { TaggedError } from "better-result";

/** What was asked for is not there. */
export class NotFoundError extends TaggedError("NotFoundError")<{
  readonly message: string;
  readonly resource: "job" | "key";
  /** The job's id, or the readable key. */
  readonly id: string;
}> {}

/** The input of a call cannot be used, or the job is in a state in which the call is not possible. */
export class ValidationError extends TaggedError("ValidationError")<{
  readonly message: string;
  /** The part of the input that is at fault; `id` where it is the job's state. */
  readonly field: string;
}> {}

/** The admin runtime cannot answer now: it is not there, too busy, or without its store. */
export class UnavailableError extends TaggedError("UnavailableError")<{
  readonly message: string;
}> {}

/** Any failure of an admin call. */
export type AdminError = NotFoundError | ValidationError | UnavailableError;

/** Whether a caught value is a failure that the caller is told. */
export function isAdminError(value: unknown): value is AdminError {
  return (
    value instanceof NotFoundError ||
    value instanceof ValidationError ||
    value instanceof UnavailableError
  );
}

/** A failure as it goes over the wire. */
export type ErrorWire =
  | {
      readonly type: "NotFoundError";
      readonly message: string;
      readonly resource: "job" | "key";
      readonly id: string;
    }
  | { readonly type: "ValidationError"; readonly message: string; readonly field: string }
  | { readonly type: "UnavailableError"; readonly message: string };

/** The most characters of a text in a failure: it may repeat what a caller sent, and has to fit into a message. */
const textMax = 500;

function cut(text: string): string {
  return text.length <= textMax ? text : `${text.slice(0, textMax - 1)}…`;
}

/** A failure for the wire. */
export function errorWire(error: AdminError): ErrorWire {
  const message = cut(error.message);
  switch (error._tag) {
    case "NotFoundError":
      return { type: error._tag, message, resource: error.resource, id: cut(error.id) };
    case "ValidationError":
      return { type: error._tag, message, field: cut(error.field) };
    case "UnavailableError":
      return { type: error._tag, message };
  }
}

/** The failure that came over the wire. One that is not known says what it can. */
export function wiredError(wire: ErrorWire): AdminError {
  const { message } = wire;
  switch (wire.type) {
    case "NotFoundError":
      return new NotFoundError({ message, resource: wire.resource, id: wire.id });
    case "ValidationError":
      return new ValidationError({ message, field: wire.field });
    default:
      return new UnavailableError({ message });
  }
}
