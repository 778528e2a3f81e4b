/**
 * Concurrency keys on records: admission, slots, and the tickets of those who get one.
 */
import { type Admission, policyOutcome } from "../../core/admission.js";
import { decide } from "../../core/decide.js";
import type { EventOf, JobEvent } from "../../core/event.js";
import { evolve } from "../../core/evolve.js";
import { isEnded, type Job, type JobKeyPolicy } from "../../core/job.js";
import { type LoggedJob, messageOf } from "./entry.js";
import {
  admission,
  emptyKey,
  type KeyMember,
  type KeyState,
  promote,
  withHeld,
  withMember,
  withMoved,
  withOutcome,
  withoutHeld,
  withoutMember,
} from "./key-state.js";
import type { Log } from "./log.js";
import { casRoundsMax, type PlacedRecord, type Records } from "./records.js";
import { moveOn, refuseCreation } from "./refusal.js";
import type { Subjects } from "./subjects.js";

/** For how long a key is remembered under which nobody is. */
const idleKeyMs = 24 * 60 * 60 * 1_000;

/** How often a job that is to be replaced is looked for before it is taken for one that does not come. */
const looksMax = 20;

/** The record of a key. */
function keyRecordId(service: string, hash: string): string {
  return `key/${service}/${hash}`;
}

/** What became of a new job under its key. */
export type KeyedCreate =
  | {
      readonly outcome: "let_in";
      readonly created: EventOf<"created">;
      /** It has a slot, so that its creation is its ticket. */
      readonly hasSlot: boolean;
      /** To be called when it was stored, and when it was not. */
      readonly stored: () => Promise<void>;
      readonly refused: (isTakenUnseen?: boolean) => Promise<void>;
    }
  | {
      readonly outcome: "not_admitted";
      readonly admission: Extract<Admission, { outcome: "rejected" | "coalesced" }>;
    };

/** What the keys need of the engine. */
export interface KeysContext {
  readonly records: Records;
  readonly log: Log;
  readonly subjects: Subjects;
  readonly now: () => number;
  readonly newEventId: () => string;
  /** The name under which this process writes what follows from what others did. */
  readonly actor: JobEvent["actor"];
  readonly hint: (topic: "ready" | "ended", service: string) => void;
}

/** The keys of a deployment. */
export class Keys {
  readonly #context: KeysContext;
  /** Creates that have skipped a job, and did not get its place because somebody was faster. */
  readonly #skipping = new WeakSet<EventOf<"created">>();

  constructor(context: KeysContext) {
    this.#context = context;
  }

  /** The state of a key as it is now. */
  async state(service: string, hash: string): Promise<KeyState | null> {
    const { record } = await this.#context.records.get(keyRecordId(service, hash));
    return (record?.body ?? null) as unknown as KeyState | null;
  }

  /** The state of a key by its hash alone. */
  async find(hash: string): Promise<KeyState | null> {
    const record = await this.#context.records.find("key", hash);
    return (record?.body ?? null) as unknown as KeyState | null;
  }

  /** Whether a job has a slot of its key for its next start. */
  async hasSlot(job: Job): Promise<boolean> {
    const state = job.key && (await this.state(job.service, job.key.hash));
    return (
      state?.members.some(
        ({ id, stands, token }) => id === job.id && stands === "slot" && token === job.token + 1,
      ) === true
    );
  }

  /**
   * Asks the policy of a key about a new job and takes its place, before its event is stored. A job that ends with
   * the same event does not count, though its place is given back only later.
   */
  async admit(
    event: EventOf<"created">,
    policy: JobKeyPolicy,
    leavingId?: string,
  ): Promise<KeyedCreate> {
    const { records, now } = this.#context;
    const id = keyRecordId(event.service, policy.hash);
    for (let round = 0; round < casRoundsMax; round++) {
      const seen = await records.get(id);
      let state = stateOf(seen, event, policy);
      // Its own place may be there already, when it is created once more.
      const others = withoutMember(state, event.jobId);
      const staying = leavingId === undefined ? others : withoutMember(others, leavingId);
      const running = await this.#running(staying, policy);
      const answer = admission(staying, policy, (member) => running.has(member), now());
      state = withOutcome(state, policy, answer, now());
      if (answer.outcome === "rejected" || answer.outcome === "coalesced") {
        if (await records.put(id, seen, state as never))
          return { outcome: "not_admitted", admission: answer };
        continue;
      }
      if (answer.outcome === "replaced") {
        const member = state.members.find(({ id }) => id === answer.replacedJobId);
        if (member && !(await this.#replace(member, event))) continue;
        state = withoutMember(state, answer.replacedJobId);
      }
      const created = { ...event, policy: policyOutcome(answer) };
      const { job } = evolve(null, created);
      if (job === null) throw new Error(`Job ${event.jobId} could not be created.`);
      const promotion = promote(placed(state, job, now()), now());
      if (!(await records.put(id, seen, promotion.state as never))) continue;
      const promoted = promotion.promoted.filter((member) => member.id !== job.id);
      const hasSlot = promotion.state.members.some(
        (member) => member.id === job.id && member.stands === "slot",
      );
      return {
        outcome: "let_in",
        created,
        hasSlot,
        stored: async () => {
          await this.#ticketAll(promoted);
          // Somebody may have given it a slot before it was in the log, where no ticket could be written.
          if (!hasSlot && job.state !== "blocked" && (await this.hasSlot(job)))
            await this.#ticketAll([{ id: job.id }]);
        },
        refused: (isTakenUnseen = false) => this.#refused(job, isTakenUnseen),
      };
    }
    throw new Error(`Key ${policy.key} was changed by others ${casRoundsMax} times in a row.`);
  }

  /**
   * Takes a place for a job that comes back by hand, before its event is stored. Whoever ended it may not have given up its
   * slot yet, which is held as long as its worker may run.
   */
  async comeBack(job: Job, mayRunUntil: number | null): Promise<void> {
    await this.change(job, (state) => {
      const left = state.members.find(({ id, run }) => id === job.id && run < job.run);
      const isHeld = left?.stands === "slot" && mayRunUntil !== null;
      const slot = { id: job.id, token: left?.token ?? 0, until: mayRunUntil ?? 0 };
      return withMember(isHeld ? withHeld(state, slot) : state, job, this.#context.now());
    });
  }

  /** Puts a waiting job under its key that should be there and is not. */
  async join(job: Job): Promise<void> {
    await this.change(job, (state) => withMoved(state, job, this.#context.now()));
  }

  /** Moves a job under its key as an event has moved it, and gives out the slots that came free. */
  async move(
    before: Job,
    after: Job | null,
    event: JobEvent,
    heldUntil: number | null,
  ): Promise<void> {
    const newestId = event.name === "completed" ? event.continuation?.jobId : undefined;
    const left = (state: KeyState) => {
      const taken = isTakeover(event) ? { ...state, takeovers: state.takeovers + 1 } : state;
      if (after !== null && !isEnded(after.state))
        return after.state === "active" ? taken : withMoved(taken, after, this.#context.now());
      const others = withoutMember(taken, before.id, before.run);
      if (heldUntil === null) return others;
      return withHeld(others, { id: before.id, token: before.token, until: heldUntil });
    };
    const promoted = await this.change(before, left, newestId);
    // One that comes back may have got its slot before it was in the log, where no ticket could be written.
    const cameBack = event.name === "retried" && !promoted.some(({ id }) => id === before.id);
    if (after && cameBack && (await this.hasSlot(after))) await this.#ticketAll([after]);
  }

  /** The worker of an ended job has let go of it. */
  async free(job: Job, token: number): Promise<void> {
    await this.change(job, (state) => withoutHeld(state, job.id, token));
  }

  /** The worker of an ended job still holds it. */
  async keepHolding(job: Job, token: number, until: number): Promise<void> {
    await this.change(job, (state) => {
      const slot = state.held.find((held) => held.id === job.id && held.token === token);
      return slot && slot.until > this.#context.now() ? withHeld(state, { ...slot, until }) : state;
    });
  }

  /** Gives out free slots of a key to those whose time has come. */
  async tend(service: string, hash: string): Promise<void> {
    const { records, now } = this.#context;
    const promoted = await records.update<KeyState, readonly KeyMember[]>(
      keyRecordId(service, hash),
      (body) => {
        if (body === null) return { body, extra: [] };
        const promotion = promote(body, now());
        return { body: promotion.state, extra: promotion.promoted };
      },
      this.#forgottenAt,
    );
    await this.#ticketAll(promoted);
  }

  /** A key under which nobody is may be forgotten, with what its policy did last. */
  readonly #forgottenAt = ({ members, held }: KeyState): number | undefined =>
    members.length + held.length === 0 ? this.#context.now() + idleKeyMs : undefined;

  /** Changes the state of a job's key, gives free slots to those who wait, and writes their tickets. */
  async change(
    job: Pick<Job, "service" | "type" | "key">,
    move: (state: KeyState) => KeyState,
    newestId?: string,
  ): Promise<readonly KeyMember[]> {
    const policy = job.key;
    if (policy === undefined) return [];
    const { records, now } = this.#context;
    const id = keyRecordId(job.service, policy.hash);
    const promoted = await records.update<KeyState, readonly KeyMember[]>(
      id,
      (body) => {
        const moved = move(body ?? emptyKey(job.service, job.type, policy));
        const promotion = promote(moved, now(), newestId);
        return { body: promotion.state, extra: promotion.promoted };
      },
      this.#forgottenAt,
    );
    await this.#ticketAll(promoted);
    return promoted;
  }

  /** Writes tickets for jobs that have a slot. */
  async #ticketAll(members: readonly { readonly id: string }[]): Promise<void> {
    await Promise.all(members.map(({ id }) => this.ticket(id, "slot_freed")));
  }

  /** Writes a ticket for a job that waits, so that it is offered to workers. */
  async ticket(id: string, cause: "due" | "slot_freed" | "swept"): Promise<void> {
    const { log, subjects, newEventId, actor, now, hint } = this.#context;
    for (let round = 0; round < casRoundsMax; round++) {
      const { job, lastSeq } = await log.load(id);
      const command = { command: "ready", eventId: newEventId(), actor, cause } as const;
      const decision = decide(job, command, now());
      if (!job || !decision.ok) return;
      const expect = { filter: subjects.jobFilter(job.service, job.id), seq: lastSeq };
      const message = messageOf(subjects.ticket(decision.event, job), decision.event, expect);
      const { outcome } = await log.append({ jobId: id, message });
      if (outcome === "stored") return hint("ready", job.service);
    }
  }

  /** Which members have started. Only asked where the key is full. */
  async #running(
    state: KeyState,
    { maxActive, maxQueued }: JobKeyPolicy,
  ): Promise<ReadonlySet<string>> {
    const isRoomy = state.members.length + state.held.length < maxActive + maxQueued;
    if (isRoomy) return new Set();
    const slotted = state.members.filter(({ stands }) => stands === "slot");
    const jobs = await this.#context.log.loadJobs(slotted.map(({ id }) => id));
    const started = slotted.filter((_, index) => jobs[index]?.state === "active");
    return new Set(started.map(({ id }) => id));
  }

  /** A create that was refused leaves its place, unless it is that of another create of the same id. */
  async #refused(job: Job, isTakenUnseen: boolean): Promise<void> {
    const found = (await this.#context.log.load(job.id)).job;
    const isItsOwn = found?.key?.hash === job.key?.hash && found?.service === job.service;
    if (isTakenUnseen || (found && !isItsOwn))
      await this.change(job, (state) => withoutMember(state, job.id, job.run));
  }

  /**
   * Skips the job that a new one replaces. Gives whether it is out of the way. One that is ahead of the log is waited
   * for, and if it does not come, it is kept from coming.
   */
  async #replace(member: KeyMember, replacement: EventOf<"created">): Promise<boolean> {
    const { log, subjects, now, hint } = this.#context;
    const { service } = replacement;
    let logged = await log.load(member.id);
    for (let look = 1; look < looksMax && isAhead(member, logged); look++)
      logged = await log.load(member.id);
    const { job, lastSeq } = logged;
    if (job === null) return refuseCreation(this.#context, service, member.id, lastSeq);
    if (job.service !== service) return true;
    if (isAhead(member, logged)) return moveOn(this.#context, job, lastSeq);
    if (isEnded(job.state)) return true;
    if (job.state === "active") return false;
    const { id, actor, jobId } = replacement;
    // The server takes a second event of the same id for the first one sent again.
    const isFirst = !this.#skipping.has(replacement);
    this.#skipping.add(replacement);
    const command = {
      command: "skip",
      eventId: isFirst ? `${id}:skipped` : this.#context.newEventId(),
      actor,
      reason: "replaced",
      replacedBy: jobId,
    } as const;
    const decision = decide(job, command, now());
    if (!decision.ok) return false;
    const expect = { filter: subjects.jobFilter(job.service, job.id), seq: lastSeq };
    const message = messageOf(subjects.event(decision.event), decision.event, expect);
    const { outcome } = await log.append({ jobId: job.id, message });
    if (outcome === "stored") hint("ended", job.service);
    return outcome === "stored";
  }
}

/** Whether the log does not have a member's run yet. */
function isAhead({ run }: KeyMember, { job }: LoggedJob): boolean {
  return job === null || job.run < run;
}

/** Puts a new job under its key. Another create of the same id may have done so, and even be stored by now. */
function placed(state: KeyState, job: Job, now: number): KeyState {
  const member = state.members.find(({ id }) => id === job.id);
  const isThere = member?.run === job.run && member.token === job.token + 1;
  return isThere ? state : withMember(state, job, now);
}

function stateOf(seen: PlacedRecord, event: JobEvent, policy: JobKeyPolicy): KeyState {
  const state = seen.record?.body as unknown as KeyState | undefined;
  return state ?? emptyKey(event.service, event.type, policy);
}

/** Whether a lapse lets another job take over a key. */
function isTakeover(event: JobEvent): boolean {
  if (!event.actor.startsWith("keeper:")) return false;
  if (event.name === "stale") return true;
  return (event.name === "retry" || event.name === "dead") && event.error.reason === "orphaned";
}
