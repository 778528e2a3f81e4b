/**
 * What a try came to, as telemetry tells it. A try that was asked to stop and threw is told by the reason that it was given.
 */
import type { Tried } from "../client/telemetry.js";
import type { AttemptOutcome } from "./attempt.js";
import type { Hold } from "./hold.js";

/** How a try went, and why it failed if it did. */
export function triedOf({ aborted }: Hold, outcome: AttemptOutcome): Tried {
  const { kind } = outcome;
  if (aborted?.reason === "timeout")
    return { outcome: kind, error: { reason: "timeout", message: aborted.message } };
  if (outcome.kind === "threw" || outcome.kind === "terminated") {
    const { message, name, reason } = outcome.error;
    return { outcome: kind, error: { message, reason: aborted?.reason ?? name ?? reason } };
  }
  return { outcome: kind };
}
