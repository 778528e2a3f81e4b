/**
 * The state of a concurrency key as a record, and the pure moves between two of its versions. The record is written
 * before the event that needs it and outlives the event that frees it, so that it never counts too few.
 */
import { type Admission, admit, mayTakeSlot, policyOutcome } from "../../core/admission.js";
import type { Job, JobKeyPolicy, PolicyOutcome, WhenFull } from "../../core/job.js";
import { compareOrder } from "../../core/order.js";

/** An unfinished job under a key. */
export interface KeyMember {
  readonly id: string;
  readonly createdAt: number;
  readonly priority: number;
  readonly runAt: number;
  readonly maxActive: number;
  /** `slot`: it runs or may be claimed; `waits`: for its time or a slot; `blocked`: for other jobs. */
  readonly stands: "slot" | "waits" | "blocked";
  /** The run that it stands here in, and the token that its slot is for. */
  readonly run: number;
  readonly token: number;
  /** When it was put here, so that one whose job never came can be told. */
  readonly since: number;
}

/** A slot of a job that was ended from outside: held until its worker confirms or its lease lapses. */
export interface HeldSlot {
  readonly id: string;
  readonly token: number;
  readonly until: number;
}

/** Who is under a key. */
export interface KeyState {
  readonly service: string;
  readonly type: string;
  readonly key: string;
  readonly hash: string;
  readonly maxActive: number;
  readonly maxQueued: number;
  readonly whenFull: WhenFull;
  /** Oldest first. */
  readonly members: readonly KeyMember[];
  readonly held: readonly HeldSlot[];
  readonly takeovers: number;
  readonly lastOutcome: (PolicyOutcome & { readonly at: number }) | null;
}

/** The state of a key that nobody was under yet. */
export function emptyKey(service: string, type: string, policy: JobKeyPolicy): KeyState {
  const { key, hash, maxActive, maxQueued, whenFull } = policy;
  const nobody = { members: [], held: [], takeovers: 0, lastOutcome: null };
  return { service, type, key, hash, maxActive, maxQueued, whenFull, ...nobody };
}

/** How a job stands under its key before it has a slot. */
function memberOf(job: Job, now: number): KeyMember {
  return {
    id: job.id,
    createdAt: job.createdAt,
    priority: job.priority,
    runAt: job.runAt,
    maxActive: job.key?.maxActive ?? 1,
    stands: job.state === "blocked" ? "blocked" : "waits",
    run: job.run,
    token: job.token + 1,
    since: now,
  };
}

/** The slots taken: by members, and by ended jobs whose worker has not confirmed. */
function slotsTaken(state: KeyState, now: number): number {
  const held = state.held.filter(({ until }) => until > now).length;
  return held + state.members.filter(({ stands }) => stands === "slot").length;
}

/** What the key's policy says to a new job. `isRunning` tells of members with a slot whether they have started. */
export function admission(
  state: KeyState,
  policy: JobKeyPolicy,
  isRunning: (id: string) => boolean,
  now: number,
): Admission {
  const held = state.held.filter(({ until }) => until > now).length;
  const queued = state.members.find(({ id, stands }) => stands !== "blocked" && !isRunning(id));
  const running = state.members.find(({ id }) => isRunning(id));
  return admit(policy, {
    occupied: state.members.length + held,
    active: slotsTaken(state, now),
    ...(queued && { oldestQueued: queued.id }),
    ...(running && { running: running.id }),
  });
}

/** Remembers what the policy did, and the limits that it did it under. */
export function withOutcome(
  state: KeyState,
  policy: JobKeyPolicy,
  answer: Admission,
  now: number,
): KeyState {
  const { maxActive, maxQueued, whenFull } = policy;
  const lastOutcome = { ...policyOutcome(answer), at: now };
  return { ...state, maxActive, maxQueued, whenFull, lastOutcome };
}

/** Puts a job under the key. One that is there already keeps its place, and one that came back is as old as it ever was. */
export function withMember(state: KeyState, job: Job, now: number): KeyState {
  const member = memberOf(job, now);
  if (state.members.some(({ id }) => id === job.id)) {
    // It is told from the place before, also if the clock stands still.
    const renewed = ({ since }: KeyMember) => ({ ...member, since: Math.max(now, since + 1) });
    const members = state.members.map((other) => (other.id === job.id ? renewed(other) : other));
    return { ...state, members };
  }
  const isYounger = ({ createdAt, id }: KeyMember) =>
    createdAt > job.createdAt || (createdAt === job.createdAt && job.run > 1 && id > job.id);
  const place = state.members.findIndex(isYounger);
  const members = [...state.members];
  members.splice(place === -1 ? members.length : place, 0, member);
  return { ...state, members };
}

/** Whether a member stands for a waiting job as it is now, or as it became later. */
export function isCurrent(member: KeyMember, job: Job): boolean {
  if (member.run !== job.run) return member.run > job.run;
  if (member.token !== job.token + 1) return member.token > job.token + 1;
  return member.stands !== "blocked" || job.state === "blocked";
}

/** Moves a job to where it stands now, unless somebody has done so: what it has got since then stays its own. */
export function withMoved(state: KeyState, job: Job, now: number): KeyState {
  const member = state.members.find(({ id }) => id === job.id);
  return member && isCurrent(member, job) ? state : withMember(state, job, now);
}

/** Takes a job from under the key; one that has come back in a later run stays. */
export function withoutMember(state: KeyState, jobId: string, run?: number): KeyState {
  const leaves = (member: KeyMember) =>
    member.id === jobId && (run === undefined || member.run <= run);
  if (!state.members.some(leaves)) return state;
  return { ...state, members: state.members.filter((member) => !leaves(member)) };
}

/** Whether two are the same place: one that was renewed in between is another, because somebody counts on it. */
export function isSamePlace(one: KeyMember, other: KeyMember): boolean {
  const isOfOneStart = one.id === other.id && one.run === other.run && one.token === other.token;
  return isOfOneStart && one.since === other.since;
}

/** Takes a place away that was judged as it was seen; one that was renewed since then stays. */
export function withoutPlace(state: KeyState, seen: KeyMember): KeyState {
  const members = state.members.filter((member) => !isSamePlace(member, seen));
  return members.length === state.members.length ? state : { ...state, members };
}

/** Keeps the slot of an ended job. */
export function withHeld(state: KeyState, slot: HeldSlot): KeyState {
  const others = state.held.filter(({ id, token }) => id !== slot.id || token !== slot.token);
  return { ...state, held: [...others, slot] };
}

/** Gives the slot of an ended job back. */
export function withoutHeld(state: KeyState, jobId: string, token: number): KeyState {
  const held = state.held.filter((slot) => slot.id !== jobId || slot.token !== token);
  return held.length === state.held.length ? state : { ...state, held };
}

/** A state after free slots were given out, and who got one. */
export interface Promotion {
  readonly state: KeyState;
  readonly promoted: readonly KeyMember[];
}

/**
 * Gives free slots to those who wait and whose time has come, in the order of claims, each by its own limit. A job that
 * was created by what freed the slot comes after all who waited for it.
 */
export function promote(before: KeyState, now: number, newestId?: string): Promotion {
  let state = before.held.some(({ until }) => until <= now)
    ? { ...before, held: before.held.filter(({ until }) => until > now) }
    : before;
  const promoted: KeyMember[] = [];
  const line = state.members
    .filter(({ stands, runAt }) => stands === "waits" && runAt <= now)
    .sort((a, b) => Number(a.id === newestId) - Number(b.id === newestId) || compareOrder(a, b));
  for (const member of line) {
    // While its own limit keeps the first in line waiting, nobody overtakes it.
    if (!mayTakeSlot(member.maxActive, slotsTaken(state, now))) break;
    const slotted = { ...member, stands: "slot" } as const;
    const members = state.members.map((other) => (other.id === member.id ? slotted : other));
    state = { ...state, members };
    promoted.push(slotted);
  }
  return { state, promoted };
}
