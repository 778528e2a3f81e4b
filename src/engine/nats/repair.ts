/**
 * Repair: what a process left behind that died between the log and the records. Places under keys and caps are taken
 * before the event that needs them and given back after the event that frees them, so that a place may be ahead of the
 * log or behind it. One behind is put where the log has its job. One ahead is given up after a while, and its job is
 * moved on in the log first, so that a writer who only slept is refused.
 */
import type { EventOf } from "../../core/event.js";
import { isEnded, type Job } from "../../core/job.js";
import type { Change } from "../engine.js";
import type { StoredRecord } from "../record.js";
import type { CapPlace } from "./caps.js";
import type { ReadJob } from "./entry.js";
import { followUpOf, followUpPrefix, forgetFollowUp } from "./follow-ups.js";
import { isCurrent, type KeyMember, type KeyState, withHeld, withoutPlace } from "./key-state.js";
import type { EngineParts } from "./parts.js";
import { giveUp } from "./refusal.js";
import { priorityLane } from "./subjects.js";

/** How long a place may be ahead of the log before it is taken for one that never comes. */
const aheadMaxMs = 10_000;

/** How long something may take to follow from an event before the keeper sees to it; less than its place may be ahead. */
const followMaxMs = 5_000;

/** How long a look waits to be told of the newest records; the next one finds what this one does not. */
const observeMs = 2_000;

/** How many keys and caps one look examines; the others have their turn in the next ones. */
const examinedMax = 200;

/** What repairs need of the engine. */
export interface RepairContext extends EngineParts {
  /** Stores what follows from an event of a job that is stored. */
  readonly followUp: (jobId: string, follow: readonly Change[]) => Promise<void>;
  /** The name under which this process writes what follows from what others did. */
  readonly actor: EventOf<"ready">["actor"];
}

/** The repairs of a process. */
export class Repair {
  readonly #context: RepairContext;
  /** The keys and caps under which somebody stands, and what is to follow, those that were examined longest ago first. */
  readonly #occupied = new Set<string>();
  readonly #waiting: (() => void)[] = [];
  #observedSeq = 0;

  constructor(context: RepairContext) {
    this.#context = context;
  }

  /** Is told of records as they change, and up to which position. */
  observe(records: readonly StoredRecord[], seq: number): void {
    for (const { id, body } of records)
      if (isOccupied(id, body)) this.#occupied.add(id);
      else this.#occupied.delete(id);
    this.#observedSeq = seq;
    for (const call of this.#waiting.splice(0)) call();
  }

  /** Examines the keys and caps of a service, as many as one look may. */
  async repair(service: string): Promise<void> {
    await this.#observedAll();
    const own = [...this.#occupied].filter((id) => id.split("/")[1] === service);
    // What is still to follow may have a place under a key, which is not to be taken for one that never comes.
    const isFollowUp = (id: string) => id.startsWith(followUpPrefix);
    const ordered = [...own.filter(isFollowUp), ...own.filter((id) => !isFollowUp(id))];
    for (const id of ordered.slice(0, examinedMax)) {
      this.#occupied.delete(id);
      this.#occupied.add(id);
      if (isFollowUp(id)) await this.#examineFollowUp(service, id);
      else if (id.startsWith("key/")) await this.#examineKey(service, id.split("/")[2] ?? "");
      else await this.#examineCap(service, id);
    }
  }

  /** Waits until everything was told that is there now, but not for ever. */
  async #observedAll(): Promise<void> {
    const { port, records } = this.#context;
    const head = (await port.last("records", records.all))?.seq ?? 0;
    const patience = AbortSignal.timeout(observeMs);
    while (this.#observedSeq < head && !patience.aborted)
      await new Promise<void>((resolve) => {
        this.#waiting.push(resolve);
        patience.addEventListener("abort", () => resolve(), { once: true });
      });
  }

  /** What should have followed from an event follows if the event was stored, and never if it was not. */
  async #examineFollowUp(service: string, id: string): Promise<void> {
    const { records, log, followUp } = this.#context;
    const { record } = await records.get(id);
    if (record === null) {
      this.#occupied.delete(id);
      return;
    }
    const { jobId, eventId, follow, since } = followUpOf(record.body);
    const cause = await log.load(jobId);
    if (since + followMaxMs > this.#context.now()) return;
    const isStored = cause.events.some((event) => event.id === eventId);
    if (isStored) await followUp(jobId, follow);
    else if (!(await this.#isGivenUp(service, { id: jobId, since }, cause))) return;
    await forgetFollowUp(records, id);
  }

  async #examineKey(service: string, hash: string): Promise<void> {
    const state = await this.#context.keys.state(service, hash);
    if (state === null) return;
    const found = await this.#loadAll(state.members);
    for (const [index, member] of state.members.entries()) {
      const logged = found[index];
      if (logged) await this.#examineMember(state, member, logged);
    }
  }

  async #examineMember(state: KeyState, member: KeyMember, logged: ReadJob): Promise<void> {
    const { keys, leases, now } = this.#context;
    const { job } = logged;
    const under = keyOf(state);
    if (job !== null && job.service !== state.service) {
      // Another service has the id, so that this job never comes.
      await keys.change(under, (current) => withoutPlace(current, member));
      return;
    }
    if (job === null || job.run < member.run) {
      if (await this.#isGivenUp(state.service, member, logged))
        await keys.change(under, (current) => withoutPlace(current, member));
      return;
    }
    if (job.state === "active") return;
    if (isEnded(job.state)) {
      const until = await leases.mayRunUntil(logged, job.token, now());
      const slot = { id: job.id, token: job.token, until: until ?? 0 };
      await keys.change(under, (current) => {
        const left = withoutPlace(current, member);
        return until === null || left === current ? left : withHeld(left, slot);
      });
    } else if (!isCurrent(member, job)) await keys.join(job);
    else if (member.stands === "slot" && !(await this.#hasTicket(job, logged)))
      await keys.ticket(job.id, "swept");
  }

  async #examineCap(service: string, id: string): Promise<void> {
    const { caps, leases, now } = this.#context;
    const places = (await caps.places(id, now())).filter(({ until }) => until === undefined);
    const found = await this.#loadAll(places);
    for (const [index, place] of places.entries()) {
      const logged = found[index];
      if (!logged) continue;
      const { job } = logged;
      if (job?.state === "active" && job.token === place.token) continue;
      if (job === null || job.token < place.token) {
        // Another claim of the same start may have taken a place of its own since then.
        if (await this.#isGivenUp(service, place, logged)) await caps.freeOf([id], place.by);
        continue;
      }
      const until = await leases.mayRunUntil(logged, place.token, now());
      if (until === null) await caps.free([id], place.id, place.token);
      else await caps.hold([id], place.id, place.token, until);
    }
  }

  /** Whether a place that is ahead of the log is to be given up; its job has then been moved on. */
  async #isGivenUp(
    service: string,
    { id, since }: Pick<KeyMember, "id" | "since">,
    logged: ReadJob,
  ): Promise<boolean> {
    if (since + aheadMaxMs > this.#context.now()) return false;
    return giveUp(this.#context, service, id, logged);
  }

  /** Whether a job's newest ticket is still to be acknowledged. Where no consumer is, nothing was. */
  async #hasTicket(job: Job, { ticketSeq }: ReadJob): Promise<boolean> {
    const { port, subjects, now } = this.#context;
    if (job.runAt > now()) return true;
    const floor = await port.acknowledgedUpTo(subjects.consumer(job, priorityLane(job.priority)));
    return ticketSeq > (floor ?? 0);
  }

  #loadAll(places: readonly { readonly id: string }[]): Promise<readonly ReadJob[]> {
    return Promise.all(places.map(({ id }) => this.#context.log.load(id)));
  }
}

/** Whether somebody stands under a key or a cap, or something is still to follow from an event. */
function isOccupied(id: string, body: StoredRecord["body"]): boolean {
  if (id.startsWith("key/")) return (body as unknown as KeyState).members.length > 0;
  if (id.startsWith("cap/")) return (body as unknown as readonly CapPlace[]).length > 0;
  return id.startsWith(followUpPrefix);
}

/** A key as its jobs name it. */
function keyOf(state: KeyState): Pick<Job, "service" | "type" | "key"> {
  const { service, type, key, hash, maxActive, maxQueued, whenFull } = state;
  const stalePolicy = "fail-stale" as const;
  return { service, type, key: { key, hash, maxActive, maxQueued, whenFull, stalePolicy } };
}
