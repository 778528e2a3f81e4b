/**
 * Appending: compare with the log, store, and then do what follows: places under caps and keys, tickets, hints.
 * Places are taken before the event that needs them and given back after the event that frees them.
 */
import type { EventOf, JobEvent } from "../../core/event.js";
import { evolve } from "../../core/evolve.js";
import { isEnded, type Job } from "../../core/job.js";
import type { AppendOutcome, Change, WakeTopic } from "../engine.js";
import { isStoreError } from "../errors.js";
import { appendWithRecords, type BoundOutcome } from "./bound-records.js";
import {
  Creating,
  type CreatingContext,
  isClaimable,
  type PreparedCreate,
  withdrawAll,
} from "./creating.js";
import { deleting, type LoggedJob, messageOf, type ReadJob } from "./entry.js";
import { isRefusedForSure } from "./faults.js";
import { keepFollowUp } from "./follow-ups.js";
import type { Held } from "./held.js";
import { type HeldDeleted, heldRecordId, lapsesAt } from "./held-deleted.js";
import type { Appended } from "./log.js";
import type { EngineParts } from "./parts.js";
import { PlainChanges } from "./plain.js";
import type { Publication } from "./port.js";
import type { Rest } from "./record-lines.js";
import { removeLog } from "./removal.js";

/** Who moves a job on: the worker that holds it, or anybody else. */
export type ChangedBy = "worker" | "outside";

/** How often a change looks again because tickets came in between. */
const roundsMax = 50;

const appended: AppendOutcome = { outcome: "appended" };
const conflict: AppendOutcome = { outcome: "conflict" };
const exists: AppendOutcome = { outcome: "exists" };

/** What changes need of the engine. */
export interface ChangesContext extends EngineParts, CreatingContext {
  readonly held: Held;
  /** The name under which this process writes what follows from what others did. */
  readonly actor: JobEvent["actor"];
  readonly rest: Rest;
}

/** The appends of a process. */
export class Changes {
  readonly #context: ChangesContext;
  readonly #creating: Creating;

  constructor(context: ChangesContext) {
    this.#context = context;
    this.#creating = new Creating(context);
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
    const refusal = await this.#creating.followRefusal(change.follow ?? []);
    return refusal ?? this.#create(event, change);
  }

  /** Creates a job. That its id is free is found out by storing it, unless others would be moved for it first. */
  async #create(event: EventOf<"created">, change: Change): Promise<BoundOutcome> {
    const isBound = hasRecords(change);
    let lastSeq = 0;
    const mayBeTaken = event.blockers.length > 0 && !change.isFresh;
    if (event.key || mayBeTaken || isBound) {
      const known = await this.#creating.freeId(event);
      if (known === null) return exists;
      lastSeq = known;
    }
    const refusal = event.blockers.length > 0 ? await this.#creating.blockerRefusal(event) : null;
    if (refusal) return refusal;
    for (let round = 0; round < roundsMax; round++) {
      const prepared = await this.#creating.prepare(event, lastSeq, false);
      if (prepared.refusal) return prepared.refusal;
      const all = await this.#creating.prepareFollow(change.follow ?? [], [prepared]);
      const { publication, forget } = await this.#publish(change, [], all);
      if (publication.outcome === "stored") {
        await this.#creating.stored(all);
        await forget();
        const policy = prepared.created.policy;
        return policy && event.key ? { outcome: "appended", policy } : { outcome: "appended" };
      }
      const isUnseen = await this.#context.log.isElsewhere(event.jobId, lastSeq);
      for (const { keyed } of all) await keyed?.refused(isUnseen);
      const free = isUnseen ? null : await this.#creating.freeId(event);
      if (free === null) return exists;
      // Somebody took the record that goes with the creation for one whose job never comes.
      if (isBound) return "overtaken";
      lastSeq = free;
    }
    throw this.#context.records.busy(`Others were in the way of creating job ${event.jobId}`);
  }

  async #appendToJob(change: Change, event: JobEvent, by: ChangedBy): Promise<AppendOutcome> {
    const { log, keys, held, subjects } = this.#context;
    const refusal = await this.#creating.followRefusal(change.follow ?? []);
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
      const item = {
        jobId: job.id,
        message: deleting(message, event, logged),
        ...(isTicket && { consumer: subjects.consumerOf(after) }),
      };
      const leavingId = after && isEnded(after.state) && heldUntil === null ? job.id : undefined;
      const then = await this.#creating.prepareFollow(change.follow ?? [], [], leavingId);
      const { publication, forget } = await this.#publish(change, [item], then);
      if (publication.outcome === "stored") {
        await this.#moved(logged, after, event, by, heldUntil, publication.seq);
        await this.#creating.stored(then);
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
    let isTogether = true;
    let forget = async () => {};
    const apart = async () => {
      isTogether = false;
      if (change.follow !== undefined) forget = await keepFollowUp(records, change, now());
    };
    try {
      const publication = await log.appendAll(items, apart);
      if (publication.outcome !== "stored") await forget();
      return { publication, forget };
    } catch (error) {
      if (isTogether && isRefusedForSure(error)) await withdrawAll(then);
      throw error;
    }
  }

  /** Stores what follows from an event of a job that is stored. What is there already is left as it is. */
  async followUp(jobId: string, follow: readonly Change[]): Promise<void> {
    const { log } = this.#context;
    for (const group of withCreates(follow)) {
      const [first] = group;
      const isNew = first?.event.name === "created";
      if (isNew && (await this.#creating.freeId(first.event)) !== null) {
        const prepared = await this.#creating.prepareFollow(group, [], jobId);
        await log.appendAll(prepared.flatMap(({ items }) => items));
        await this.#creating.stored(prepared);
        continue;
      }
      for (const change of group.slice(isNew ? 1 : 0))
        await this.#appendToJob(change, change.event, "outside");
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
    const caps = [...(starts.get(token)?.caps ?? [])];
    const body: HeldDeleted = { token, until, type, caps, ...(key && { key: { ...key } }) };
    const id = heldRecordId(service, job.id);
    await this.#context.records.update<HeldDeleted, void>(
      id,
      () => ({ body, extra: undefined }),
      lapsesAt,
    );
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
    // The right to remove messages cannot be given for one service alone: whoever may see all prunes what is left. What cannot
    // be removed now is left to be pruned, too: the deletion, which is stored, hides it.
    if (after === null && subjects.scope === undefined)
      await removeLog(port, logged).catch(() => {});
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
}

function faulted(error: unknown): AppendOutcome {
  if (isStoreError(error)) return { outcome: "faulted", error };
  throw error;
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

/** Changes in their order, a creation together with what happens to its job next: one that ends at once is offered to nobody. */
function withCreates(changes: readonly Change[]): readonly (readonly Change[])[] {
  const groups: Change[][] = [];
  for (const change of changes) {
    const group = groups.at(-1);
    const isNext = group?.[0]?.event.jobId === change.event.jobId;
    if (isNext && change.event.name !== "created") group?.push(change);
    else groups.push([change]);
  }
  return groups;
}

function isKeyedCreate({ event }: Change): boolean {
  return event.name === "created" && event.key !== undefined;
}
