/**
 * What time brings, done by the keeper that leads a service: tickets for jobs whose time has come, slots of ended
 * jobs that have lapsed, repairs, jobs that were offered in vain, and new tickets for jobs whose ticket was lost.
 */
import type { Projection } from "../projection/projection.js";
import { compareDue, type DuePlace, type DueTicket, firstDue } from "../projection/tickets.js";
import type { Advisories } from "./advisories.js";
import { FirstFault } from "./first-fault.js";
import type { GivenOut } from "./given-out.js";
import type { Keys } from "./keys.js";
import type { Log } from "./log.js";
import { type News, Told } from "./news.js";
import type { Repair } from "./repair.js";
import type { Subjects } from "./subjects.js";
import { Sweeper } from "./sweeping.js";

/** The most jobs and keys that one look tends, of each kind. */
const tendMax = 500;

/** How often tickets are looked for that were lost. */
const sweepMs = 30_000;

/** How often keys and caps are compared with the log, and advisories acted on. */
const repairMs = 5_000;

/** For how long hints alone tell that nothing is to be tended. One may be lost, and so a look is taken after that. */
const trustMs = 1_000;

/** How many keyed jobs are remembered that were told that their time has come. */
const rememberedMax = 50_000;

/** What tending needs of the engine. */
export interface TendingContext {
  readonly givenOut: GivenOut;
  readonly subjects: Subjects;
  readonly log: Log;
  readonly keys: Keys;
  readonly repair: Repair;
  readonly advisories: Advisories;
  readonly now: () => number;
  /** The view; up to date for sure where the keeper was told of something. */
  readonly projection: (isTold: boolean) => Promise<Projection>;
  readonly news: News;
}

/** What was last looked at, and when time was to bring more. */
interface Look {
  readonly service: string;
  readonly at: number;
  readonly next: number | null;
}

/** Where the looks at jobs whose time has come go on, and the furthest that one has come. */
interface Turn {
  readonly next: DuePlace;
  readonly furthest: DuePlace;
}

/** Whether time has brought nothing since a look at a service. */
function isStill({ service, at, next }: Look, asked: string, now: number): boolean {
  if (service !== asked || now < at || now >= at + trustMs) return false;
  return next === null || now < next;
}

/** The earlier of two times, of which there may be none. */
function earliest(one: number | null, other: number | null): number | null {
  return one === null || other === null ? (one ?? other) : Math.min(one, other);
}

/** The tending of one process. */
export class Tending {
  readonly #context: TendingContext;
  readonly #sweeper: Sweeper;
  /** Keyed jobs that compete for a slot since their time has come, with the version at which they began to. */
  readonly #competing = new Map<string, number>();
  readonly #turns = new Map<string, Turn>();
  /** When each kind of work was last done for each service. */
  readonly #doneAt = new Map<string, number>();
  readonly #told = new Told();
  #last: Look | null = null;

  constructor(context: TendingContext) {
    this.#context = context;
    this.#sweeper = new Sweeper(context);
  }

  /** Does what time has brought to a service; gives when it brings more. */
  async tend(service: string): Promise<number | null> {
    const { now, news } = this.#context;
    const where = news.take();
    this.#told.note(where);
    // Tickets that came with their jobs are the workers' business, and a look costs everybody who waits for the view.
    const isOfWorkers = where !== null && where.size > 0;
    if (isOfWorkers && this.#last && isStill(this.#last, service, now())) return this.#last.next;
    const at = now();
    this.#last = null;
    const next = await this.#look(service, this.#told.isNewTo(service));
    this.#last = { service, at, next };
    return next;
  }

  async #look(service: string, isTold: boolean): Promise<number | null> {
    const projection = await this.#context.projection(isTold);
    const now = this.#context.now();
    const { due, isAll } = await this.#due(projection, service, now);
    const fresh = due.filter(({ key, version }) => this.#competing.get(key.id) !== version);
    const { keys, repair, advisories } = this.#context;
    // What goes wrong with one job or one kind of work must not keep all others from being done.
    const faults = new FirstFault();
    const offers = fresh.map(
      ({ key, version }) =>
        () =>
          this.#offer(key.id, version),
    );
    await Promise.all(offers.map((offer) => faults.attempt(offer)));
    // A renewal of an ended job may come to the view before that has ended there, and is lost to it. The record has it.
    let lapsesAt: number | null = null;
    for (const hash of await projection.lapsedKeys(service, now, tendMax))
      await faults.attempt(async () => {
        lapsesAt = earliest(lapsesAt, await keys.tend(service, hash));
      });
    const mayRepair = this.#isTime("repair", service, repairMs);
    const maySweep = this.#isTime("sweep", service, sweepMs);
    // Older servers take a ticket that they give up for acknowledged, and those who look for lost ones must not offer it anew.
    if (mayRepair || maySweep) await faults.attempt(() => advisories.act(service));
    if (mayRepair) await faults.attempt(() => repair.repair(service));
    if (maySweep) await faults.attempt(() => this.#sweeper.sweep(projection, service, now));
    faults.rethrow();
    if (fresh.length > 0 && !isAll) return now;
    return earliest(lapsesAt, await projection.nextDueAt({ service }, now));
  }

  /**
   * Jobs whose time has come, and whether these are all. Those that compete for a slot stay among them, and so each look goes on
   * where the last one ended; those whose time has come since then are behind all others.
   */
  async #due(
    projection: Projection,
    service: string,
    now: number,
  ): Promise<{ readonly due: readonly DueTicket[]; readonly isAll: boolean }> {
    const { next, furthest } = this.#turns.get(service) ?? { next: firstDue, furthest: firstDue };
    const ask = { scope: { service }, now, limit: tendMax };
    const some = await projection.dueTickets({ ...ask, after: next });
    const end = some.at(-1)?.place ?? next;
    if (some.length < tendMax) {
      this.#turns.set(service, { next: firstDue, furthest: end });
      return { due: some, isAll: next === firstDue };
    }
    const after = compareDue(end, furthest) > 0 ? end : furthest;
    const newest = await projection.dueTickets({ ...ask, after });
    this.#turns.set(service, { next: end, furthest: newest.at(-1)?.place ?? after });
    return { due: [...some, ...newest], isAll: false };
  }

  /** Whether something that is done now and then is to be done for a service now. */
  #isTime(work: "repair" | "sweep", service: string, everyMs: number): boolean {
    const now = this.#context.now();
    const doneAt = this.#doneAt.get(`${work}/${service}`) ?? 0;
    // A clock that has gone back must not put it off.
    if (doneAt <= now && now < doneAt + everyMs) return false;
    this.#doneAt.set(`${work}/${service}`, now);
    return true;
  }

  /** A job whose time has come is offered; one with a key competes for a slot first. */
  async #offer(id: string, version: number): Promise<void> {
    const { log, keys } = this.#context;
    const { job } = await log.load(id);
    if (!job?.key) return keys.ticket(id, "due");
    await keys.tend(job.service, job.key.hash);
    // Where that has failed the job is offered again.
    if (this.#competing.size >= rememberedMax) this.#competing.clear();
    this.#competing.set(id, version);
  }
}
