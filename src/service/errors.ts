/**
 * Mistakes in setting up a service. They are programming errors, so that they are thrown.
 */
import { TaggedError } from "better-result";

/** A handler was registered that cannot run: a second one for its type, one for an unknown type, or too late. */
export class InvalidHandler extends TaggedError("InvalidHandler")<{
  readonly message: string;
  readonly type: string;
}> {}

/** A service was used after it was stopped, or started twice at once. */
export class ServiceStopped extends TaggedError("ServiceStopped")<{
  readonly message: string;
  readonly service: string;
}> {}
