/**
 * Appending: compare with the log, store, and then do what follows: places under caps and keys, tickets, hints.
 * Places are taken before the event that needs them and given back after the event that frees them.
 */
import { refusedContinuation } from "../../core/chains.js";
import type { EventOf, JobEvent } from "../../core/event.js";
import { evolve } from "../../core/evolve.js";
import { isEnded, type Job } from "../../core/job.js";
import { transitions } from "../../core/transitions.js";
import type { AppendOutcome, Change, WakeTopic } from "../engine.js";
import { isStoreError } from "../errors.js";
import { blockerRefusal } from "./blockers.js";
import { appendWithRecords, type BoundOutcome } from "./bound-records.js";
import { deleting, type LoggedJob, messageOf, type ReadJob } from "./entry.js";
import { isRefusedForSure } from "./faults.js";
import { keepFollowUp } from "./follow-ups.js";
import type { Held } from "./held.js";
import { type HeldDeleted, heldRecordId } from "./held-deleted.js";
import type { KeyedCreate } from "./keys.js";
import type { Appended } from "./log.js";
import type { EngineParts } from "./parts.js";
import { PlainChanges } from "./plain.js";
import type { Publication } from "./port.js";
import { isTakenUnseen } from "./refusal.js";
import { removeLog } from "./removal.js";

/** Who moves a job on: the worker that holds it, or anybody else. */
export type ChangedBy = "worker" | "outside";

/** How often a change looks again because tickets came in between. */
const roundsMax = 50;

const appended: AppendOutcome = { outcome: "appended" };
const conflict: AppendOutcome = { outcome: "conflict" };
const exists: AppendOutcome = { outcome: "exists" };

/** What changes need of the engine. */
export interface ChangesContext extends EngineParts {
  readonly held: Held;
  /** The name under which this process writes what follows from what others did. */
  readonly actor: JobEvent["actor"];
  readonly hint: (topic: WakeTopic, service: string) => void;
  /** The job that a chain has come to. */
  readonly currentOfChain: (chainId: string) => Promise<Job | null>;
}

/** A create that may be stored: its event, where it goes, and what to do afterwards. */
interface PreparedCreate {
  readonly items: readonly Appended[];
  readonly created: EventOf<"created">;
  readonly refusal: AppendOutcome | null;
  readonly keyed: Extract<KeyedCreate, { outcome: "let_in" }> | null;
}

/** The appends of a process. */
export class Changes {
  readonly #context: ChangesContext;

  constructor(context: ChangesContext) {
    this.#context = context;
  }

  /** Appends one change with its records. */
  async append(change: Change, by: ChangedBy): Promise<AppendOutcome> {
    const [outcome = conflict] = await this.appendEach([change], () => by);
    return outcome;
  }

  /** Appends changes that do not speak of each other, each with its records. */
  async appendEach(
    changes: readonly Change[],
    by: (change: Change) => ChangedBy,
  ): Promise<readonly AppendOutcome[]> {
    const outcomes: (AppendOutcome | Promise<AppendOutcome>)[] = new Array(changes.length);
    const plain = new PlainChanges(this.#context);
    for (const [index, change] of changes.entries()) {
      if (plain.take(change, by(change), index)) continue;
      const outcome = this.#append(change, by(change));
      // It is awaited below, after those that are plain.
      outcome.catch(() => {});
      outcomes[index] = outcome;
    }
    await plain.store((publication, index) => {
      const change = changes[index] as Change;
      if (publication.outcome === "stored") outcomes[index] = appended;
      else if (publication.outcome === "fault") outcomes[index] = faulted(publication.error);
      else outcomes[index] = this.#append(change, by(change));
    });
    return outcomes.some((outcome) => outcome instanceof Promise)
      ? Promise.all(outcomes)
      : (outcomes as AppendOutcome[]);
  }

  async #append(change: Change, by: ChangedBy): Promise<AppendOutcome> {
    try {
      const append = () => this.#appendEvent(change, by);
      const outcome = hasRecords(change)
        ? await appendWithRecords(this.#context, change, append)
        : await append();
      return outcome === "overtaken" ? conflict : outcome;
    } catch (error) {
      return faulted(error);
    }
  }

  async #appendEvent(change: Change, by: ChangedBy): Promise<BoundOutcome> {
    if (change.job.id !== change.event.jobId) return conflict;
    const { event } = change;
    if (event.name !== "created") return this.#appendToJob(change, event, by);
    if (change.expect.version !== 0) return conflict;
    const refusal = await this.#followRefusal(change.follow ?? []);
    return refusal ?? this.#create(event, change);
  }

  /** Creates a job. That its id is free is found out by storing it, unless others would be moved for it first. */
  async #create(event: EventOf<"created">, change: Change): Promise<BoundOutcome> {
    const isBound = hasRecords(change);
    let lastSeq = 0;
    if (event.key || event.blockers.length > 0 || isBound) {
      const known = await this.#freeId(event);
      if (known === null) return exists;
      lastSeq = known;
    }
    const refusal = event.blockers.length > 0 ? await this.#blockerRefusal(event) : null;
    if (refusal) return refusal;
    for (let round = 0; round < roundsMax; round++) {
      const prepared = await this.#prepare(event, lastSeq, false);
      if (prepared.refusal) return prepared.refusal;
      const all = await this.#prepareFollow(change.follow ?? [], [prepared]);
      const { publication, forget } = await this.#publish(change, [], all);
      if (publication.outcome === "stored") {
        await this.#created(all);
        await forget();
        const policy = prepared.created.policy;
        return policy && event.key ? { outcome: "appended", policy } : { outcome: "appended" };
      }
      const isUnseen = await isTakenUnseen(this.#context, event.jobId, lastSeq);
      for (const { keyed } of all) await keyed?.refused(isUnseen);
      const free = isUnseen ? null : await this.#freeId(event);
      if (free === null) return exists;
      // Somebody took the record that goes with the creation for one whose job never comes.
      if (isBound) return "overtaken";
      lastSeq = free;
    }
    throw this.#context.records.busy(`Others were in the way of creating job ${event.jobId}`);
  }

  /**
   * Where a new job of an id begins: behind a deleted one of that id; `null` if the id is taken. A create that was
   * decided before the deletion comes late, and may be the very job that was deleted.
   */
  async #freeId({ jobId, service, at }: JobEvent): Promise<number | null> {
    const { log, records, now } = this.#context;
    const { job, lastSeq, deletedAt } = await log.load(jobId);
    if (job !== null || deletedAt > at) return null;
    if (lastSeq === 0) return 0;
    const { record } = await records.get(heldRecordId(service, jobId));
    const body = record?.body as { readonly until?: number } | undefined;
    return (body?.until ?? 0) > now() ? null : lastSeq;
  }

  /** Takes the places that a create needs. A continuation that its key refuses is created and skipped. */
  async #prepare(
    event: EventOf<"created">,
    lastSeq: number,
    isContinuation: boolean,
    leavingId?: string,
  ): Promise<PreparedCreate> {
    const { keys, subjects } = this.#context;
    const expect = { filter: subjects.idFilter(event.jobId), seq: lastSeq };
    const item = (created: EventOf<"created">, hasPlace: boolean): Appended => {
      const { job } = evolve(null, created);
      const subject =
        job && hasPlace && isClaimable(job, created)
          ? subjects.ticket(created, job)
          : subjects.event(created);
      return { jobId: event.jobId, message: messageOf(subject, created, expect) };
    };
    if (!event.key)
      return { items: [item(event, true)], created: event, refusal: null, keyed: null };
    const keyed = await keys.admit(event, event.key, leavingId);
    if (keyed.outcome === "let_in") {
      const { created, hasSlot } = keyed;
      return { items: [item(created, hasSlot)], created, refusal: null, keyed };
    }
    if (!isContinuation) return { items: [], created: event, refusal: keyed, keyed: null };
    const { created, skipped } = refusedContinuation(event, keyed.admission);
    const end = { jobId: event.jobId, message: messageOf(subjects.event(skipped), skipped) };
    return { items: [item(created, false), end], created, refusal: keyed, keyed: null };
  }

  /** What keeps the continuations of a change from being stored. */
  async #followRefusal(follow: readonly Change[]): Promise<AppendOutcome | null> {
    for (const { event } of follow) {
      if (event.name !== "created") continue;
      if ((await this.#freeId(event)) === null) return exists;
      const refusal = await this.#blockerRefusal(event);
      if (refusal) return refusal;
    }
    return null;
  }

  #blockerRefusal(event: EventOf<"created">): Promise<AppendOutcome | null> {
    const job = async (id: string) => (await this.#context.log.load(id)).job;
    return blockerRefusal({ job, chain: this.#context.currentOfChain }, event);
  }

  /**
   * What follows from a change, behind the create that it may be, or beside the end of a job whose place under a key
   * is free then. What follows from a continuation that its key refused is dropped.
   */
  async #prepareFollow(
    follow: readonly Change[],
    created: readonly PreparedCreate[],
    leavingId?: string,
  ): Promise<readonly PreparedCreate[]> {
    const { subjects } = this.#context;
    const prepared = [...created];
    let refused: string | null = null;
    for (const { event } of follow) {
      if (event.jobId === refused) break;
      if (event.name === "created") {
        const lastSeq = (await this.#freeId(event)) ?? 0;
        const create = await this.#prepare(event, lastSeq, true, leavingId);
        if (create.refusal) refused = event.jobId;
        prepared.push(create);
        continue;
      }
      // It happens to the job that was created just before, in the same batch, which nobody else knows yet.
      const message = messageOf(subjects.event(event), event);
      const last = prepared.at(-1);
      if (last)
        prepared[prepared.length - 1] = {
          ...last,
          items: [...last.items, { jobId: event.jobId, message }],
        };
    }
    return prepared;
  }

  async #created(prepared: readonly PreparedCreate[]): Promise<void> {
    const { hint } = this.#context;
    for (const { created, keyed, items } of prepared) {
      await keyed?.stored();
      hint("ready", created.service);
      if (created.state === "blocked" || items.length > 1) hint("ended", created.service);
      if (items.length > 1 && keyed) await this.#settleFollowed(created);
    }
  }

  /** A continuation that was ended in the same batch leaves its key again. */
  async #settleFollowed(created: EventOf<"created">): Promise<void> {
    const { log, keys } = this.#context;
    const { job, events } = await log.load(created.jobId);
    const last = events.at(-1);
    if (job && last && isEnded(job.state)) await keys.move(job, job, last, null);
  }

  async #appendToJob(change: Change, event: JobEvent, by: ChangedBy): Promise<AppendOutcome> {
    const { log, keys, held, subjects } = this.#context;
    const refusal = await this.#followRefusal(change.follow ?? []);
    if (refusal) return refusal;
    // Who would take a place under a key for what follows makes sure first that it will.
    const isOwner = by === "worker" && !change.follow?.some(isKeyedCreate);
    let known = isOwner ? held.get(change.job.id, change.expect.token)?.logged : undefined;
    for (let round = 0; round < roundsMax; round++) {
      const isOwn = known !== undefined;
      const logged: LoggedJob = known ?? (await log.load(change.job.id));
      known = undefined;
      const { job } = logged;
      const evolution = evolve(job, event);
      if (!job || !meets(job, change) || evolution.ignored !== null) {
        // Another process may have changed the job since it was claimed, and the change may have been decided on that.
        if (isOwn) continue;
        return conflict;
      }
      if (speaksOfLapse(event) && !(await this.#hasLapsed(logged, event))) return conflict;
      const after = evolution.job;
      const comesBack = event.name === "retried" && after?.key !== undefined;
      if (comesBack && after) await keys.comeBack(after, await this.#mayRunUntil(logged));
      const heldUntil = await this.#heldUntil(logged, after, by);
      if (event.name === "deleted" && heldUntil !== null)
        await this.#holdDeleted(logged, heldUntil);
      const isTicket = after !== null && !after.key && isClaimable(after, event);
      const subject = isTicket ? subjects.ticket(event, after) : subjects.event(event);
      const expect = { filter: subjects.jobFilter(job.service, job.id), seq: logged.lastSeq };
      const message = messageOf(subject, event, expect);
      const item = { jobId: job.id, message: deleting(message, event, logged) };
      const leavingId = after && isEnded(after.state) && heldUntil === null ? job.id : undefined;
      const then = await this.#prepareFollow(change.follow ?? [], [], leavingId);
      const { publication, forget } = await this.#publish(change, [item], then);
      if (publication.outcome === "stored") {
        await this.#moved(logged, after, event, by, heldUntil, publication.seq);
        await this.#created(then);
        await forget();
        return { outcome: "appended" };
      }
      for (const { keyed } of then) await keyed?.refused();
    }
    return conflict;
  }

  /** Stores an event with what follows from it. Where the server cannot do both together, the latter is kept until it is stored. */
  async #publish(
    change: Change,
    first: readonly Appended[],
    then: readonly PreparedCreate[],
  ): Promise<{ readonly publication: Publication; readonly forget: () => Promise<void> }> {
    const { log, records, now } = this.#context;
    const items = [...first, ...then.flatMap((create) => create.items)];
    const isKept = change.follow !== undefined && !log.isAtomic;
    const forget = isKept ? await keepFollowUp(records, change, now()) : async () => {};
    try {
      const publication = await log.appendAll(items);
      if (publication.outcome !== "stored") await forget();
      return { publication, forget };
    } catch (error) {
      const isNothingStored = items.length === 1 || log.isAtomic;
      if (isNothingStored && isRefusedForSure(error)) await withdrawAll(then);
      throw error;
    }
  }

  /** Stores what follows from an event of a job that is stored. What is there already is left as it is. */
  async followUp(jobId: string, follow: readonly Change[]): Promise<void> {
    const { log } = this.#context;
    for (const change of follow) {
      const { event } = change;
      if (event.name !== "created") await this.#appendToJob(change, event, "outside");
      else if ((await this.#freeId(event)) !== null) {
        const prepared = await this.#prepareFollow([change], [], jobId);
        await log.appendAll(prepared.flatMap(({ items }) => items));
        await this.#created(prepared);
      }
    }
  }

  /** A lapse that the keeper saw may be over by now. A job that keeps its key is not taken from its worker. */
  async #hasLapsed(logged: LoggedJob, event: JobEvent): Promise<boolean> {
    const { leases, now } = this.#context;
    if (logged.job?.keyBlocked) return false;
    if (event.name === "keyBlocked") return leases.hasLapsed(logged, now());
    return leases.strike(logged, now());
  }

  /**
   * Until when the places of an active job stay held that somebody else ends: its worker may still run. One whose lease has
   * lapsed cannot renew it any more.
   */
  async #heldUntil(logged: LoggedJob, after: Job | null, by: ChangedBy): Promise<number | null> {
    const leaves = logged.job?.state === "active" && after?.state !== "active";
    if (!leaves || by === "worker") return null;
    return this.#context.leases.strikeUnlessStanding(logged, this.#context.now());
  }

  /** Until when the worker of an ended job may still run, by its log. */
  async #mayRunUntil(logged: LoggedJob | ReadJob): Promise<number | null> {
    const { leases, now } = this.#context;
    if (logged.job === null || !("events" in logged)) return null;
    return leases.mayRunUntil(logged, logged.job.token, now());
  }

  /** The id of a job that was deleted while its worker runs is taken until that worker lets go. */
  async #holdDeleted({ job, starts }: LoggedJob, until: number): Promise<void> {
    if (!job) return;
    const { token, service, type, key } = job;
    const body = {
      token,
      until,
      type,
      caps: [...(starts.get(token)?.caps ?? [])],
      ...(key && { key: { ...key } }),
    };
    await this.#context.records.update(heldRecordId(service, job.id), () => ({
      body,
      extra: undefined,
    }));
  }

  /** Everything that follows from a change that was stored. */
  async #moved(
    logged: LoggedJob,
    after: Job | null,
    event: JobEvent,
    by: ChangedBy,
    heldUntil: number | null,
    seq: number,
  ): Promise<void> {
    const { caps, keys, port, held, hint, subjects } = this.#context;
    const before = logged.job;
    if (!before) return;
    const leftActive = before.state === "active" && after?.state !== "active";
    if (leftActive) {
      const places = logged.starts.get(before.token)?.caps ?? [];
      if (heldUntil === null) await caps.free(places, before.id, before.token);
      else await caps.hold(places, before.id, before.token, heldUntil);
    }
    if (before.key && after?.state !== "active") await keys.move(before, after, event, heldUntil);
    // The right to remove messages cannot be given for one service alone: whoever may see all prunes what is left.
    if (after === null && subjects.scope === undefined) await removeLog(port, logged);
    if (leftActive && by === "worker") {
      const delivery = held.take(before.id, before.token);
      if (delivery) await port.acknowledge([delivery]);
    } else if (after) {
      const own = held.get(before.id, before.token);
      if (own) own.logged = { ...own.logged, job: after, lastSeq: seq };
    }
    this.#hint(before, after, event, by, leftActive, hint);
  }

  #hint(
    before: Job,
    after: Job | null,
    event: JobEvent,
    by: ChangedBy,
    leftActive: boolean,
    hint: (topic: WakeTopic, service: string) => void,
  ): void {
    const waits = after?.state === "pending" || after?.state === "retry";
    if (waits || leftActive) hint("ready", before.service);
    if (!isEnded(before.state) && (after === null || isEnded(after.state)))
      hint("ended", before.service);
    if (after?.state === "blocked") hint("ended", before.service);
    if (event.name === "cancelRequested" || (leftActive && by === "outside"))
      hint("cancel", before.service);
  }

  /** Appends a note, unless the fold would ignore it. */
  async note(note: JobEvent): Promise<boolean> {
    const { log, subjects, held } = this.#context;
    if (transitions[note.name]?.kind === "change") return false;
    if (note.name === "staleCompletionIgnored") await this.#confirmEnd(note);
    const token = "token" in note ? note.token : undefined;
    const logged = await log.current(note.service, note.jobId, held.get(note.jobId, token));
    if (logged.job === null || evolve(logged.job, note).ignored !== null) return false;
    const message = messageOf(subjects.note(note), note);
    // Notes of a job may go in one batch.
    const jobId = `${note.jobId}/${note.id}`;
    const publication = await log.append({ jobId, message, isNote: true });
    return publication.outcome === "stored";
  }

  /** The worker of a job that was ended from outside has let go of it: its places are free. */
  async #confirmEnd({ jobId, service, token }: EventOf<"staleCompletionIgnored">): Promise<void> {
    const { log, caps, keys, records, held, port, hint } = this.#context;
    const delivery = held.take(jobId, token);
    if (delivery) await port.acknowledge([delivery]);
    const { job, starts } = await log.load(jobId);
    const isHeld = job?.state === "active" && job.token === token;
    if (job && !isHeld) {
      await caps.free(starts.get(token)?.caps ?? [], jobId, token);
      if (job.key) await keys.free(job, token);
    }
    const id = heldRecordId(service, jobId);
    const gone = await records.get(id);
    const body = gone.record?.body as unknown as HeldDeleted | undefined;
    if (body?.token === token) {
      await caps.free(body.caps, jobId, token);
      if (body.key)
        await keys.free({ id: jobId, service, type: body.type, key: body.key } as Job, token);
      await records.put(id, gone, null);
    }
    hint("ready", service);
  }
}

function faulted(error: unknown): AppendOutcome {
  if (isStoreError(error)) return { outcome: "faulted", error };
  throw error;
}

/** Gives back the places of creates that can never come. The keeper finds those that cannot be given back now. */
async function withdrawAll(creates: readonly PreparedCreate[]): Promise<void> {
  for (const { keyed } of creates) await keyed?.withdraw().catch(() => {});
}

function hasRecords({ records }: Change): boolean {
  return records !== undefined && records.before.length + records.after.length > 0;
}

function meets(job: Job, { expect, job: key }: Change): boolean {
  if (job.service !== key.service || job.type !== key.type) return false;
  return job.version === expect.version && (expect.token ?? job.token) === job.token;
}

/** The keeper speaks under a token only when it has seen that token's lease lapse. */
function speaksOfLapse(event: JobEvent): boolean {
  return event.actor.startsWith("keeper:") && "token" in event && event.token !== undefined;
}

/** Whether an event leaves a job that may be claimed at once. */
function isClaimable(job: Job, event: JobEvent): boolean {
  return (job.state === "pending" || job.state === "retry") && job.runAt <= event.at;
}

function isKeyedCreate({ event }: Change): boolean {
  return event.name === "created" && event.key !== undefined;
}
