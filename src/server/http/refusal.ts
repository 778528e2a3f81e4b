/**
 * What the HTTP API says no with: one envelope, a closed list of codes, and the one place where failures of the
 * rooms below get a code and a status. Failures that it does not know are nobody's input and become `internal`.
 */
import { isTaggedError, TaggedError } from "better-result";
import type {
  CommandRefused,
  DeliveryNotFound,
  EncryptionRequired,
  IdempotencyConflict,
  InvalidBlocker,
  InvalidOption,
  InvalidPayload,
  InvalidResult,
  JobAlreadyCompleted,
  JobExists,
  JobNotEnqueued,
  JobNotFound,
  QueueExists,
  ScheduleDeclared,
  ScheduleExists,
  ScheduleNotFound,
  SignatureInvalid,
  SignatureRequired,
  WebhookNotFound,
} from "../../client/errors.js";
import type { DecryptionFailed } from "../../client/vault.js";
import type { InvalidDefinition } from "../../contract/errors.js";
import {
  type InvalidCursor,
  isStoreError,
  StoreBusy,
  type StoreError,
} from "../../engine/errors.js";

/** Every code that an answer may carry, with the statuses that go with it. */
export const refusalCodes = {
  invalid_argument: [400, 405, 408, 415, 422, 431],
  unauthenticated: [401],
  permission_denied: [403],
  not_found: [404],
  conflict: [409],
  duplicate: [409],
  payload_too_large: [413],
  rate_limited: [429],
  signature_required: [422],
  signature_invalid: [422],
  encryption_required: [422],
  dependency_failed: [422],
  internal: [500],
  unavailable: [503],
} as const;

/** A code of the closed list. */
export type RefusalCode = keyof typeof refusalCodes;

/** A request that is refused. `reason` is finer than `code`; `field` names the part of the request at fault. */
export class Refused extends TaggedError("Refused")<{
  readonly message: string;
  readonly code: RefusalCode;
  readonly status: number;
  readonly reason: string;
  readonly field?: string;
  /** More that helps a program to go on, such as the id of the job in the way. */
  readonly details?: { readonly [name: string]: unknown };
  /** When it may be tried again. */
  readonly retryAfterMs?: number;
}> {}

/** How an error goes over the wire. */
export interface ErrorBody {
  readonly code: RefusalCode;
  readonly message: string;
  readonly details: { readonly reason: string; readonly field?: string };
}

/** The body of a refusal. */
export function errorBody({ code, message, reason, field, details }: Refused): ErrorBody {
  return {
    code,
    message,
    details: { reason, ...(field === undefined ? null : { field }), ...details },
  };
}

/** The refusal of an argument. */
export function badArgument(reason: string, message: string, field?: string): Refused {
  return refused("invalid_argument", {
    reason,
    message,
    ...(field === undefined ? null : { field }),
  });
}

/** What a refusal says besides its code. The status is the first of the code's unless another is named. */
type RefusalParts = Omit<ConstructorParameters<typeof Refused>[0], "code" | "status"> & {
  readonly status?: number;
};

/** Makes a refusal. */
export function refused(code: RefusalCode, parts: RefusalParts): Refused {
  return new Refused({ code, status: refusalCodes[code][0], ...parts });
}

/** The refusal of something that is not there. */
export function notFound(kind: string, name: string): Refused {
  return refused("not_found", {
    reason: `${kind}_not_found`,
    message: `There is no ${kind.replaceAll("_", " ")} ${name}; it may have been deleted.`,
  });
}

/** When a client whose request met a busy or absent store may come again. */
const retryAfterMs = 1_000;

/** The failures of the rooms below that a caller is told. */
type Told =
  | CommandRefused
  | DecryptionFailed
  | DeliveryNotFound
  | EncryptionRequired
  | IdempotencyConflict
  | InvalidBlocker
  | InvalidCursor
  | InvalidDefinition
  | InvalidOption
  | InvalidPayload
  | InvalidResult
  | JobAlreadyCompleted
  | JobExists
  | JobNotEnqueued
  | JobNotFound
  | QueueExists
  | ScheduleDeclared
  | ScheduleExists
  | ScheduleNotFound
  | SignatureInvalid
  | SignatureRequired
  | WebhookNotFound;

/** What a failure of the rooms below means to a caller; `null` when it is not one that a caller is told. */
export function refusalOf(error: unknown): Refused | null {
  if (error instanceof Refused) return error;
  if (isStoreError(error)) return storeRefusal(error);
  return isTaggedError(error) ? (toldRefusal(error as unknown as Told) ?? null) : null;
}

function toldRefusal(error: Told): Refused | undefined {
  const { message } = error;
  switch (error._tag) {
    case "JobNotFound":
      return refused("not_found", { reason: "job_not_found", message });
    case "ScheduleNotFound":
      return refused("not_found", { reason: "schedule_not_found", message });
    case "WebhookNotFound":
      return refused("not_found", { reason: "webhook_not_found", message });
    case "DeliveryNotFound":
      return refused("not_found", { reason: "delivery_not_found", message });
    case "InvalidPayload":
      return invalidPayload(error);
    case "InvalidOption":
      return badArgument("option_invalid", message, error.field);
    case "InvalidCursor":
      return badArgument("cursor_invalid", message, "cursor");
    case "InvalidDefinition":
      return badArgument("manifest_invalid", message, `manifest.${error.field}`);
    case "InvalidResult": {
      const parts = { status: 422, reason: "result_invalid", field: "result", message };
      return refused("invalid_argument", parts);
    }
    case "JobNotEnqueued": {
      const { reason, key, active, queued, limit, existingJobId } = error;
      const details = { key, active, queued, limit, existingJobId };
      return refused("conflict", { reason, message, details });
    }
    case "IdempotencyConflict": {
      const details = { existingJobId: error.existingJobId };
      const parts = { status: 422, reason: "idempotency_key_reused", field: "idempotencyKey" };
      return refused("invalid_argument", { ...parts, message, details });
    }
    case "JobExists":
      return refused("duplicate", { reason: "job_exists", field: "id", message });
    case "QueueExists":
      return refused("duplicate", { reason: "queue_already_exists", field: "queue", message });
    case "ScheduleExists":
      return refused("duplicate", { reason: "schedule_exists", field: "name", message });
    case "ScheduleDeclared":
      return refused("conflict", { reason: "schedule_declared", message });
    case "InvalidBlocker": {
      const details = { blockerId: error.blockerId };
      const parts = { reason: `blocker_${error.reason}`, field: "blockers" };
      return refused("dependency_failed", { ...parts, message, details });
    }
    case "CommandRefused": {
      const details = { command: error.command, state: error.state };
      return refused("conflict", { reason: "state_forbids", message, details });
    }
    case "JobAlreadyCompleted": {
      const details = { state: error.state };
      return refused("conflict", { reason: "already_completed", message, details });
    }
    case "DecryptionFailed":
      return refused("conflict", { reason: error.code, message });
    case "EncryptionRequired":
      return refused("encryption_required", { reason: "encryption_keys_missing", message });
    case "SignatureRequired": {
      const parts = { reason: "signature_missing", field: "signature", message };
      return refused("signature_required", parts);
    }
    case "SignatureInvalid": {
      const parts = { reason: "signature_wrong", field: "signature", message };
      return refused("signature_invalid", parts);
    }
  }
}

function invalidPayload({ message, issues }: InvalidPayload): Refused {
  const field = `payload${issues[0]?.path ?? ""}`;
  const parts = { status: 422, reason: "payload_invalid", field, message };
  return refused("invalid_argument", { ...parts, details: { issues } });
}

function storeRefusal(error: StoreError): Refused {
  const reason = error instanceof StoreBusy ? "store_busy" : "store_unavailable";
  return refused("unavailable", { reason, message: error.message, retryAfterMs });
}
