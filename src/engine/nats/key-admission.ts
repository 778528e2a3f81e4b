/**
 * Asking a key's policy about a new job, as a change to the key's record that needs nothing but what it is given. Where it
 * needs to know more of the log, it leaves the record as it is and says what: so no record waits while somebody looks.
 */
import { type Admission, policyOutcome } from "../../core/admission.js";
import type { EventOf } from "../../core/event.js";
import { evolve } from "../../core/evolve.js";
import type { Job, JobKeyPolicy } from "../../core/job.js";
import {
  admission,
  emptyKey,
  isSamePlace,
  type KeyMember,
  type KeyState,
  promote,
  withMember,
  withOutcome,
  withoutMember,
  withoutPlace,
} from "./key-state.js";
import type { Changed } from "./record-lines.js";

/** A new job, and what is known of those that are under its key. */
export interface KeyQuestion {
  readonly event: EventOf<"created">;
  readonly policy: JobKeyPolicy;
  /** A job that ends with the same event: it does not count, though its place is given back only later. */
  readonly leavingId: string | undefined;
  /** The jobs that were looked up, as the log has them. */
  readonly known: ReadonlyMap<string, Job | null>;
  /** The members that were replaced in the log and may still have a place. */
  readonly replaced: readonly KeyMember[];
  readonly now: number;
}

/** A new job that has its place. */
export interface LetIn {
  readonly step: "let_in";
  readonly created: EventOf<"created">;
  readonly job: Job;
  /** How it stands under its key, and whether another create of the same id had put it there. */
  readonly member: KeyMember;
  readonly isShared: boolean;
  /** The others who got a slot. */
  readonly promoted: readonly KeyMember[];
}

/** What the policy says, or what has to be done before it can. */
export type KeyAnswer =
  | LetIn
  | {
      readonly step: "not_admitted";
      readonly admission: Extract<Admission, { outcome: "rejected" | "coalesced" }>;
    }
  /** The key is full, and these are to be looked up. */
  | { readonly step: "look"; readonly ids: readonly string[] }
  /** The log does not have the job that the answer would name. */
  | { readonly step: "ahead"; readonly member: KeyMember }
  | { readonly step: "replace"; readonly member: KeyMember };

/** Asks about a new job and takes its place if it is let in. */
export function askKey(body: KeyState | null, question: KeyQuestion): Changed<KeyState, KeyAnswer> {
  const { event, policy, leavingId, known, replaced, now } = question;
  const state = body ?? emptyKey(event.service, event.type, policy);
  // Its own place may be there already, when it is created once more.
  const others = withoutMember(state, event.jobId);
  const staying = leavingId === undefined ? others : withoutMember(others, leavingId);
  const ids = idsToKnow(staying, policy);
  if (ids.some((id) => !known.has(id))) return { body, extra: { step: "look", ids } };
  const isRunning = (id: string) => known.get(id)?.state === "active";
  const answer = admission(staying, policy, isRunning, now);
  if (answer.outcome === "rejected" || answer.outcome === "coalesced") {
    const named = memberOf(staying, answer.existingJobId);
    if (named && isAhead(named, known.get(named.id) ?? null, event.service))
      return { body, extra: { step: "ahead", member: named } };
    const told = withOutcome(without(state, replaced), policy, answer, now);
    return { body: told, extra: { step: "not_admitted", admission: answer } };
  }
  if (answer.outcome === "replaced") {
    const oldest = memberOf(staying, answer.replacedJobId);
    const isOut = oldest && replaced.some((member) => isSamePlace(member, oldest));
    if (oldest && !isOut) return { body, extra: { step: "replace", member: oldest } };
  }
  return letIn(withOutcome(without(state, replaced), policy, answer, now), event, answer, now);
}

function letIn(
  state: KeyState,
  event: EventOf<"created">,
  answer: Admission,
  now: number,
): Changed<KeyState, KeyAnswer> {
  const created = { ...event, policy: policyOutcome(answer) };
  const { job } = evolve(null, created);
  if (job === null) throw new Error(`Job ${event.jobId} could not be created.`);
  const shared = sharedPlace(state, job);
  const promotion = promote(
    shared ? renewed(state, shared, now) : withMember(state, job, now),
    now,
  );
  const member = memberOf(promotion.state, job.id);
  if (member === undefined) throw new Error(`Job ${event.jobId} has no place under its key.`);
  const promoted = promotion.promoted.filter(({ id }) => id !== job.id);
  const isShared = shared !== undefined;
  const extra = { step: "let_in", created, job, member, isShared, promoted } as const;
  return { body: promotion.state, extra };
}

/**
 * Whom to look up where a key is full: those with a slot, who may have started, and the first of those who wait, whom an
 * answer may name. All of them are one question to the log, so that it costs nothing to know that the named job exists.
 */
function idsToKnow(
  { members, held }: KeyState,
  { maxActive, maxQueued }: JobKeyPolicy,
): readonly string[] {
  if (members.length + held.length < maxActive + maxQueued) return [];
  const waiting = members.find(({ stands }) => stands === "waits");
  return members
    .filter((member) => member.stands === "slot" || member === waiting)
    .map(({ id }) => id);
}

/** Whether the log does not have a member's run yet, or never will because another service has its id. */
export function isAhead({ run }: KeyMember, job: Job | null, service: string): boolean {
  return job === null || job.service !== service || job.run < run;
}

function memberOf(state: KeyState, id: string | undefined): KeyMember | undefined {
  return state.members.find((member) => member.id === id);
}

function without(state: KeyState, members: readonly KeyMember[]): KeyState {
  return members.reduce(withoutPlace, state);
}

/** The place of a new job, if another create of the same id has taken it, which may even be stored by now. */
function sharedPlace(state: KeyState, job: Job): KeyMember | undefined {
  const member = memberOf(state, job.id);
  return member?.run === job.run && member.token === job.token + 1 ? member : undefined;
}

/** Marks a place as newer, so that whoever took it first, or has judged it, does not take it away. */
function renewed(state: KeyState, member: KeyMember, now: number): KeyState {
  const newer = { ...member, since: Math.max(now, member.since + 1) };
  return { ...state, members: state.members.map((other) => (other === member ? newer : other)) };
}
