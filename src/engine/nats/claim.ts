/**
 * Claiming: takes tickets from the consumers of lanes, as many as there are places for, and has their jobs started.
 */
import type { ClaimAsk, ClaimedJob, ClaimLane } from "../engine.js";
import { capsOf } from "./caps.js";
import { type ConsumedLane, Consumers, laneName } from "./consumers.js";
import { FirstFault } from "./first-fault.js";
import { FoundEmpty } from "./found-empty.js";
import type { News, Where } from "./news.js";
import type { OwnTickets } from "./own-tickets.js";
import { type Pauses, queueOf } from "./pauses.js";
import type { Delivery } from "./port.js";
import { type Room, Rooms, type RoomsContext } from "./rooms.js";
import { Standing, type StandingContext } from "./standing.js";
import { JobStarts, type Started, type StartLane, type StartsContext } from "./starts.js";
import { type LaneName, type PriorityLane, priorityLanes } from "./subjects.js";

/** What part of the shortest lease a claim may spend on looking for more when it has started something. */
const hurryShare = 10;

/** How often a consumer is made again that somebody removes. */
const roundsMax = 10;

/** What claims need of the engine. */
export interface ClaimContext extends StartsContext, RoomsContext, StandingContext {
  readonly news: News;
  readonly pauses: Pauses;
  readonly ownTickets: OwnTickets;
  /** Whether hints at jobs that can be claimed are heard, as far as none is lost. */
  readonly areHintsHeard: () => boolean;
}

/** A lane with the places that are left in it. */
interface OpenLane extends StartLane {
  readonly ask: ClaimLane;
  readonly name: LaneName;
  free: number;
}

/** How many jobs of a lane may be started now. */
function placesOf({ free, caps }: OpenLane): number {
  return caps.length === 0 ? free : Math.min(free, ...caps.map(({ left }) => left));
}

/** What was taken from the consumers of lanes. */
type Taken = ReadonlyMap<ClaimLane, readonly Delivery[]>;

const noneTaken: Taken = new Map();
const nonePaused: ReadonlySet<string> = new Set();
const noneStarted = { jobs: [], expired: 0, isDrained: true };

/** What a claim fills, and from where. */
interface Filling {
  readonly jobs: ClaimedJob[];
  readonly open: readonly OpenLane[];
  readonly ask: ClaimAsk;
  /** The queues that are paused, which are asked for beside the first tickets. */
  readonly pausing: Promise<ReadonlySet<string>>;
  /** Whether a consumer is asked at all. */
  readonly isAsked: (consumer: string) => boolean;
  /** What went wrong in single lanes. It must not keep the other lanes' jobs from whoever runs them. */
  readonly faults: FirstFault;
}

/** The claims of a process. */
export class Claims {
  readonly #context: ClaimContext;
  readonly #starts: JobStarts;
  readonly #rooms: Rooms;
  readonly #consumers: Consumers;
  readonly #foundEmpty: FoundEmpty;
  readonly #standing: Standing;
  /** The last claim found the end of every lane that it looked at, in queues that are not paused. */
  #isQuiet = false;

  constructor(context: ClaimContext) {
    this.#context = context;
    this.#starts = new JobStarts(context);
    this.#rooms = new Rooms(context);
    this.#consumers = new Consumers(context);
    this.#foundEmpty = new FoundEmpty(context.now, context.areHintsHeard);
    this.#standing = new Standing(context);
  }

  /** Makes what claims from lanes take tickets from. */
  prepare(lanes: readonly ConsumedLane[]): Promise<void> {
    return this.#consumers.prepare(lanes);
  }

  /** Starts jobs, at most the free places: those whose tickets have come by themselves, or else what is looked for. */
  claim(wish: ClaimAsk): Promise<readonly ClaimedJob[]> {
    return this.#standing.during(async () => {
      const arrived = this.#arrived(wish);
      if (arrived.size > 0) return this.#startArrived(wish, arrived);
      const jobs = await this.#look(wish);
      if (jobs.length === 0) this.#stand(wish);
      return jobs;
    });
  }

  /** Whether what a hint tells of comes by itself, so that nobody has to look for it. */
  awaits(where: Where): boolean {
    return where !== null && this.#standing.awaits(where);
  }

  /** Gives back what comes from now on. */
  close(): void {
    this.#standing.close();
  }

  /** What came for lanes by itself, as far as places reach. */
  #arrived({ lanes, limit }: ClaimAsk): Taken {
    if (!this.#standing.hasArrived) return noneTaken;
    const taken = new Map<ClaimLane, readonly Delivery[]>();
    let left = limit;
    for (const lane of lanes) {
      const places = Math.min(lane.free, left);
      const deliveries = this.#standing.take(this.#consumersOf(lane), places);
      if (deliveries.length > 0) taken.set(lane, deliveries);
      left -= deliveries.length;
    }
    return taken;
  }

  /** Starts what came by itself, which waits for nothing else. */
  async #startArrived(wish: ClaimAsk, arrived: Taken): Promise<readonly ClaimedJob[]> {
    const { news, onArrival } = this.#context;
    const ask = { ...wish, lanes: [...arrived.keys()] };
    const jobs: ClaimedJob[] = [];
    const faults = new FirstFault();
    const [rooms, paused] = await this.#orGiveBack(
      this.#conditions(ask),
      [...arrived.values()].flat(),
    );
    await this.#startTaken({ jobs, faults }, openLanes(ask, rooms, paused), arrived, ask.limit);
    this.#rooms.remember(rooms.values());
    if (jobs.length === 0) faults.rethrow();
    // What hints have told is for the next claim.
    if (!news.isEmpty) onArrival();
    return jobs;
  }

  /** The room under the caps of lanes, and the queues that are paused. */
  async #conditions(ask: ClaimAsk): Promise<[ReadonlyMap<string, Room>, ReadonlySet<string>]> {
    const isOpen = this.#context.pauses.areOpen(ask.lanes);
    return Promise.all([this.#rooms.open(ask.lanes), isOpen ? nonePaused : this.#paused(ask)]);
  }

  /** Has tickets that come handed over at once. Under caps they would be handed over again and again while there is no room. */
  #stand({ lanes }: ClaimAsk): void {
    const { areHintsHeard, pauses } = this.#context;
    if (!areHintsHeard()) return;
    const open = lanes.filter((lane) => capsOf(lane).length === 0 && !pauses.wasAny([lane]));
    this.#standing.leave(
      open.flatMap((lane) =>
        this.#consumersOf(lane).map((consumer) => ({ consumer, service: lane.service })),
      ),
    );
  }

  /** Starts jobs that wait, higher priority lanes first. */
  async #look(wish: ClaimAsk): Promise<readonly ClaimedJob[]> {
    const jobs: ClaimedJob[] = [];
    const isAsked = this.#isAsked(wish);
    const lanes = wish.lanes.filter((lane) => this.#consumersOf(lane).some(isAsked));
    if (lanes.length === 0) return jobs;
    const ask = { ...wish, lanes };
    const isTight = ask.lanes.some((lane) => this.#rooms.isTight(lane));
    const isQuiet = this.#isQuiet && !isTight && ask.limit >= ask.lanes.length;
    this.#isQuiet = true;
    const pausing = this.#paused(ask);
    // Whoever takes something first hears of a failure.
    pausing.catch(() => {});
    const faults = new FirstFault();
    const taking = isQuiet ? this.#takeAll(ask, isAsked, faults) : noneTaken;
    const conditions = Promise.all([
      this.#rooms.open(ask.lanes),
      isQuiet || this.#context.pauses.wasAny(ask.lanes) ? pausing : nonePaused,
    ]);
    // What is taken beside them is waited for, so that none of it is left behind.
    const [taken] = await Promise.all([taking, conditions.catch(() => {})]);
    const [rooms, paused] = await this.#orGiveBack(conditions, [...taken.values()].flat());
    const open = openLanes(ask, rooms, paused);
    if (isQuiet) await this.#startTaken({ jobs, faults }, open, taken, shareOf(ask));
    if (!isQuiet || !this.#isQuiet) await this.#fill({ jobs, open, ask, pausing, isAsked, faults });
    this.#rooms.remember(rooms.values());
    // What has started is the worker's, whatever went wrong besides.
    if (jobs.length === 0) faults.rethrow();
    return jobs;
  }

  /**
   * Which consumers are asked: all but those that were found empty a moment ago and that no hint has told of since. Where
   * that leaves none, a claim that a hint has led to asks none, and any other asks all.
   */
  #isAsked({ lanes }: ClaimAsk): (consumer: string) => boolean {
    const news = this.#context.news.take();
    this.#foundEmpty.told(news);
    const isLeft = (consumer: string) => !this.#foundEmpty.has(consumer);
    const isAnyLeft = lanes.some((lane) => this.#consumersOf(lane).some(isLeft));
    const isTold = news !== null && news.size > 0;
    return isAnyLeft || isTold ? isLeft : () => true;
  }

  #consumersOf(lane: ClaimLane): readonly string[] {
    return this.#consumers.namesOf(lane);
  }

  /**
   * Where nothing waited the last time, little will wait now: all lanes are asked at once, and whether their queues are
   * paused, too, so that a job that has just come is started after one round trip instead of four.
   */
  async #takeAll(ask: ClaimAsk, isAsked: Filling["isAsked"], faults: FirstFault): Promise<Taken> {
    const share = shareOf(ask);
    const taken = ask.lanes
      .filter(({ free }) => free > 0)
      .map(async (lane): Promise<readonly [ClaimLane, readonly Delivery[]]> => {
        const limit = Math.min(lane.free, share, ...capsOf(lane).map(({ max }) => max));
        const name = laneName(lane);
        const fetches = priorityLanes
          .filter((each) => isAsked(this.#context.subjects.consumer(name, each)))
          .map((each) =>
            this.#deliveries(lane, each, limit).catch((error: unknown) => {
              faults.note(error);
              return [];
            }),
          );
        const deliveries = await Promise.all(fetches);
        // Where there is more, the next look goes in order.
        if (deliveries.some(({ length }) => length === limit)) this.#isQuiet = false;
        return [lane, deliveries.flat()];
      });
    return new Map(await Promise.all(taken));
  }

  /** Starts what was taken at once, as far as places reach; the rest is offered again. */
  async #startTaken(
    { jobs, faults }: Pick<Filling, "jobs" | "faults">,
    open: readonly OpenLane[],
    taken: Taken,
    share: number,
  ): Promise<void> {
    const lanes = new Map(open.map((lane) => [lane.ask, lane]));
    const start = async ([name, deliveries]: readonly [ClaimLane, readonly Delivery[]]) => {
      if (deliveries.length === 0) return;
      const lane = lanes.get(name);
      if (!lane) return this.#giveBack(deliveries);
      try {
        const started = await this.#startAll(lane, deliveries, share);
        jobs.push(...started.jobs);
        if (started.expired > 0) this.#isQuiet = false;
      } catch (error) {
        faults.note(error);
      }
    };
    const isCapped = ([{ typeMaxActive, queueMaxActive }]: readonly [ClaimLane, unknown]) =>
      typeMaxActive !== undefined || queueMaxActive !== undefined;
    await Promise.all([...taken].filter((each) => !isCapped(each)).map(start));
    // Lanes under caps go one after the other, because they may share one.
    for (const each of [...taken].filter(isCapped)) await start(each);
  }

  /** Takes from one priority lane after the other. */
  async #fill(filling: Filling): Promise<void> {
    const { jobs, ask, faults, pausing } = filling;
    const leaseMs = Math.min(...ask.lanes.map((lane) => lane.leaseMs));
    // Leases run from the start, so that who has something does not look for more for long.
    const mayGoOn = () =>
      (jobs[0]?.job.startedAt ?? this.#context.now()) + leaseMs / hurryShare >= this.#context.now();
    for (let next = 0; next < priorityLanes.length && mayGoOn(); ) {
      const priority = priorityLanes[next] as PriorityLane;
      const expired = await this.#fillFrom(priority, filling, mayGoOn);
      // A job that expired may have passed its slot on to another of its key, in whatever lane.
      if (expired > 0) this.#foundEmpty.told(null);
      next = expired > 0 ? 0 : next + 1;
      // Who cannot tell what is paused can start nothing of the other priorities either.
      if (!faults.isEmpty && !(await isKnown(pausing))) break;
    }
  }

  /** Takes what there is in one priority lane, as far as places reach. Gives how many jobs had expired. */
  async #fillFrom(
    priority: PriorityLane,
    filling: Filling,
    mayGoOn: () => boolean,
  ): Promise<number> {
    const { jobs, ask, isAsked, faults } = filling;
    const { subjects } = this.#context;
    let expired = 0;
    let lanes = filling.open.filter(({ name }) => isAsked(subjects.consumer(name, priority)));
    while (jobs.length < ask.limit && mayGoOn()) {
      lanes = lanes.filter((lane) => placesOf(lane) > 0);
      const left = ask.limit - jobs.length;
      const chosen = lanes.slice(0, left);
      if (chosen.length === 0) break;
      const share = Math.floor(left / chosen.length);
      const drained = new Set<OpenLane>();
      const fetch = async (lane: OpenLane) => {
        try {
          const fetched = await this.#fetch(lane, priority, share, filling);
          jobs.push(...fetched.jobs);
          expired += fetched.expired;
          if (fetched.isDrained) drained.add(lane);
          else this.#isQuiet = false;
        } catch (error) {
          faults.note(error);
          // Its other priorities have consumers of their own.
          drained.add(lane);
        }
      };
      // Lanes under caps go one after the other, because they may share one.
      await Promise.all(chosen.filter(({ caps }) => caps.length === 0).map(fetch));
      for (const lane of chosen.filter(({ caps }) => caps.length > 0))
        if (mayGoOn()) await fetch(lane);
      lanes = lanes.filter((lane) => !drained.has(lane));
    }
    return expired;
  }

  /** Takes tickets of one lane and starts their jobs, unless its queue has been paused meanwhile. */
  async #fetch(
    lane: OpenLane,
    priority: PriorityLane,
    share: number,
    { pausing }: Filling,
  ): Promise<Started & { readonly isDrained: boolean }> {
    const limit = Math.min(placesOf(lane), share);
    if (limit <= 0) return noneStarted;
    const deliveries = await this.#deliveries(lane.ask, priority, limit);
    const paused = await this.#orGiveBack(pausing, deliveries);
    if (paused.has(queueOf(lane.ask))) {
      lane.free = 0;
      this.#giveBack(deliveries);
      return noneStarted;
    }
    const started = await this.#startAll(lane, deliveries, limit);
    return { ...started, isDrained: deliveries.length < limit };
  }

  /** Starts the jobs of tickets that were taken from a lane, as far as places reach; the rest is offered again. */
  async #startAll(
    lane: OpenLane,
    deliveries: readonly Delivery[],
    limit: number,
  ): Promise<Started> {
    if (deliveries.length > 0) await this.#orGiveBack(this.#rooms.count(lane.caps), deliveries);
    const places = Math.max(0, Math.min(placesOf(lane), limit));
    if (deliveries.length > places) this.#giveBack(deliveries.slice(places));
    const kept = deliveries.length > places ? deliveries.slice(0, places) : deliveries;
    const started = await this.#starts.startAll(lane, kept);
    lane.free -= started.jobs.length;
    for (const room of lane.caps) room.left -= started.jobs.length;
    // What was given back is offered again, and nobody tells of that.
    if (started.jobs.length < deliveries.length)
      this.#foundEmpty.told(new Set(this.#consumersOf(lane.ask)));
    return started;
  }

  /** What has to be known before anything starts. Who cannot tell starts nothing, and nobody is to wait for what was taken. */
  async #orGiveBack<Known>(known: Promise<Known>, taken: readonly Delivery[]): Promise<Known> {
    return known.catch((error: unknown) => {
      this.#giveBack(taken);
      throw error;
    });
  }

  #giveBack(deliveries: readonly Delivery[]): void {
    this.#isQuiet = false;
    for (const delivery of deliveries) this.#context.port.giveBack(delivery);
  }

  /** The queues that are paused. A paused queue is not pulled: the next look asks first. */
  async #paused({ lanes }: ClaimAsk): Promise<ReadonlySet<string>> {
    const paused = await this.#context.pauses.read(lanes);
    if (paused.size > 0) this.#isQuiet = false;
    return paused;
  }

  async #deliveries(
    lane: ClaimLane,
    priority: PriorityLane,
    limit: number,
  ): Promise<readonly Delivery[]> {
    const { port, subjects } = this.#context;
    const consumer = subjects.consumer(laneName(lane), priority);
    for (let round = 0; round < roundsMax; round++) {
      await this.#consumers.ensure(lane, priority);
      const wasEmpty = this.#foundEmpty.ask(consumer);
      const fetched = await port.fetch(consumer, limit);
      const deliveries = fetched && (await this.#withOwn(consumer, limit, fetched));
      if (deliveries !== null && deliveries.length < limit) wasEmpty();
      if (deliveries?.length === 0) this.#standing.foundEmpty(consumer);
      else if (deliveries !== null) this.#standing.used(consumer);
      if (deliveries !== null) return deliveries;
      // An operator has removed it; what was not acknowledged comes again from a new one.
      this.#consumers.forget(consumer);
    }
    return [];
  }

  /** What a consumer gave out, with what this process has stored itself and the consumer had not heard of yet. */
  async #withOwn(
    consumer: string,
    limit: number,
    fetched: readonly Delivery[],
  ): Promise<readonly Delivery[]> {
    const { ownTickets } = this.#context;
    for (const { seq } of fetched) ownTickets.givenOut(consumer, seq);
    if (fetched.length >= limit) return fetched;
    const late = await ownTickets.late(consumer, limit - fetched.length);
    return late.length === 0 ? fetched : [...fetched, ...late];
  }
}

/** Whether what was asked came to be known. */
function isKnown(asked: Promise<unknown>): Promise<boolean> {
  return asked.then(
    () => true,
    () => false,
  );
}

/** How many of the places that a claim has are for each of its lanes. */
function shareOf({ limit, lanes }: ClaimAsk): number {
  return Math.floor(limit / lanes.length);
}

/** The lanes whose queue is not paused, each with its caps. */
function openLanes(
  { lanes, worker }: ClaimAsk,
  rooms: ReadonlyMap<string, Room>,
  paused: ReadonlySet<string>,
): readonly OpenLane[] {
  return lanes
    .filter((lane) => !paused.has(queueOf(lane)))
    .map((lane) => ({
      ask: lane,
      name: laneName(lane),
      caps: capsOf(lane).flatMap(({ id }) => rooms.get(id) ?? []),
      leaseMs: lane.leaseMs,
      worker,
      free: lane.free,
    }));
}
