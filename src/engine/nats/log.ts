/**
 * The log of jobs: reading one job's part of it, and appending with a compare. Few events go out one by one; what queues
 * up beyond that goes as one atomic batch. A lost reply is read back (`reading-back.ts`), so that nothing is stored twice or
 * given up for lost.
 */
import type { JobEvent } from "../../core/event.js";
import { evolve } from "../../core/evolve.js";
import type { Job } from "../../core/job.js";
import { advancesVersion } from "../../core/transitions.js";
import { type BatchAnswer, Batcher } from "../batching.js";
import { eventOf } from "../event-text.js";
import { foldMessages, type LoggedJob, noJob, type ReadJob } from "./entry.js";
import { isRefusedForSure } from "./faults.js";
import type { HeldJob } from "./held.js";
import { readJobLog } from "./job-log.js";
import type { OwnTickets } from "./own-tickets.js";
import type { OwnWrites } from "./own-writes.js";
import { Pace } from "./pace.js";
import type { EachPublication, OutgoingMessage, Port, Publication, StoredMessage } from "./port.js";
import { ReadingBack } from "./reading-back.js";
import { lateLooksMax, type Rest, restMs } from "./record-lines.js";
import type { Subjects } from "./subjects.js";

/** How much one batch may hold: as many messages as a server takes, and so many characters. */
const batchMessagesMax = 1_000;
const batchLengthMax = 4_000_000;

/**
 * When so many have asked in a turn, what they asked for goes out while others of the turn are still getting theirs ready,
 * so that the server has something to do meanwhile.
 */
const partMax = 8;

/** How many jobs are asked for in one request. */
const loadMax = 100;

const conflict: Publication = { outcome: "conflict" };

/** Events were not taken as a batch. */
const notTaken = new Error("The server did not take the events as a batch.");

/** An event to be appended under the id of its job, or a note under an id of its own. */
export interface Appended {
  readonly jobId: string;
  readonly message: OutgoingMessage;
  readonly isNote?: true;
  /** The consumer that gives it out, if it is a ticket. */
  readonly consumer?: string;
}

/** Events that somebody waits for. */
interface Asked {
  readonly items: readonly Appended[];
  readonly tell: (publications: readonly EachPublication[]) => void;
}

/** The log of a deployment. */
export class Log {
  readonly #port: Port;
  readonly #subjects: Subjects;
  readonly #batcher: Batcher<readonly Appended[], readonly EachPublication[]>;
  readonly #pace: Pace;
  /** What a reading must show; `null` where there is one copy of the log, which is never behind. */
  readonly #own: OwnWrites | null;
  readonly #ownTickets: Pick<OwnTickets, "stored">;
  readonly #rest: Rest;
  readonly #readingBack: ReadingBack;
  /** What was asked for in this turn. */
  #asked: Asked[] = [];
  #sent = 0;
  readonly #isAtomic: () => boolean;

  constructor(options: {
    readonly port: Port;
    readonly subjects: Subjects;
    /** Whether the server takes atomic batches now. */
    readonly isAtomic: () => boolean;
    /** Milliseconds that only ever grow. */
    readonly monotonic: () => number;
    /** Where the log has copies, what this process has stored, and how it waits for a copy to show it. */
    readonly own: OwnWrites | null;
    /** What claims must show. */
    readonly ownTickets: Pick<OwnTickets, "stored">;
    readonly rest: Rest;
  }) {
    this.#own = options.own;
    this.#ownTickets = options.ownTickets;
    this.#rest = options.rest;
    this.#port = options.port;
    this.#subjects = options.subjects;
    this.#isAtomic = options.isAtomic;
    this.#readingBack = new ReadingBack({ ...options, read: (id) => this.#read(id) });
    this.#pace = new Pace(options.monotonic, options.isAtomic);
    this.#batcher = new Batcher((calls) => this.#send(calls), {
      weightMax: batchLengthMax,
      weigh,
      inFlightMax: 1,
    });
  }

  /** How many calls wait for the batch under way. */
  get waiting(): number {
    return this.#batcher.waiting;
  }

  /** How many events this process has sent so far. */
  get sent(): number {
    return this.#sent;
  }

  /** A job as its log tells it now, up to a position at least, unless that does not show: it may have been removed. */
  async load(id: string, atLeast = 0): Promise<ReadJob> {
    const messages = await this.#read(id, atLeast);
    return messages.length === 0 ? noJob : foldMessages(this.#subjects.prefix, messages);
  }

  /** The position of the newest event, however far behind the copy is that answers. */
  async head(): Promise<number> {
    const last = await this.#port.last("jobs", this.#subjects.headFilter());
    return Math.max(last?.seq ?? 0, this.#own?.head ?? 0);
  }

  /** All of a job's log, with whatever this process has stored in it, or knows to lie at a position. */
  async #read(id: string, atLeast = 0): Promise<readonly StoredMessage[]> {
    for (let looks = 0; ; looks++) {
      const messages = await readJobLog(this.#port, this.#subjects.logFilter(id));
      const seq = messages.at(-1)?.seq ?? 0;
      const isAwaited = seq < atLeast && looks < lateLooksMax;
      if (this.#own === null || !(isAwaited || this.#own.isBehind(id, seq))) return messages;
      await this.#rest(restMs(looks));
    }
  }

  /** Whether another service has an id, whose newest event this process has seen at a position, and may not see more of. */
  isElsewhere(id: string, seq: number): Promise<boolean> {
    return this.#readingBack.isElsewhere(id, seq);
  }

  /** Jobs without their logs, many in one request. */
  async loadJobs(ids: readonly string[]): Promise<readonly (Job | null)[]> {
    const jobs: Promise<readonly (Job | null)[]>[] = [];
    for (let start = 0; start < ids.length; start += loadMax)
      jobs.push(this.#loadChunk(ids.slice(start, start + loadMax)));
    return (await Promise.all(jobs)).flat();
  }

  /**
   * The newest message of each subject is the whole of a job to which nothing happened twice. Where something did,
   * the versions leave a gap, and the log is read.
   */
  async #loadChunk(ids: readonly string[]): Promise<readonly (Job | null)[]> {
    const read = async (id: string) => (await this.load(id)).job;
    const messages = await this.#port.lastOfEach(ids.map((id) => this.#subjects.logFilter(id)));
    if (messages === null) return Promise.all(ids.map(read));
    const events = new Map<string, JobEvent[]>();
    const newest = new Map<string, number>();
    for (const message of messages) {
      const event = eventOf(message);
      events.set(event.jobId, [...(events.get(event.jobId) ?? []), event]);
      newest.set(event.jobId, message.seq);
    }
    const whole = (id: string) =>
      this.#own?.isBehind(id, newest.get(id) ?? 0) ? null : wholeJob(events.get(id) ?? []);
    return Promise.all(ids.map((id) => whole(id) ?? read(id)));
  }

  /** A job that this process holds, as it is now. It is read again only if something newer is in the log. */
  async current(service: string, id: string, own: HeldJob | undefined): Promise<LoggedJob> {
    if (own === undefined) return this.load(id);
    const last = await this.#port.last("jobs", this.#subjects.jobFilter(service, id));
    if (last?.seq === own.logged.lastSeq) return own.logged;
    const logged = await this.load(id);
    const { job } = own.logged;
    if (logged.job?.state === "active" && logged.job.token === job?.token) own.logged = logged;
    return logged;
  }

  /** Appends one event, alone or together with whatever else is on its way. */
  async append(item: Appended): Promise<Publication> {
    const [publication = conflict] = await this.appendEach([item]);
    if (publication.outcome === "fault") throw publication.error;
    return publication;
  }

  /** Appends events, each by itself. They share what waits for them, because that costs more than the events. */
  appendEach(items: readonly Appended[]): Promise<readonly EachPublication[]> {
    return new Promise((resolve) => {
      const tell = (publications: readonly EachPublication[]) => {
        this.#remember(items, publications);
        resolve(publications);
      };
      const waiting = this.#asked.push({ items, tell });
      if (waiting === 1) queueMicrotask(() => this.#goOut(2));
      else if (waiting >= partMax && this.#pace.isQuick) this.#goOut(1);
    });
  }

  /**
   * Sends what was asked for in a turn, or by now, in one or two parts. Where others wait for a batch already, it goes with
   * them.
   */
  #goOut(parts: 1 | 2): void {
    const asked = this.#asked;
    if (asked.length === 0) return;
    this.#asked = [];
    let count = 0;
    for (const { items } of asked) count += items.length;
    this.#sent += count;
    if (this.#batcher.waiting > 0 || !this.#pace.goesAlone(count)) {
      for (const { items, tell } of asked) void this.#sendTogether(items).then(tell);
      return;
    }
    // Who asked for the first half goes on while the server stores the second.
    const half = Math.ceil(asked.length / parts);
    this.#sendEach(asked.slice(0, half));
    if (half < asked.length) this.#sendEach(asked.slice(half));
  }

  /** Sends events one by one. Who asked for them shares what waits for the answers. */
  #sendEach(asked: readonly Asked[]): void {
    const messages = asked.flatMap(({ items }) => items.map(({ message }) => message));
    const sent = this.#pace.alone(messages.length, () => this.#port.publishEach(messages));
    sent.then(
      (publications) => this.#answer(asked, publications),
      (error: unknown) =>
        this.#answer(
          asked,
          messages.map(() => faultOf(error)),
        ),
    );
  }

  /** Tells everybody what became of their events. */
  #answer(asked: readonly Asked[], publications: readonly EachPublication[]): void {
    let from = 0;
    for (const { items, tell } of asked) {
      const isAll = items.length === publications.length;
      const own = isAll ? publications : publications.slice(from, from + items.length);
      from += items.length;
      if (own.every(isStored)) tell(own);
      else void this.#lookAt(items, own).then(tell);
    }
  }

  /** Has events wait for the next batch. Who asked for them shares the answer. */
  #sendTogether(items: readonly Appended[]): Promise<readonly EachPublication[]> {
    return this.#batcher.call(items).catch((error: unknown) => items.map(() => faultOf(error)));
  }

  /** Looks into the log where it is not known whether an event was stored. */
  #lookAt(
    items: readonly Appended[],
    publications: readonly EachPublication[],
  ): Promise<readonly EachPublication[]> {
    const looks = items.map((item, index) => {
      const sent = publications[index] ?? conflict;
      return sent.outcome === "stored" ? sent : this.#sendAlone(item, sent).catch(faultOf);
    });
    return Promise.all(looks);
  }

  /**
   * Appends an event and what follows from it: all or nothing, where the server can. Where it cannot, `apart` is called before
   * they are stored one after the other.
   */
  async appendAll(
    items: readonly Appended[],
    apart: () => Promise<void> = async () => {},
  ): Promise<Publication> {
    const [first, ...rest] = items;
    if (!first) return conflict;
    if (rest.length === 0) return this.append(first);
    const together = await this.#appendTogether(first, items);
    if (together !== null) return together;
    await apart();
    const publication = await this.append(first);
    let before = { item: first, publication };
    for (const item of publication.outcome === "stored" ? rest : [])
      before = { item, publication: await this.#appendBehind(item, before) };
    return publication;
  }

  /** Appends events as one batch; gives `null` where the server did not take them as one. */
  async #appendTogether(first: Appended, items: readonly Appended[]): Promise<Publication | null> {
    const publish = async () => {
      // Another server may lead by the time that it is sent again.
      if (!this.#isAtomic()) throw notTaken;
      const given = await this.#port.publishTogether(items.map(({ message }) => message));
      if (given === null) throw notTaken;
      return given[0] ?? conflict;
    };
    const publication = await this.#readingBack.publishing(first, publish).catch((error) => {
      if (error === notTaken) return null;
      throw error;
    });
    if (publication === null) return null;
    if (publication.outcome === "stored") {
      // They lie one behind the other, also where the first was found by reading.
      const { seq } = publication;
      const all = items.map((_, place) => ({ outcome: "stored", seq: seq + place }) as const);
      this.#remember(items, all);
    }
    return publication;
  }

  /** What happens to a job that was stored just before compares with that: others may know it by now. */
  async #appendBehind(
    item: Appended,
    before: { readonly item: Appended; readonly publication: Publication },
  ): Promise<Publication> {
    const { message, jobId } = item;
    if (message.expect !== undefined || before.item.jobId !== jobId) return this.append(item);
    if (before.publication.outcome !== "stored") return conflict;
    const filter = this.#subjects.jobFilter(eventOf(message).service, jobId);
    const expect = { filter, seq: before.publication.seq };
    return this.append({ ...item, message: { ...message, expect } });
  }

  /** Remembers what was stored, so that this process is shown it. */
  #remember(items: readonly Appended[], publications: readonly EachPublication[]): void {
    for (let index = 0; index < items.length; index++) {
      const item = items[index] as Appended;
      const publication = publications[index];
      if (publication?.outcome !== "stored") continue;
      if (item.consumer !== undefined) this.#ownTickets.stored(item.consumer, publication.seq);
      // Nobody waits for a copy to show a note.
      if (item.isNote) this.#own?.reached(publication.seq);
      else this.#own?.stored(item.jobId, publication.seq);
    }
  }

  /** Resolves when nothing is on its way. */
  idle(): Promise<void> {
    return this.#batcher.idle();
  }

  async #send(
    calls: readonly (readonly Appended[])[],
  ): Promise<readonly BatchAnswer<readonly EachPublication[]>[]> {
    const publications = await this.#sendApart(calls.flat());
    let from = 0;
    return calls.map(({ length }) => {
      from += length;
      return { answer: publications.slice(from - length, from) };
    });
  }

  /**
   * A job has one event in a batch, because a compare sees only what was stored before the batch. A call may ask for more
   * than a batch may hold.
   */
  async #sendApart(items: readonly Appended[]): Promise<readonly EachPublication[]> {
    const publications = new Array<EachPublication>(items.length);
    for (let left = [...items.keys()]; left.length > 0; ) {
      const ids = new Set<string>();
      const later: number[] = [];
      const chosen: number[] = [];
      const batch: Appended[] = [];
      let weight = 0;
      for (const [index, place] of left.entries()) {
        const item = items[place] as Appended;
        if (ids.has(item.jobId)) {
          later.push(place);
          continue;
        }
        weight += weightOf(item);
        if (weight > batchLengthMax && batch.length > 0) {
          // Nothing behind it goes before it, so that the events of a job stay in order.
          for (const behind of left.slice(index)) later.push(behind);
          break;
        }
        ids.add(item.jobId);
        chosen.push(place);
        batch.push(item);
      }
      const given = await this.#sendBatch(batch);
      for (const [index, place] of chosen.entries()) publications[place] = given[index] ?? conflict;
      left = later;
    }
    return publications;
  }

  /** Sends a batch, a few of it ahead where it is not known any more what messages alone take. */
  async #sendBatch(batch: readonly Appended[]): Promise<readonly EachPublication[]> {
    const trial = this.#pace.trialOf(batch.length);
    if (trial === 0) return this.#sendAtOnce(batch);
    const tried = await this.#sendAll(batch.slice(0, trial));
    const rest = batch.slice(trial);
    if (rest.length === 0) return tried;
    const isQuick = this.#pace.goesAlone(rest.length);
    return [...tried, ...(await (isQuick ? this.#sendAll(rest) : this.#sendAtOnce(rest)))];
  }

  /** Sends events one by one, all of them before the first answer. */
  #sendAll(items: readonly Appended[]): Promise<readonly EachPublication[]> {
    return new Promise((tell) => this.#sendEach([{ items, tell }]));
  }

  /** Sends events as one atomic batch where the server takes such. */
  async #sendAtOnce(batch: readonly Appended[]): Promise<readonly EachPublication[]> {
    let mayCome = false;
    if (this.#isAtomic() && batch.length > 1) {
      const messages = batch.map(({ message }) => message);
      try {
        const publish = () => this.#port.publishTogether(messages);
        const stored = await this.#pace.together(batch.length, publish);
        if (stored?.[0]?.outcome === "stored") return stored;
        mayCome = stored === null;
      } catch (error) {
        // One of them may be the reason, or the reply was lost: each is looked at alone.
        mayCome = !isRefusedForSure(error);
      }
    }
    const alone = (item: Appended) => this.#sendAlone(item, undefined, mayCome).catch(faultOf);
    return Promise.all(batch.map(alone));
  }

  /** Sends an event alone, or goes on from where it was sent. It may come from an earlier try. */
  #sendAlone(item: Appended, sent?: EachPublication, mayCome = false): Promise<Publication> {
    let first = sent;
    const publish = async () => {
      const publication = first;
      first = undefined;
      if (publication === undefined) return this.#port.publish("jobs", item.message);
      if (publication.outcome === "fault") throw publication.error;
      return publication;
    };
    return this.#readingBack.publishing(item, publish, mayCome);
  }
}

/** What a call weighs in a batch. */
function weigh(items: readonly Appended[]): number {
  let weight = 0;
  for (const item of items) weight += weightOf(item);
  return weight;
}

/** What an event weighs: its length, and at least so much that a batch never holds too many. */
function weightOf({ message }: Appended): number {
  return Math.max(message.body.length, batchLengthMax / batchMessagesMax);
}

function isStored({ outcome }: EachPublication): boolean {
  return outcome === "stored";
}

function faultOf(error: unknown): EachPublication {
  return { outcome: "fault", error };
}

/** The fold of events if they are all that changed the job; `null` if some are missing, or there is no job. */
function wholeJob(events: readonly JobEvent[]): Job | null {
  let job: Job | null = null;
  for (const event of events) {
    const { job: next, ignored } = evolve(job, event);
    if (ignored === "unknown event") continue;
    if (ignored !== null && (job === null || advancesVersion(event.name))) return null;
    job = next;
  }
  return job;
}
