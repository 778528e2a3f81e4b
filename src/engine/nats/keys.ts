/**
 * Concurrency keys on records: admission, slots, and the tickets of those who get one.
 */
import type { Admission } from "../../core/admission.js";
import { decide } from "../../core/decide.js";
import type { EventOf, JobEvent } from "../../core/event.js";
import { isEnded, type Job, type JobKeyPolicy } from "../../core/job.js";
import { messageOf, type ReadJob } from "./entry.js";
import { askKey, isAhead, type KeyAnswer, type LetIn } from "./key-admission.js";
import {
  emptyKey,
  type KeyMember,
  type KeyState,
  type Promotion,
  promote,
  withHeld,
  withMember,
  withMoved,
  withoutHeld,
  withoutMember,
  withoutPlace,
} from "./key-state.js";
import type { Log } from "./log.js";
import { casRoundsMax, type Rest, restMs } from "./record-lines.js";
import type { PlacedRecord, Records } from "./records.js";
import { giveUp, moveOn, refuseCreation } from "./refusal.js";
import type { Subjects } from "./subjects.js";

/** For how long a key is remembered under which nobody is. */
const idleKeyMs = 24 * 60 * 60 * 1_000;

/** How often a job is looked for before it is taken for one that does not come, and the longest rest between two looks. */
const looksMax = 20;
const lookRestMaxMs = 100;

/** How often a create waits in vain for somebody's job to come, or to be given up. */
const vainWaitsMax = 5;

/** The record of a key. */
function keyRecordId(service: string, hash: string): string {
  return `key/${service}/${hash}`;
}

/** An ended job, perhaps one that is gone, whose worker may have a place under its key. */
type Placed = Pick<Job, "id" | "service" | "type" | "key">;

/** What became of a new job under its key. */
export type KeyedCreate =
  | {
      readonly outcome: "let_in";
      readonly created: EventOf<"created">;
      /** It has a slot, so that its creation is its ticket. */
      readonly hasSlot: boolean;
      /** To be called when it was stored, when it was not because somebody was faster, and when it can never be. */
      readonly stored: () => Promise<void>;
      readonly refused: (isTakenUnseen?: boolean) => Promise<void>;
      readonly withdraw: () => Promise<void>;
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
  readonly rest: Rest;
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

  /** Whether a job has a slot of its key for its next start, by what is stored, also where a copy does not show it yet. */
  async hasSlot(job: Job): Promise<boolean> {
    if (job.key === undefined) return false;
    const { records } = this.#context;
    const id = keyRecordId(job.service, job.key.hash);
    const seen = await records.get(id);
    // A ticket that is dropped because a copy is behind would be gone.
    return showsSlot(seen, job) || showsSlot(await records.newest(id, seen), job);
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
    const { records, now, log } = this.#context;
    const id = keyRecordId(event.service, policy.hash);
    const replaced: KeyMember[] = [];
    let known: ReadonlyMap<string, Job | null> = new Map();
    let vainWaits = 0;
    for (let round = 0; round < casRoundsMax && vainWaits < vainWaitsMax; round++) {
      const question = { event, policy, leavingId, known, replaced };
      const answer = await records.update<KeyState, KeyAnswer>(
        id,
        (body) => askKey(body, { ...question, now: now() }),
        this.#forgottenAt,
      );
      const seen = known;
      known = new Map();
      switch (answer.step) {
        case "let_in":
          return this.#letIn(answer);
        case "not_admitted":
          return { outcome: "not_admitted", admission: answer.admission };
        case "look": {
          const jobs = await log.loadJobs(answer.ids);
          known = new Map(answer.ids.map((each, index) => [each, jobs[index] ?? null]));
          break;
        }
        case "ahead":
          if (!(await this.#settled(answer.member, event, policy))) vainWaits += 1;
          break;
        case "replace":
          if (!(await this.#replace(answer.member, event))) break;
          replaced.push(answer.member);
          known = seen;
          break;
      }
    }
    throw records.busy(`Others changed who is under the key ${policy.key}`);
  }

  #letIn({ created, job, member, isShared, promoted }: LetIn): KeyedCreate {
    const hasSlot = member.stands === "slot";
    return {
      outcome: "let_in",
      created,
      hasSlot,
      stored: async () => {
        await this.#ticketAll(promoted);
        // Somebody may have given it a slot before it was in the log, where no ticket could be written.
        if (!hasSlot && job.state !== "blocked" && (await this.#hasSlotByNow(job)))
          await this.#ticketAll([{ id: job.id }]);
      },
      refused: (isTakenUnseen = false) => this.#refused(job, isTakenUnseen),
      withdraw: async () => {
        // Another create of the same id that came later has renewed the place, and one that came before may be stored.
        if (!isShared) await this.change(job, (state) => withoutPlace(state, member));
        await this.#ticketAll(promoted);
      },
    };
  }

  /** The same as `hasSlot`, in line with others who ask or change something, so that one read answers all. */
  #hasSlotByNow({ id, service, key, token }: Job): Promise<boolean> {
    return this.#context.records.update<KeyState, boolean>(
      keyRecordId(service, key?.hash ?? ""),
      (body) => {
        const own = body?.members.find((member) => member.id === id);
        return { body, extra: own?.stands === "slot" && own.token === token + 1 };
      },
    );
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
  async free(job: Placed, token: number): Promise<void> {
    await this.change(job, (state) => withoutHeld(state, job.id, token));
  }

  /** The worker of an ended job still holds it. */
  async keepHolding(job: Placed, token: number, until: number): Promise<void> {
    await this.change(job, (state) => {
      const slot = state.held.find((held) => held.id === job.id && held.token === token);
      return slot && slot.until > this.#context.now() ? withHeld(state, { ...slot, until }) : state;
    });
  }

  /** Gives out free slots of a key to those whose time has come. Gives when the next slot of an ended job lapses. */
  async tend(service: string, hash: string): Promise<number | null> {
    const { records, now } = this.#context;
    const { state, promoted } = await records.update<KeyState, Partial<Promotion>>(
      keyRecordId(service, hash),
      (body) => {
        if (body === null) return { body, extra: {} };
        const promotion = promote(body, now());
        return { body: promotion.state, extra: promotion };
      },
      this.#forgottenAt,
    );
    await this.#ticketAll(promoted ?? []);
    const lapses = state?.held.map(({ until }) => until) ?? [];
    return lapses.length > 0 ? Math.min(...lapses) : null;
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
      const consumer = subjects.consumerOf(job);
      const { outcome } = await log.append({ jobId: id, message, consumer });
      if (outcome === "stored") return hint("ready", job.service);
    }
  }

  /** A create that was refused leaves its place, unless it is that of another create of the same id. */
  async #refused(job: Job, isTakenUnseen: boolean): Promise<void> {
    const found = (await this.#context.log.load(job.id)).job;
    const isItsOwn = found?.key?.hash === job.key?.hash && found?.service === job.service;
    if (isTakenUnseen || (found && !isItsOwn))
      await this.change(job, (state) => withoutMember(state, job.id, job.run));
  }

  /** A member's job as the log has it. One that is ahead of the log is waited for, as long as it may be on its way. */
  async #whenCome(member: KeyMember, service: string): Promise<ReadJob> {
    const { log, rest } = this.#context;
    for (let look = 1; ; look++) {
      const logged = await log.load(member.id);
      const { job } = logged;
      const isElsewhere = job !== null && job.service !== service;
      if (look === looksMax || isElsewhere || !isAhead(member, job, service)) return logged;
      await rest(restMs(look, lookRestMaxMs));
    }
  }

  /**
   * Waits for a job that others are to be told of. If it does not come, it is kept from coming and leaves its place. Gives
   * whether either is so.
   */
  async #settled(
    member: KeyMember,
    { service, type }: EventOf<"created">,
    key: JobKeyPolicy,
  ): Promise<boolean> {
    const logged = await this.#whenCome(member, service);
    const { job } = logged;
    if (!isAhead(member, job, service)) return true;
    // Where another service has the id, this job never comes.
    const isElsewhere = job !== null && job.service !== service;
    if (!isElsewhere && !(await giveUp(this.#context, service, member.id, logged))) return false;
    const under = { service, type, key };
    // Whoever was refused may have come back to its place by now, and be stored.
    await this.change(under, (state) => withoutPlace(state, member));
    return true;
  }

  /**
   * Skips the job that a new one replaces. Gives whether it is out of the way. One that is ahead of the log is waited
   * for, and if it does not come, it is kept from coming.
   */
  async #replace(member: KeyMember, replacement: EventOf<"created">): Promise<boolean> {
    const { log, subjects, now, hint } = this.#context;
    const { service } = replacement;
    const { job, lastSeq } = await this.#whenCome(member, service);
    if (job === null) return refuseCreation(this.#context, service, member.id, lastSeq);
    if (job.service !== service) return true;
    if (isAhead(member, job, service)) return moveOn(this.#context, job, lastSeq);
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

/** Whether a key's record has a slot for a job's next start. */
function showsSlot({ record }: PlacedRecord, job: Job): boolean {
  const state = (record?.body ?? null) as unknown as KeyState | null;
  const isItsOwn = ({ id, stands, token }: KeyMember) =>
    id === job.id && stands === "slot" && token === job.token + 1;
  return state?.members.some(isItsOwn) === true;
}

/** Whether a lapse lets another job take over a key. */
function isTakeover(event: JobEvent): boolean {
  if (!event.actor.startsWith("keeper:")) return false;
  if (event.name === "stale") return true;
  return (event.name === "retry" || event.name === "dead") && event.error.reason === "orphaned";
}
