/**
 * Starting the jobs of tickets: places under caps are taken first, then the starts of a claim are stored together, and
 * where something came in between the job is looked at again. Tickets that are old, or whose job cannot run now, are
 * acknowledged and dropped.
 */
import { claimVerdict, expiredEvent, startedEvent } from "../../core/decide.js";
import type { EventOf } from "../../core/event.js";
import { evolve } from "../../core/evolve.js";
import type { Actor, Job } from "../../core/job.js";
import type { ClaimedJob } from "../engine.js";
import type { Changes } from "./changes.js";
import { messageOf, type StartFacts, startedJob } from "./entry.js";
import type { Held } from "./held.js";
import type { Appended } from "./log.js";
import type { EngineParts } from "./parts.js";
import type { Delivery, EachPublication } from "./port.js";
import type { Room } from "./rooms.js";
import { type Candidate, Tickets } from "./tickets.js";

/** How often a job is looked at again because something came in between. */
const roundsMax = 10;

/** What starting needs of the engine. */
export interface StartsContext extends EngineParts {
  readonly changes: Changes;
  readonly held: Held;
  readonly session: string;
}

/** What jobs are started for: the caps that they count under, how long their leases are, and who runs them. */
export interface StartLane {
  readonly caps: readonly Room[];
  readonly leaseMs: number;
  readonly worker: string;
}

/** What tickets gave: jobs that were started, and how many there were whose deadline had come. */
export interface Started {
  readonly jobs: readonly ClaimedJob[];
  readonly expired: number;
}

/** A ticket whose job has its places, and the claim that they were taken for. */
interface Placed extends Candidate {
  readonly claim?: string;
}

/** The start of a job as it is stored. */
interface Start {
  readonly placed: Placed;
  readonly item: Appended;
  readonly job: Job;
  readonly event: EventOf<"started">;
  readonly facts: StartFacts;
}

/** Starts jobs. */
export class JobStarts {
  readonly #context: StartsContext;
  readonly #tickets: Tickets;

  constructor(context: StartsContext) {
    this.#context = context;
    this.#tickets = new Tickets(context);
  }

  /** Starts the jobs of tickets that may start. */
  async startAll(lane: StartLane, deliveries: readonly Delivery[]): Promise<Started> {
    if (deliveries.length === 0) return { jobs: [], expired: 0 };
    const found = await this.#tickets.look(deliveries);
    const dropped = found.filter(({ verdict }) => verdict === "drop" || verdict === "expire");
    const startable = dropped.length === 0 && !found.some(isLeft) ? found : found.filter(isToStart);
    const placed =
      lane.caps.length === 0 ? startable : await this.#takePlaces(lane.caps, startable);
    // A ticket that could not be dropped comes again.
    const dropping = this.#drop(lane, dropped).catch((error: unknown) => ({ error }));
    const jobs = await this.#start(lane, placed);
    const failed = await dropping;
    if (failed && jobs.length === 0) throw failed.error;
    return { jobs, expired: dropped.filter(({ verdict }) => verdict === "expire").length };
  }

  async #drop(lane: StartLane, dropped: readonly Candidate[]): Promise<void> {
    if (dropped.length === 0) return;
    for (const { verdict, logged } of dropped)
      if (verdict === "expire" && logged.job) await this.#expire(lane, logged.job);
    await this.#context.port.acknowledge(dropped);
  }

  /** Takes places under every cap; who gets none is offered again. */
  async #takePlaces(
    caps: readonly Room[],
    candidates: readonly Candidate[],
  ): Promise<readonly Placed[]> {
    const { port, now, newEventId, caps: records } = this.#context;
    let left = candidates.map((candidate) => ({ ...candidate, claim: newEventId() }));
    for (const [index, cap] of caps.entries()) {
      if (left.length === 0) break;
      const wanted = left.map(({ logged: { job }, claim }) => ({
        id: job?.id ?? "",
        token: (job?.token ?? 0) + 1,
        since: now(),
        by: claim,
      }));
      const granted = new Set((await records.take(cap, wanted, now())).map(({ by }) => by));
      const passed = left.filter(({ claim }) => !granted.has(claim));
      // Others were faster: there is no room left, whatever was counted before.
      if (passed.length > 0) cap.left = 0;
      for (const candidate of passed) {
        await this.#freePlaces(caps.slice(0, index), candidate);
        port.giveBack(candidate);
      }
      left = left.filter(({ claim }) => granted.has(claim));
    }
    return left;
  }

  async #freePlaces(caps: readonly Room[], { claim }: Placed): Promise<void> {
    if (claim === undefined) return;
    await this.#context.caps.freeOf(
      caps.map(({ id }) => id),
      claim,
    );
  }

  /** Stores the starts of jobs as they were found. One that fails does not take the others with it. */
  async #start(lane: StartLane, placed: readonly Placed[]): Promise<readonly ClaimedJob[]> {
    const starts: Start[] = [];
    const again: Promise<ClaimedJob | null>[] = [];
    const actor = actorOf(lane);
    for (const each of placed) {
      const start = this.#startOf(lane, actor, each);
      if (start) starts.push(start);
      else again.push(this.#startAgainLater(lane, each));
    }
    const publications =
      starts.length === 0 ? [] : await this.#context.log.appendEach(starts.map(({ item }) => item));
    const jobs: ClaimedJob[] = [];
    let failed: { readonly error: unknown } | null = null;
    for (let index = 0; index < starts.length; index++) {
      const publication = publications[index] as EachPublication;
      const start = starts[index] as Start;
      if (publication.outcome === "stored") {
        jobs.push(this.#started(start, publication.seq));
        continue;
      }
      this.#context.held.leave(start.facts.sheet);
      if (publication.outcome === "fault") failed ??= publication;
      else again.push(this.#startAgainLater(lane, start.placed));
    }
    for (const settled of again.length === 0 ? [] : await Promise.allSettled(again)) {
      if (settled.status === "rejected") failed ??= { error: settled.reason };
      else if (settled.value) jobs.push(settled.value);
    }
    if (failed && jobs.length === 0) throw failed.error;
    return jobs;
  }

  /** The start of a job as it was found; `null` if its deadline has come since. */
  #startOf({ caps, leaseMs, worker }: StartLane, actor: Actor, placed: Placed): Start | null {
    const { job, lastSeq } = placed.logged;
    if (job === null) return null;
    const { subjects, held, session, newEventId } = this.#context;
    // A clock may have gone back since the ticket was written; nothing starts before it is due.
    const now = Math.max(this.#context.now(), job.runAt);
    if (claimVerdict(job, now) === "expire") return null;
    const event = startedEvent(job, { eventId: newEventId(), actor }, worker, now);
    const capIds = caps.length === 0 ? noCaps : caps.map(({ id }) => id);
    const sheet = held.enter(session);
    const facts: StartFacts = { leaseUntil: now + leaseMs, sheet, caps: capIds };
    const expect = { filter: subjects.jobFilter(job.service, job.id), seq: lastSeq };
    const message = messageOf(subjects.event(event), event, expect, facts);
    return { placed, item: { jobId: job.id, message }, job, event, facts };
  }

  /** Holds a job whose start is stored. */
  #started({ placed, job, event, facts }: Start, seq: number): ClaimedJob {
    const { reply, logged } = placed;
    const active = evolve(job, event).job;
    if (active === null) throw new Error(`Job ${job.id} was started and is gone.`);
    const held = {
      delivery: { reply },
      logged: startedJob(logged, active, seq, facts),
    };
    this.#context.held.set(job.id, active.token, held);
    return { job: active, leaseUntil: facts.leaseUntil };
  }

  /** The same as `#startAgain`, for who waits for something else first: a fault that nobody waits for would end the process. */
  #startAgainLater(lane: StartLane, placed: Placed): Promise<ClaimedJob | null> {
    const started = this.#startAgain(lane, placed);
    started.catch(() => {});
    return started;
  }

  /** Something came in between: looks at the job again, and starts it if it still may. */
  async #startAgain(lane: StartLane, placed: Placed): Promise<ClaimedJob | null> {
    const { port } = this.#context;
    const before = placed.logged.job;
    if (before === null) return null;
    for (let round = 1; round < roundsMax; round++) {
      const { logged, verdict } = await this.#tickets.again(placed);
      // The places were taken for one token.
      if (verdict === "start" && logged.job?.token === before.token) {
        const claimed = await this.#startOne(lane, { ...placed, logged });
        if (claimed) return claimed;
        continue;
      }
      await this.#freePlaces(lane.caps, placed);
      if (verdict === "start") port.giveBack(placed);
      if (verdict === "expire" && logged.job) await this.#expire(lane, logged.job);
      if (verdict === "drop" || verdict === "expire") await port.acknowledge([placed]);
      return null;
    }
    return null;
  }

  /** Stores the start of one job; gives `null` if something came in between. */
  async #startOne(lane: StartLane, placed: Placed): Promise<ClaimedJob | null> {
    const start = this.#startOf(lane, actorOf(lane), placed);
    if (!start) return null;
    const { log, held } = this.#context;
    const [publication] = await log.appendEach([start.item]);
    if (publication?.outcome === "stored") return this.#started(start, publication.seq);
    held.leave(start.facts.sheet);
    if (publication?.outcome === "fault") throw publication.error;
    return null;
  }

  async #expire(lane: StartLane, job: Job): Promise<void> {
    const { changes, now, newEventId } = this.#context;
    const origin = { eventId: newEventId(), actor: actorOf(lane) };
    const event = expiredEvent({ ...job, deadline: job.deadline ?? 0 }, origin, now());
    const { service, type, id, version } = job;
    await changes.append({ job: { service, type, id }, expect: { version }, event }, "outside");
  }
}

const noCaps: readonly string[] = [];

function actorOf({ worker }: StartLane): Actor {
  return `worker:${worker}`;
}

function isToStart({ verdict }: Candidate): boolean {
  return verdict === "start";
}

function isLeft({ verdict }: Candidate): boolean {
  return verdict === "leave";
}
