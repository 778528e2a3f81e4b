/**
 * How a try by a remote handler fails. All of it is tried again; a remote handler that gives up says so in its reply.
 */
import { TaggedError } from "better-result";

/** Why a remote handler brought no result. */
export type RemoteFailureCode =
  /** It replied with an error of its own. */
  | "remote_error"
  /** Nobody listens on the subject. */
  | "remote_no_responder"
  /** No reply came in time; one that comes later is ignored. */
  | "remote_no_reply"
  /** The request could not be sent, or the connection was closed while it was waited for. */
  | "remote_unreachable";

/** A try that a remote handler did not complete. A job that is tried again keeps its message and its code. */
export class RemoteHandlerFailed extends TaggedError("RemoteHandlerFailed")<{
  readonly message: string;
  readonly code: RemoteFailureCode;
  /** Where the request went. */
  readonly subject: string;
}> {}
