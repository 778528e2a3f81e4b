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
import type { GivenOut } from "./given-out.js";
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

/**
 * How many keys and caps one look examines, for how many jobs it asks the log, and how many of these are of one key or cap: so
 * many with a slot, and so many that wait. The others have their turn in the next looks.
 */
const examinedMax = 200;
const askedMax = 500;
const placesMax = 50;

/** What repairs need of the engine. */
export interface RepairContext extends EngineParts {
  /** Stores what follows from an event of a job that is stored. */
  readonly followUp: (jobId: string, follow: readonly Change[]) => Promise<void>;
  /** The name under which this process writes what follows from what others did. */
  readonly actor: EventOf<"ready">["actor"];
  readonly givenOut: GivenOut;
}

/** The repairs of a process. */
export class Repair {
  readonly #context: RepairContext;
  /** The keys and caps under which somebody stands, and what is to follow, those that were examined longest ago first. */
  readonly #occupied = new Set<string>();
  readonly #waiting: (() => void)[] = [];
  /** Whose place was examined last, of those keys and caps that have more than one look examines. */
  readonly #lastOf = new Map<string, string>();
  /** Up to where each consumer has given out its tickets, as it was found in this look. */
  #givenOut = new Map<string, Promise<number | null>>();
  #observedSeq = 0;

  constructor(context: RepairContext) {
    this.#context = context;
  }

  /** Is told of records as they change, and up to which position. */
  observe(records: readonly StoredRecord[], seq: number): void {
    for (const { id, body } of records)
      if (isOccupied(id, body)) this.#occupied.add(id);
      else {
        this.#occupied.delete(id);
        this.#lastOf.delete(id);
        this.#lastOf.delete(slotsOf(id));
      }
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
    this.#givenOut = new Map();
    let asked = 0;
    for (const id of ordered.slice(0, examinedMax)) {
      if (asked >= askedMax) break;
      this.#occupied.delete(id);
      this.#occupied.add(id);
      if (isFollowUp(id)) asked += await this.#examineFollowUp(service, id);
      else if (id.startsWith("key/")) asked += await this.#examineKey(service, id);
      else asked += await this.#examineCap(service, id);
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

  /**
   * What should have followed from an event follows if the event was stored, and never if it was not. Gives for how many jobs
   * the log was asked, as the others do that examine something.
   */
  async #examineFollowUp(service: string, id: string): Promise<number> {
    const { records, log, followUp } = this.#context;
    const { record } = await records.get(id);
    if (record === null) {
      this.#occupied.delete(id);
      return 0;
    }
    const { jobId, eventId, follow, since } = followUpOf(record.body);
    if (since + followMaxMs > this.#context.now()) return 0;
    const cause = await log.load(jobId);
    const isStored = cause.events.some((event) => event.id === eventId);
    if (isStored) await followUp(jobId, follow);
    else if (!(await this.#isGivenUp(service, { id: jobId, since }, cause))) return 1;
    await forgetFollowUp(records, id);
    return 1;
  }

  /** Those who wait need nothing before they could be taken for ones that never come. */
  async #examineKey(service: string, id: string): Promise<number> {
    const { keys, log, now } = this.#context;
    const state = await keys.state(service, id.split("/")[2] ?? "");
    if (state === null) return 0;
    const isOld = ({ since }: KeyMember) => since + aheadMaxMs <= now();
    const slots = state.members.filter(({ stands }) => stands === "slot");
    const others = state.members.filter((each) => each.stands !== "slot" && isOld(each));
    const members = [...this.#turn(slotsOf(id), slots), ...this.#turn(id, others)];
    const jobs = await log.loadJobs(members.map((member) => member.id));
    for (const [index, member] of members.entries())
      if (mayBeAmiss(state, member, jobs[index] ?? null))
        await this.#examineMember(state, member, await log.load(member.id));
    return members.length;
  }

  /** Those places of a record whose turn it is: the next after the last that was examined, or the first ones. */
  #turn<Place extends { readonly id: string }>(
    name: string,
    places: readonly Place[],
  ): readonly Place[] {
    const last = this.#lastOf.get(name);
    const behind = places.findIndex(({ id }) => id === last) + 1;
    const from = behind < places.length ? behind : 0;
    const chosen = places.slice(from, from + placesMax);
    const end = chosen.at(-1);
    if (end === undefined || places.length <= placesMax) this.#lastOf.delete(name);
    else this.#lastOf.set(name, end.id);
    return chosen;
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

  async #examineCap(service: string, id: string): Promise<number> {
    const { caps, log, now } = this.#context;
    const taken = (await caps.places(id, now())).filter(({ until }) => until === undefined);
    const places = this.#turn(id, taken);
    const jobs = await log.loadJobs(places.map((place) => place.id));
    for (const [index, place] of places.entries()) {
      const job = jobs[index];
      if (job?.state === "active" && job.token === place.token) continue;
      await this.#examinePlace(service, id, place, await log.load(place.id));
    }
    return places.length;
  }

  async #examinePlace(
    service: string,
    id: string,
    place: CapPlace,
    logged: ReadJob,
  ): Promise<void> {
    const { caps, leases, now } = this.#context;
    const { job } = logged;
    if (job?.state === "active" && job.token === place.token) return;
    if (job === null || job.token < place.token) {
      // Another claim of the same start may have taken a place of its own since then.
      if (await this.#isGivenUp(service, place, logged)) await caps.freeOf([id], place.by);
      return;
    }
    const until = await leases.mayRunUntil(logged, place.token, now());
    if (until === null) await caps.free([id], place.id, place.token);
    else await caps.hold([id], place.id, place.token, until);
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

  /** Whether a job's newest ticket is still to be taken up. Where no consumer is, nothing was. */
  async #hasTicket(job: Job, { ticketSeq }: ReadJob): Promise<boolean> {
    const { givenOut, subjects, now } = this.#context;
    if (job.runAt > now()) return true;
    const consumer = subjects.consumer(job, priorityLane(job.priority));
    const known = this.#givenOut.get(consumer) ?? givenOut.upTo(consumer);
    this.#givenOut.set(consumer, known);
    return ticketSeq > ((await known) ?? 0);
  }
}

/** What those are called that have a slot of a key. */
function slotsOf(id: string): string {
  return `${id}/slots`;
}

/** Whether a member may not stand where its job does, or may have no ticket. */
function mayBeAmiss({ service }: KeyState, member: KeyMember, job: Job | null): boolean {
  if (job === null || job.service !== service || job.run < member.run) return true;
  if (job.state === "active") return false;
  return isEnded(job.state) || member.stands === "slot" || !isCurrent(member, job);
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
