/**
 * Claiming: takes tickets from the consumers of lanes, folds what became of their jobs, takes places under caps,
 * and starts what may start. A ticket that is old, or whose job cannot run now, is acknowledged and dropped.
 */
import { claimVerdict, expiredEvent, startedEvent } from "../../core/decide.js";
import { evolve } from "../../core/evolve.js";
import type { Job } from "../../core/job.js";
import type { ClaimAsk, ClaimedJob, ClaimLane } from "../engine.js";
import { eventOf } from "../event-text.js";
import { type QueueSettings, recordId } from "../record.js";
import { type CapPlace, type CapScope, capsOf } from "./caps.js";
import type { Changes } from "./changes.js";
import { createdJob, type LoggedJob, messageOf, type StartFacts } from "./entry.js";
import type { Held } from "./held.js";
import type { EngineParts } from "./parts.js";
import type { Delivery } from "./port.js";
import { type LaneName, type PriorityLane, priorityLanes } from "./subjects.js";

/** What part of the shortest lease a claim may spend on looking for more when it has started something. */
const hurryShare = 10;

/** How often a claim looks at a job again because something came in between. */
const roundsMax = 10;

/** What claims need of the engine. */
export interface ClaimContext extends EngineParts {
  readonly changes: Changes;
  readonly held: Held;
  readonly session: string;
  /** How many jobs run under a cap by the read model. */
  readonly activeUnder: (scope: CapScope) => Promise<number>;
}

/** A lane with the places that are left in it. */
interface OpenLane {
  readonly ask: ClaimLane;
  readonly name: LaneName;
  readonly caps: readonly Room[];
  free: number;
}

/** A cap with the room that is left under it in this claim. Lanes may share it. */
interface Room extends CapScope {
  readonly id: string;
  max: number;
  left: number;
}

/** How many jobs of a lane may be started now. */
function placesOf({ free, caps }: OpenLane): number {
  return Math.min(free, ...caps.map(({ left }) => left));
}

/** What was taken from the consumers of lanes. */
type Taken = ReadonlyMap<ClaimLane, readonly Delivery[]>;

const noneTaken: Taken = new Map();

/** What tickets gave: jobs that were started, and how many there were whose deadline had come. */
interface Started {
  readonly jobs: readonly ClaimedJob[];
  readonly expired: number;
}

/** What is to be done with a ticket. */
type Verdict = "start" | "expire" | "drop" | "leave";

/** The claims of a process. */
export class Claims {
  readonly #context: ClaimContext;
  readonly #consumers = new Map<string, Promise<void>>();
  /** The last claim found the end of every lane that it looked at, in queues that are not paused. */
  #isQuiet = false;

  constructor(context: ClaimContext) {
    this.#context = context;
  }

  /** Starts jobs, at most the free places, higher priority lanes first. */
  async claim(ask: ClaimAsk): Promise<readonly ClaimedJob[]> {
    const jobs: ClaimedJob[] = [];
    const isUncapped = ask.lanes.every((lane) => capsOf(lane).length === 0);
    const isQuiet = this.#isQuiet && isUncapped && ask.limit >= ask.lanes.length;
    this.#isQuiet = true;
    const [open, taken] = await Promise.all([
      this.#openLanes(ask),
      isQuiet ? this.#takeAll(ask) : noneTaken,
    ]);
    try {
      if (isQuiet) await this.#startTaken(jobs, open, taken, ask);
      if (!isQuiet || !this.#isQuiet) await this.#fill(jobs, open, ask);
    } catch (error) {
      // What has started is the worker's, whatever went wrong after it.
      if (jobs.length === 0) throw error;
    }
    return jobs;
  }

  /**
   * Where nothing waited the last time, little will wait now: all lanes are asked at once, and whether their queues are
   * paused, too, so that a job that has just come is started after one round trip instead of four.
   */
  async #takeAll(ask: ClaimAsk): Promise<Taken> {
    const share = Math.floor(ask.limit / ask.lanes.length);
    const taken = ask.lanes
      .filter(({ free }) => free > 0)
      .map(async (lane): Promise<readonly [ClaimLane, readonly Delivery[]]> => {
        const limit = Math.min(lane.free, share);
        const name = laneName(lane);
        const fetches = priorityLanes.map((each) => this.#deliveries(name, lane, each, limit));
        const deliveries = await Promise.all(fetches);
        // Where there is more, the next look goes in order.
        if (deliveries.some(({ length }) => length === limit)) this.#isQuiet = false;
        return [lane, deliveries.flat()];
      });
    return new Map(await Promise.all(taken));
  }

  /** Starts what was taken at once, as far as places reach; the rest is offered again. */
  async #startTaken(
    jobs: ClaimedJob[],
    open: readonly OpenLane[],
    taken: Taken,
    ask: ClaimAsk,
  ): Promise<void> {
    const lanes = new Map(open.map((lane) => [lane.ask, lane]));
    const starting = [...taken].map(async ([name, deliveries]) => {
      const lane = lanes.get(name);
      const share = Math.floor(ask.limit / ask.lanes.length);
      const places = lane ? Math.min(placesOf(lane), share) : 0;
      for (const delivery of deliveries.slice(places)) this.#context.port.giveBack(delivery);
      if (deliveries.length > places) this.#isQuiet = false;
      if (!lane) return;
      const started = await this.#startAll(lane, deliveries.slice(0, places), ask.worker);
      lane.free -= started.jobs.length;
      jobs.push(...started.jobs);
      if (started.expired > 0) this.#isQuiet = false;
    });
    await Promise.all(starting);
  }

  /** Takes from one priority lane after the other. */
  async #fill(jobs: ClaimedJob[], open: readonly OpenLane[], ask: ClaimAsk): Promise<void> {
    const leaseMs = Math.min(...ask.lanes.map((lane) => lane.leaseMs));
    // Leases run from the start, so that who has something does not look for more for long.
    const mayGoOn = () =>
      (jobs[0]?.job.startedAt ?? this.#context.now()) + leaseMs / hurryShare >= this.#context.now();
    for (let next = 0; next < priorityLanes.length && mayGoOn(); ) {
      const priority = priorityLanes[next] as PriorityLane;
      const expired = await this.#fillFrom(priority, jobs, open, ask, mayGoOn);
      // A job that expired may have passed its slot on to another of its key, in whatever lane.
      next = expired > 0 ? 0 : next + 1;
    }
  }

  /** Takes what there is in one priority lane, as far as places reach. Gives how many jobs had expired. */
  async #fillFrom(
    priority: PriorityLane,
    jobs: ClaimedJob[],
    open: readonly OpenLane[],
    ask: ClaimAsk,
    mayGoOn: () => boolean,
  ): Promise<number> {
    let expired = 0;
    let lanes = open;
    while (jobs.length < ask.limit && mayGoOn()) {
      lanes = lanes.filter((lane) => placesOf(lane) > 0);
      const left = ask.limit - jobs.length;
      const chosen = lanes.slice(0, left);
      if (chosen.length === 0) break;
      const share = Math.floor(left / chosen.length);
      const drained = new Set<OpenLane>();
      const fetch = async (lane: OpenLane) => {
        const fetched = await this.#fetch(lane, priority, share, ask.worker);
        jobs.push(...fetched.jobs);
        expired += fetched.expired;
        if (fetched.isDrained) drained.add(lane);
        else this.#isQuiet = false;
      };
      // Lanes under caps go one after the other, because they may share one.
      await Promise.all(chosen.filter(({ caps }) => caps.length === 0).map(fetch));
      for (const lane of chosen.filter(({ caps }) => caps.length > 0))
        if (mayGoOn()) await fetch(lane);
      lanes = lanes.filter((lane) => !drained.has(lane));
    }
    return expired;
  }

  /** The lanes whose queue is not paused, each with its caps. */
  async #openLanes(ask: ClaimAsk): Promise<readonly OpenLane[]> {
    const paused = new Set<string>();
    const queues = new Set(ask.lanes.map(({ service, queue }) => recordId.queue(service, queue)));
    const rooms = new Map<string, Room>();
    for (const { id, max, ...scope } of ask.lanes.flatMap(capsOf))
      rooms.set(id, { id, max: Math.min(max, rooms.get(id)?.max ?? max), left: 0, ...scope });
    await Promise.all([
      ...[...queues].map(async (id) => {
        const settings = (await this.#context.records.get(id)).record?.body as unknown;
        if ((settings as QueueSettings | undefined)?.paused !== true) return;
        paused.add(id);
        // A paused queue is not pulled: the next look asks first.
        this.#isQuiet = false;
      }),
      ...[...rooms.values()].map((room) => this.#measure(room)),
    ]);
    return ask.lanes
      .filter(({ service, queue }) => !paused.has(recordId.queue(service, queue)))
      .map((lane) => ({
        ask: lane,
        name: laneName(lane),
        caps: capsOf(lane).flatMap(({ id }) => rooms.get(id) ?? []),
        free: lane.free,
      }));
  }

  /** Counts the room under a cap. Jobs that were started where nobody knew of the cap count, too. */
  async #measure(room: Room): Promise<void> {
    const { caps, activeUnder, now } = this.#context;
    const places = await caps.places(room.id, now());
    const counted = places.filter(({ until }) => until === undefined).length;
    const uncounted = Math.max(0, (await activeUnder(room)) - counted);
    room.max -= uncounted;
    room.left = room.max - places.length;
  }

  /** Takes tickets of one lane and starts their jobs. */
  async #fetch(
    lane: OpenLane,
    priority: PriorityLane,
    share: number,
    worker: string,
  ): Promise<Started & { readonly isDrained: boolean }> {
    const limit = Math.min(placesOf(lane), share);
    if (limit <= 0) return { jobs: [], expired: 0, isDrained: true };
    const deliveries = await this.#deliveries(lane.name, lane.ask, priority, limit);
    const { jobs, expired } = await this.#startAll(lane, deliveries, worker);
    lane.free -= jobs.length;
    for (const room of lane.caps) room.left -= jobs.length;
    return { jobs, expired, isDrained: deliveries.length < limit };
  }

  async #deliveries(
    name: LaneName,
    ask: ClaimLane,
    priority: PriorityLane,
    limit: number,
  ): Promise<readonly Delivery[]> {
    const { port, subjects } = this.#context;
    const consumer = subjects.consumer(name, priority);
    for (let round = 0; round < roundsMax; round++) {
      let ensured = this.#consumers.get(consumer);
      if (ensured === undefined) {
        const filter = subjects.ticketFilter(name, priority);
        ensured = port.ensureConsumer({ name: consumer, filter, ackWaitMs: ask.leaseMs });
        ensured.catch(() => this.#consumers.delete(consumer));
        this.#consumers.set(consumer, ensured);
      }
      await ensured;
      const deliveries = await port.fetch(consumer, limit);
      if (deliveries !== null) return deliveries;
      // An operator has removed it; what was not acknowledged comes again from a new one.
      this.#consumers.delete(consumer);
    }
    return [];
  }

  async #startAll(
    lane: OpenLane,
    deliveries: readonly Delivery[],
    worker: string,
  ): Promise<Started> {
    const looks: readonly Look[] = deliveries.map((delivery) => this.#look(delivery));
    const found: readonly Candidate[] = areKnown(looks) ? looks : await Promise.all(looks);
    const startable = found.filter(({ verdict }) => verdict === "start");
    const withPlace = await this.#takePlaces(lane, startable);
    const claimed = withPlace.map((candidate) => this.#start(lane, candidate, worker));
    const dropped = found.filter(({ verdict }) => verdict === "drop" || verdict === "expire");
    // A ticket that could not be dropped comes again.
    const dropping = this.#drop(dropped, worker).catch((error: unknown) => ({ error }));
    const jobs = await allStarted(claimed);
    const failed = await dropping;
    if (failed && jobs.length === 0) throw failed.error;
    return { jobs, expired: dropped.filter(({ verdict }) => verdict === "expire").length };
  }

  async #drop(dropped: readonly Candidate[], worker: string): Promise<void> {
    for (const { verdict, logged } of dropped)
      if (verdict === "expire" && logged.job) await this.#expire(logged.job, worker);
    await this.#context.port.acknowledge(dropped.map(({ delivery }) => delivery));
  }

  /** What a ticket's job has come to. A fresh creation is all there is of its job, unless the start is refused. */
  #look(delivery: Delivery): Look {
    const event = eventOf(delivery);
    const isFresh = event.name === "created" && !delivery.isRedelivery;
    if (!isFresh) return this.#lookIntoLog(delivery, event.jobId);
    const logged = createdJob(event, delivery.seq);
    const verdict = this.#verdict(delivery, logged);
    if (typeof verdict === "string") return this.#candidate(delivery, logged, verdict);
    return verdict.then((given) => this.#candidate(delivery, logged, given));
  }

  async #lookIntoLog(delivery: Delivery, jobId: string): Promise<Candidate> {
    const logged = await this.#context.log.load(jobId);
    return this.#candidate(delivery, logged, await this.#verdict(delivery, logged));
  }

  #candidate(delivery: Delivery, logged: LoggedJob, verdict: Verdict): Candidate {
    return { delivery, logged, verdict, claim: this.#context.newEventId() };
  }

  #verdict(delivery: Delivery, logged: LoggedJob): Verdict | Promise<Verdict> {
    const { now } = this.#context;
    const { job } = logged;
    // What was read is older than the ticket itself: it is offered again.
    if (logged.lastSeq < delivery.seq) return "leave";
    if (job === null || delivery.seq < logged.ticketSeq) return "drop";
    if (job.state === "active") return this.#verdictOnActive(logged);
    if (job.state !== "pending" && job.state !== "retry") return "drop";
    // A ticket of an earlier start does not shorten the wait. One that was written when the time had come counts, even if
    // the clock has gone back since.
    if (job.runAt > now() && eventOf(delivery).at < job.runAt) return "drop";
    if (job.key) return this.#verdictOnKeyed(job);
    return claimVerdict(job, now()) === "expire" ? "expire" : "start";
  }

  async #verdictOnActive(logged: LoggedJob): Promise<Verdict> {
    const lease = await this.#context.leases.of(logged);
    return lease && lease.until > this.#context.now() ? "leave" : "drop";
  }

  async #verdictOnKeyed(job: Job): Promise<Verdict> {
    if (!(await this.#context.keys.hasSlot(job))) return "drop";
    return claimVerdict(job, this.#context.now()) === "expire" ? "expire" : "start";
  }

  /** Takes places under every cap of a lane; who gets none is offered again. */
  async #takePlaces(
    { caps }: OpenLane,
    candidates: readonly Candidate[],
  ): Promise<readonly Candidate[]> {
    const { port, now, caps: records } = this.#context;
    let left = candidates;
    for (const [index, cap] of caps.entries()) {
      if (left.length === 0) break;
      const wanted = left.map((candidate) => placeFor(candidate, now()));
      const granted = new Set((await records.take(cap, wanted, now())).map(({ by }) => by));
      const passed = left.filter(({ claim }) => !granted.has(claim));
      // Others were faster: there is no room left, whatever was counted before.
      if (passed.length > 0) cap.left = 0;
      for (const candidate of passed) {
        await this.#freePlaces(caps.slice(0, index), candidate);
        port.giveBack(candidate.delivery);
      }
      left = left.filter(({ claim }) => granted.has(claim));
    }
    return left;
  }

  #freePlaces(caps: readonly { readonly id: string }[], { claim }: Candidate): Promise<void> {
    return this.#context.caps.freeOf(
      caps.map(({ id }) => id),
      claim,
    );
  }

  #start(lane: OpenLane, candidate: Candidate, worker: string): Promise<ClaimedJob | null> {
    return this.#store(lane, candidate, candidate.logged, worker).then(
      (claimed) => claimed ?? this.#startAgain(lane, candidate, worker),
    );
  }

  /** Stores the start of a job as it was found; gives `null` if something came in between. */
  #store(
    lane: OpenLane,
    { delivery: { reply } }: Candidate,
    logged: LoggedJob,
    worker: string,
  ): Promise<ClaimedJob | null> {
    const { log, held, subjects, session, newEventId } = this.#context;
    const { job } = logged;
    if (job === null) return Promise.resolve(null);
    // A clock may have gone back since the ticket was written; nothing starts before it is due.
    const now = Math.max(this.#context.now(), job.runAt);
    const origin = { eventId: newEventId(), actor: `worker:${worker}` } as const;
    const started = startedEvent(job, origin, worker, now);
    const caps = lane.caps.map(({ id }) => id);
    const sheet = held.enter(session);
    const facts: StartFacts = { leaseUntil: now + lane.ask.leaseMs, sheet, caps };
    const expect = { filter: subjects.jobFilter(job.service, job.id), seq: logged.lastSeq };
    const message = messageOf(subjects.event(started), started, expect, facts);
    const failed = (error: unknown) => {
      held.leave(sheet);
      throw error;
    };
    return log.append({ jobId: job.id, message }).then((publication) => {
      if (publication.outcome !== "stored") {
        held.leave(sheet);
        return null;
      }
      const active = evolve(job, started).job;
      if (active === null) throw new Error(`Job ${job.id} was started and is gone.`);
      const starts = new Map(logged.starts).set(active.token, facts);
      const next = { ...logged, job: active, lastSeq: publication.seq, starts };
      held.set(job.id, active.token, { delivery: { reply }, logged: next });
      return { job: active, leaseUntil: facts.leaseUntil };
    }, failed);
  }

  /** Something came in between: looks at the job again, and starts it if it still may. */
  async #startAgain(
    lane: OpenLane,
    candidate: Candidate,
    worker: string,
  ): Promise<ClaimedJob | null> {
    const { log, port } = this.#context;
    const { delivery } = candidate;
    const before = candidate.logged.job;
    if (before === null) return null;
    for (let round = 1; round < roundsMax; round++) {
      const logged = await log.load(before.id);
      const verdict = await this.#verdict(delivery, logged);
      // The places were taken for one token.
      if (verdict === "start" && logged.job?.token === before.token) {
        const claimed = await this.#store(lane, candidate, logged, worker);
        if (claimed) return claimed;
        continue;
      }
      await this.#freePlaces(lane.caps, candidate);
      if (verdict === "start") port.giveBack(delivery);
      if (verdict === "drop") await port.acknowledge([delivery]);
      if (verdict === "expire" && logged.job) await this.#expire(logged.job, worker);
      return null;
    }
    return null;
  }

  async #expire(job: Job, worker: string): Promise<void> {
    const { changes, now, newEventId } = this.#context;
    const origin = { eventId: newEventId(), actor: `worker:${worker}` } as const;
    const event = expiredEvent({ ...job, deadline: job.deadline ?? 0 }, origin, now());
    const { service, type, id, version } = job;
    await changes.append({ job: { service, type, id }, expect: { version }, event }, "outside");
  }
}

/** The jobs that were started. One whose start failed does not take the others with it. */
async function allStarted(
  starts: readonly Promise<ClaimedJob | null>[],
): Promise<readonly ClaimedJob[]> {
  const settled = await Promise.allSettled(starts);
  const jobs = settled.flatMap((start) =>
    start.status === "fulfilled" && start.value !== null ? [start.value] : [],
  );
  const failed = settled.find((start) => start.status === "rejected");
  if (failed && jobs.length === 0) throw failed.reason;
  return jobs;
}

/** Whether nothing has to be waited for. */
function areKnown(looks: readonly Look[]): looks is readonly Candidate[] {
  return !looks.some((look) => look instanceof Promise);
}

/** A ticket with its job. */
interface Candidate {
  readonly delivery: Delivery;
  readonly logged: LoggedJob;
  readonly verdict: Verdict;
  /** Tells this claim of the job from others. */
  readonly claim: string;
}

/** A ticket with its job, at once or when that was read. */
type Look = Candidate | Promise<Candidate>;

function placeFor({ logged: { job }, claim }: Candidate, now: number): CapPlace {
  return { id: job?.id ?? "", token: (job?.token ?? 0) + 1, since: now, by: claim };
}

/** A lane's name ends with the version of the type. */
function laneName({ service, queue, type, lane }: ClaimLane): LaneName {
  const typeVersion = Number(lane.slice(lane.lastIndexOf("@") + 1));
  return { service, queue, type, typeVersion };
}
