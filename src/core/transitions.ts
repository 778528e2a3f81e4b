/**
 * The state machine as data: which event is legal in which state, where it leads,
 * whether it advances the version and whether it must come under the current token.
 * `evolve` obeys this table and `docs/state-machine.md` is checked against it.
 */
import type { EventName } from "./event.js";
import { endedStates, type JobState, jobStates } from "./job.js";

/** One row of the state machine. */
export interface Transition {
  /** The states in which the event is legal; `null` is a job that does not exist. */
  readonly from: readonly (JobState | null)[];
  /** The state it leads to; `same` keeps it, `gone` removes the job, a list leaves the choice to the event. */
  readonly to: JobState | readonly JobState[] | "same" | "gone";
  /** Notes and tickets never advance the version, so that they disturb nobody's compare. */
  readonly kind: "change" | "note" | "ticket";
  /** `always`: only the holder of the current token causes it; `optional`: checked where the event names one. */
  readonly token: "always" | "optional" | "none";
  readonly meaning: string;
}

const open = ["pending", "blocked", "retry", "active"] as const;

export const transitions: { readonly [Name in EventName]: Transition } = {
  created: {
    from: [null],
    to: ["pending", "blocked"],
    kind: "change",
    token: "none",
    meaning: "the job exists, with its full payload and context",
  },
  ready: {
    from: ["pending", "retry"],
    to: "same",
    kind: "ticket",
    token: "none",
    meaning: "a new ticket to claim it",
  },
  unblocked: {
    from: ["blocked"],
    to: "pending",
    kind: "change",
    token: "none",
    meaning: "every blocker has ended well",
  },
  unreachable: {
    from: ["blocked"],
    to: "unreachable",
    kind: "change",
    token: "none",
    meaning: "a blocker ended badly",
  },
  acknowledged: {
    from: ["pending", "active"],
    to: "same",
    kind: "note",
    token: "none",
    meaning: "an agent has it",
  },
  started: {
    from: ["pending", "retry"],
    to: "active",
    kind: "change",
    token: "none",
    meaning: "a worker holds it under a fresh token",
  },
  progress: {
    from: ["active"],
    to: "same",
    kind: "note",
    token: "always",
    meaning: "how far the handler has come",
  },
  logged: {
    from: ["active"],
    to: "same",
    kind: "note",
    token: "always",
    meaning: "lines that the handler logged",
  },
  emitted: {
    from: ["active"],
    to: "same",
    kind: "note",
    token: "always",
    meaning: "an event of the handler's own",
  },
  heartbeat: {
    from: ["active"],
    to: "same",
    kind: "note",
    token: "always",
    meaning: "the handler says that it lives",
  },
  retry: {
    from: ["active"],
    to: "retry",
    kind: "change",
    token: "always",
    meaning: "the try failed and another follows",
  },
  released: {
    from: ["active"],
    to: "pending",
    kind: "change",
    token: "always",
    meaning: "given back without spending a try",
  },
  completed: {
    from: open,
    to: "completed",
    kind: "change",
    token: "optional",
    meaning: "done, by a worker or by nobody",
  },
  failed: {
    from: open,
    to: "failed",
    kind: "change",
    token: "optional",
    meaning: "retrying cannot help",
  },
  cancelRequested: {
    from: ["active"],
    to: "same",
    kind: "change",
    token: "none",
    meaning: "the handler is asked to stop",
  },
  cancelled: {
    from: open,
    to: "cancelled",
    kind: "change",
    token: "optional",
    meaning: "stopped on request",
  },
  expired: {
    from: open,
    to: "expired",
    kind: "change",
    token: "none",
    meaning: "its deadline has come",
  },
  skipped: {
    from: open,
    to: "skipped",
    kind: "change",
    token: "optional",
    meaning: "replaced, refused late or unsupported",
  },
  stale: {
    from: ["active"],
    to: "stale",
    kind: "change",
    token: "always",
    meaning: "its keyed lease was lost",
  },
  keyBlocked: {
    from: ["active"],
    to: "same",
    kind: "change",
    token: "always",
    meaning: "its keyed lease was lost and the key stays taken",
  },
  staleCompletionIgnored: {
    from: jobStates,
    to: "same",
    kind: "note",
    token: "none",
    meaning: "an outcome under an old token, recorded and ignored",
  },
  hookFailed: {
    from: jobStates,
    to: "same",
    kind: "note",
    token: "none",
    meaning: "a hook threw or took too long, recorded and nothing else",
  },
  dead: {
    from: ["retry", "active", "pending"],
    to: "dead",
    kind: "change",
    token: "optional",
    meaning: "retrying did not help",
  },
  retried: {
    from: [
      "failed",
      "cancelled",
      "expired",
      "skipped",
      "stale",
      "unreachable",
      "dead",
      "completed",
    ],
    to: ["pending", "blocked"],
    kind: "change",
    token: "none",
    meaning:
      "a new run, by hand; with blockers and never started, blocked again; a completed job only when forced",
  },
  dismissed: {
    from: ["dead"],
    to: "dismissed",
    kind: "change",
    token: "none",
    meaning: "an admin has seen it",
  },
  deleted: {
    from: [null, ...jobStates],
    to: "gone",
    kind: "change",
    token: "none",
    meaning: "removed by hand, by retention, or a create that never completed",
  },
};

/** Whether an event advances the job's version. */
export function advancesVersion(name: EventName): boolean {
  return transitions[name].kind === "change";
}

/** The states that a manual retry may leave without force. */
export const retryableStates: readonly JobState[] = endedStates.filter(
  (s) => s !== "completed" && s !== "dismissed",
);
