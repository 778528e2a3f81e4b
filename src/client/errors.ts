/**
 * The expected failures of the client, each with a sentence that names the remedy.
 */
import { TaggedError } from "better-result";
import type { ContractChange } from "../contract/diff.js";
import type { SchemaIssue } from "../contract/schema.js";
import type { EndedState, JobError, JobState } from "../core/job.js";

/** The payload does not fit its schema, cannot be stored as JSON, or lacks what the job's key needs. */
export class InvalidPayload extends TaggedError("InvalidPayload")<{
  readonly message: string;
  readonly type: string;
  readonly issues: readonly SchemaIssue[];
}> {}

/** An option of a call cannot be used. `field` names it. */
export class InvalidOption extends TaggedError("InvalidOption")<{
  readonly message: string;
  readonly field: string;
}> {}

/** The result that a job was to be completed with does not fit its schema or cannot be stored as JSON. */
export class InvalidResult extends TaggedError("InvalidResult")<{
  readonly message: string;
  readonly type: string;
}> {}

/** The job's key is full and its policy let no new job in. */
export class JobNotEnqueued extends TaggedError("JobNotEnqueued")<{
  readonly message: string;
  /** `coalesced`: the existing job stands for this one; otherwise which of the limits is reached. */
  readonly reason: "active_limit" | "queue_full" | "coalesced";
  readonly key: string;
  /** How many jobs hold and await a slot of the key; known when the create was rejected. */
  readonly active?: number;
  readonly queued?: number;
  /** How many jobs the key takes in all. */
  readonly limit: number;
  readonly existingJobId?: string;
}> {}

/** The idempotency key was used before with a different payload, or for a job where a chain is to be started. */
export class IdempotencyConflict extends TaggedError("IdempotencyConflict")<{
  readonly message: string;
  readonly key: string;
  readonly existingJobId: string;
}> {}

/** A job with the caller's id exists. */
export class JobExists extends TaggedError("JobExists")<{
  readonly message: string;
  readonly id: string;
}> {}

/** A job was to wait for one that does not exist, is of the wrong type, or waits for it in turn, or for too many to tell. */
export class InvalidBlocker extends TaggedError("InvalidBlocker")<{
  readonly message: string;
  readonly id: string;
  readonly blockerId: string;
  readonly reason: "missing" | "type" | "cycle" | "too_many";
}> {}

/** Jobs must be signed here, and the process that creates this one has no private key. */
export class SignatureRequired extends TaggedError("SignatureRequired")<{
  readonly message: string;
  readonly id: string;
}> {}

/** The signature that was given with a job is not one of its own by a key that counts, or has expired. */
export class SignatureInvalid extends TaggedError("SignatureInvalid")<{
  readonly message: string;
  readonly id: string;
}> {}

/** The service's payloads and results may be stored encrypted only, and this process has no keys. */
export class EncryptionRequired extends TaggedError("EncryptionRequired")<{
  readonly message: string;
  readonly id: string;
}> {}

/** There is no job with that id. */
export class JobNotFound extends TaggedError("JobNotFound")<{
  readonly message: string;
  readonly id: string;
}> {}

/** The job ended, and not as `completed`. */
export class JobEnded extends TaggedError("JobEnded")<{
  readonly message: string;
  readonly id: string;
  readonly state: EndedState;
  /** The last error, if a try failed. */
  readonly error?: JobError;
  /** Why it was cancelled or skipped, in words. */
  readonly reason?: string;
}> {}

/** The job did not end within the time that the caller would wait. It goes on. */
export class WaitTimeout extends TaggedError("WaitTimeout")<{
  readonly message: string;
  readonly id: string;
  readonly timeoutMs: number;
}> {}

/** The caller's signal ended the waiting. The job goes on. */
export class WaitAborted extends TaggedError("WaitAborted")<{
  readonly message: string;
  readonly id: string;
  readonly cause: unknown;
}> {}

/** The job is in a state in which the command is not possible. */
export class CommandRefused extends TaggedError("CommandRefused")<{
  readonly message: string;
  readonly id: string;
  readonly command: string;
  readonly state: JobState | null;
}> {}

/** Somebody else has ended the job: it was completed without its worker, cancelled by force, or has expired. */
export class JobAlreadyCompleted extends TaggedError("JobAlreadyCompleted")<{
  readonly message: string;
  readonly id: string;
  readonly state: EndedState;
}> {}

/**
 * A service was to start with a contract that differs from the accepted one in ways that somebody has to accept.
 * `migration` is the name to accept them by: `connect(contract, { acceptMigration })`.
 */
export class MigrationNotAccepted extends TaggedError("MigrationNotAccepted")<{
  readonly message: string;
  readonly service: string;
  readonly migration: string;
  /** Everything that changed, updates among it. */
  readonly changes: readonly ContractChange[];
}> {}

/** A queue of that name has settings. */
export class QueueExists extends TaggedError("QueueExists")<{
  readonly message: string;
  readonly queue: string;
}> {}

/** A schedule of that name exists. */
export class ScheduleExists extends TaggedError("ScheduleExists")<{
  readonly message: string;
  readonly schedule: string;
}> {}

/** There is no schedule of that name. */
export class ScheduleNotFound extends TaggedError("ScheduleNotFound")<{
  readonly message: string;
  readonly schedule: string;
}> {}

/** The contract declares the schedule, and would make it again. */
export class ScheduleDeclared extends TaggedError("ScheduleDeclared")<{
  readonly message: string;
  readonly schedule: string;
}> {}

/** There is no webhook with that id. */
export class WebhookNotFound extends TaggedError("WebhookNotFound")<{
  readonly message: string;
  readonly id: string;
}> {}

/** The event is not among the last deliveries of a webhook, or its job was removed. */
export class DeliveryNotFound extends TaggedError("DeliveryNotFound")<{
  readonly message: string;
  readonly eventId: string;
}> {}

/** The error of a chain that does not exist. */
export function chainNotFound(id: string): JobNotFound {
  return new JobNotFound({ id, message: `There is no chain ${id}; it may have been deleted.` });
}

/** The error of a job that does not exist. */
export function jobNotFound(id: string): JobNotFound {
  return new JobNotFound({ id, message: `There is no job ${id}; it may have been deleted.` });
}
