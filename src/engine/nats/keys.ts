/**
 * Concurrency keys on records: admission, slots, and the tickets of those who get one.
 */
import { type Admission, policyOutcome } from "../../core/admission.js";
import { decide } from "../../core/decide.js";
import type { EventOf, JobEvent } from "../../core/event.js";
import { evolve } from "../../core/evolve.js";
import { isEnded, type Job, type JobKeyPolicy } from "../../core/job.js";
import { messageOf } from "./entry.js";
import {
  admission,
  emptyKey,
  type KeyMember,
  type KeyState,
  promote,
  withHeld,
  withMember,
  withOutcome,
  withoutHeld,
  withoutMember,
} from "./key-state.js";
import type { Log } from "./log.js";
import { casRoundsMax, type PlacedRecord, type Records } from "./records.js";
import type { Subjects } from "./subjects.js";

/** How long a place in a key may be ahead of the log before it is taken for one that never comes. */
const aheadMaxMs = 30_000;

/** The record of a key. */
export function keyRecordId(service: string, hash: string): string {
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
      readonly refused: () => Promise<void>;
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

  constructor(context: KeysContext) {
    this.#context = context;
  }

  /** The state of a key as it is now. */
  async state(service: string, hash: string): Promise<KeyState | null> {
    const { record } = await this.#context.records.get(keyRecordId(service, hash));
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

  /** Asks the policy of a key about a new job and takes its place, before its event is stored. */
  async admit(event: EventOf<"created">, policy: JobKeyPolicy): Promise<KeyedCreate> {
    const { records, now } = this.#context;
    const id = keyRecordId(event.service, policy.hash);
    for (let round = 0; round < casRoundsMax; round++) {
      const seen = await records.get(id);
      let state = stateOf(seen, event, policy);
      const running = await this.#running(state, policy);
      const ghost = running.ghosts[0];
      if (ghost !== undefined) {
        await this.#forgetGhost(event.service, policy, ghost);
        continue;
      }
      const answer = admission(state, policy, (member) => running.ids.has(member), now());
      state = withOutcome(state, policy, answer, now());
      if (answer.outcome === "rejected" || answer.outcome === "coalesced") {
        if (await records.put(id, seen, state as never))
          return { outcome: "not_admitted", admission: answer };
        continue;
      }
      if (answer.outcome === "replaced") {
        if (!(await this.#replace(answer.replacedJobId, event))) continue;
        state = withoutMember(state, answer.replacedJobId);
      }
      const created = { ...event, policy: policyOutcome(answer) };
      const { job } = evolve(null, created);
      if (job === null) throw new Error(`Job ${event.jobId} could not be created.`);
      const promotion = promote(withMember(state, job, now()), now());
      if (!(await records.put(id, seen, promotion.state as never))) continue;
      const others = promotion.promoted.filter((member) => member.id !== job.id);
      const hasSlot = others.length < promotion.promoted.length;
      return {
        outcome: "let_in",
        created,
        hasSlot,
        stored: async () => {
          await this.#ticketAll(others);
          // Somebody may have given it a slot before it was in the log, where no ticket could be written.
          if (!hasSlot && job.state !== "blocked" && (await this.hasSlot(job)))
            await this.#ticketAll([{ id: job.id }]);
        },
        refused: () => this.change(job, (before) => withoutMember(before, job.id)),
      };
    }
    throw new Error(`Key ${policy.key} was changed by others ${casRoundsMax} times in a row.`);
  }

  /** Takes a place for a job that comes back by hand, before its event is stored. */
  async comeBack(job: Job): Promise<void> {
    await this.change(job, (state) => withMember(state, job, this.#context.now()));
  }

  /** Moves a job under its key as an event has moved it, and gives out the slots that came free. */
  async move(
    before: Job,
    after: Job | null,
    event: JobEvent,
    heldUntil: number | null,
  ): Promise<void> {
    await this.change(before, (state) => {
      const taken = isTakeover(event) ? { ...state, takeovers: state.takeovers + 1 } : state;
      if (after !== null && !isEnded(after.state))
        return after.state === "active" ? taken : withMember(taken, after, this.#context.now());
      const left = withoutMember(taken, before.id);
      if (heldUntil === null) return left;
      return withHeld(left, { id: before.id, token: before.token, until: heldUntil });
    });
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
    );
    await this.#ticketAll(promoted);
  }

  /** Changes the state of a job's key, gives free slots to those who wait, and writes their tickets. */
  async change(
    job: Pick<Job, "service" | "type" | "key">,
    move: (state: KeyState) => KeyState,
  ): Promise<void> {
    const policy = job.key;
    if (policy === undefined) return;
    const { records, now } = this.#context;
    const id = keyRecordId(job.service, policy.hash);
    const promoted = await records.update<KeyState, readonly KeyMember[]>(id, (body) => {
      const promotion = promote(move(body ?? emptyKey(job.service, job.type, policy)), now());
      return { body: promotion.state, extra: promotion.promoted };
    });
    await this.#ticketAll(promoted);
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

  /** Which members have started, and which never came into the log. Only asked where the key is full. */
  async #running(
    state: KeyState,
    { maxActive, maxQueued }: JobKeyPolicy,
  ): Promise<{ readonly ids: ReadonlySet<string>; readonly ghosts: readonly KeyMember[] }> {
    const { log, now } = this.#context;
    const isRoomy = state.members.length + state.held.length < maxActive + maxQueued;
    if (isRoomy) return { ids: new Set(), ghosts: [] };
    const slotted = state.members.filter(({ stands }) => stands === "slot");
    const jobs = await Promise.all(slotted.map(({ id }) => log.load(id)));
    const ids = slotted.filter((_, index) => jobs[index]?.job?.state === "active");
    const ghosts = slotted.filter(
      ({ since }, index) => !jobs[index]?.job && since + aheadMaxMs < now(),
    );
    return { ids: new Set(ids.map(({ id }) => id)), ghosts };
  }

  /** A place whose job never came: its create is made impossible first, so that it cannot come later. */
  async #forgetGhost(service: string, policy: JobKeyPolicy, ghost: KeyMember): Promise<void> {
    const { log, subjects, newEventId, actor, now } = this.#context;
    const { lastSeq, job } = await log.load(ghost.id);
    if (job !== null) return;
    const event: EventOf<"deleted"> = {
      name: "deleted",
      id: newEventId(),
      jobId: ghost.id,
      service,
      type: "_",
      version: 0,
      run: 0,
      tries: 0,
      state: "cancelled",
      previousState: null,
      at: now(),
      actor,
      context: { requestId: "", traceId: "", traceparent: "" },
      reason: "its creation was never completed",
    };
    const expect = { filter: subjects.jobFilter(service, ghost.id), seq: lastSeq };
    const message = messageOf(subjects.event(event), event, expect);
    const { outcome } = await log.append({ jobId: ghost.id, message });
    if (outcome === "stored")
      await this.change({ service, type: "_", key: policy }, (state) =>
        withoutMember(state, ghost.id),
      );
  }

  /** Skips the job that a new one replaces. Gives whether it is out of the way. */
  async #replace(replacedId: string, replacement: EventOf<"created">): Promise<boolean> {
    const { log, subjects, now, hint } = this.#context;
    const { job, lastSeq } = await log.load(replacedId);
    if (job === null || isEnded(job.state)) return true;
    if (job.state === "active") return false;
    const { id, actor, jobId } = replacement;
    const command = {
      command: "skip",
      eventId: `${id}:skipped`,
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
