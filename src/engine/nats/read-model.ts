/**
 * The read model: a projection of the log, brought up to date by whoever leads it, and asked by everybody.
 * An answer is never older than the log was when the question came.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { EventName } from "../../core/event.js";
import { type Clock, systemClock } from "../clock.js";
import type { DueAsk, DueJob } from "../engine.js";
import { StoreBusy, StoreClosed } from "../errors.js";
import type { Logger } from "../logger.js";
import type { RenewedLease } from "../projection/entry.js";
import { type PackedEvents, Packer } from "../projection/packed.js";
import { leadMs, type Projection, type ProjectionStatus } from "../projection/projection.js";
import { type KeyRow, pageMax, type Queries, type QueryName, recordOwnersMax } from "../query.js";
import { ownerOf, type StoredRecord } from "../record.js";
import type { CapScope } from "./caps.js";
import { leaseUntilOf } from "./entry.js";
import type { MissedDeletions } from "./forgotten.js";
import type { Keys } from "./keys.js";
import { renewalsOf } from "./leases.js";
import type { Log } from "./log.js";
import { type News, Told } from "./news.js";
import type { Port } from "./port.js";
import { RecordedRows } from "./recorded-rows.js";
import type { Records } from "./records.js";
import type { Subjects } from "./subjects.js";
import { restUnseenMaxMs, ViewRest } from "./view-rest.js";

/** How long a question waits for the projection to catch up. */
const patienceMs = 30_000;

/** How long a worker that has renewed its leases waits until the view shows that. */
const renewedMaxMs = 250;

/** How long it still waits when the store is about to be closed. */
const closingPatienceMs = 1_000;

/** A view of another process that lacks fewer events than this is brought up to date for the keeper; it does not rest then. */
const fewEvents = 1_000;

/** Whoever does not lead looks this often whether it may. */
const lookMs = leadMs / 3;

/** What the read model is made of. */
export interface ReadModelOptions {
  readonly url: string;
  readonly port: Port;
  readonly subjects: Subjects;
  readonly log: Log;
  readonly records: Records;
  readonly keys: Keys;
  readonly clock: Clock;
  /** Is told of records as they change, and up to which position, from when the projection is open. */
  readonly observe: (records: readonly StoredRecord[], seq: number) => void;
  /** What hints have told of jobs that ended: nothing is known of who waited for them, unless they were plain. */
  readonly endNews: News;
  /** Opens the projection, when it is first needed. */
  readonly open: () => Promise<Projection>;
  readonly missed: MissedDeletions;
  readonly logger: Logger;
}

/** The read model of a process. */
export class ReadModel {
  readonly #options: ReadModelOptions;
  readonly #stop = new AbortController();
  /** Aborts when the store is about to be closed, and when nobody waits for the view any more because of that. */
  readonly #hurry = new AbortController();
  readonly #noMoreWaits = new AbortController();
  /** What keeps this process from bringing the view up to date, as it was told last. */
  readonly #faults = new Map<"lead" | "apply", string>();
  #projection: Promise<Projection> | null = null;
  #projecting: Promise<unknown> = Promise.resolve();
  /** Ends the reading of the log that is under way, after which it begins anew where the projection is. */
  #lead: AbortController | null = null;
  #applied = 0;
  /** The time is real, as the server is that sends the events. */
  readonly #rests: ViewRest;
  readonly #rows: RecordedRows;
  /** The services of which the view held jobs that wait for others when it was last looked at for them. */
  readonly #hasBlocked = new Map<string, boolean>();
  readonly #endsTold = new Told();
  /** A position of the log, and until when a view that another process applies may lie before it. */
  #restHead: { readonly head: number; readonly until: number } | null = null;

  constructor(options: ReadModelOptions) {
    this.#options = options;
    this.#rows = new RecordedRows(options);
    this.#rests = new ViewRest({ clock: systemClock, stored: () => options.log.sent });
  }

  /** Asks, no older than the log is now. */
  async query<Name extends QueryName>(
    name: Name,
    ask: Queries[Name]["ask"],
  ): Promise<Queries[Name]["answer"]> {
    const answer = await this.#answer(name, ask);
    return answer as Queries[Name]["answer"];
  }

  async #answer(name: QueryName, ask: unknown): Promise<unknown> {
    const { records } = this.#options;
    if (name === "records") {
      const { prefix, before, limit = pageMax } = ask as Queries["records"]["ask"];
      const found = await records.list(prefix);
      if (before === undefined) return found.slice(0, limit);
      return found
        .filter(({ id }) => id < before)
        .reverse()
        .slice(0, limit);
    }
    if (name === "recordOwners") {
      const { prefix } = ask as Queries["recordOwners"]["ask"];
      const owners = new Set((await records.list(prefix)).map(({ id }) => ownerOf(id)));
      return [...owners].sort().slice(0, recordOwnersMax);
    }
    const projection = await this.caughtUp();
    const answer = await projection.query(name, ask as never);
    switch (name) {
      case "queues": {
        const { service } = ask as Queries["queues"]["ask"];
        return this.#rows.withSettings(answer as Queries["queues"]["answer"], service);
      }
      case "key":
        return answer
          ? this.#rows.asRecorded(answer as KeyRow)
          : this.#rows.rememberedKey((ask as Queries["key"]["ask"]).hash);
      case "keys": {
        const page = answer as Queries["keys"]["answer"];
        const entries = await Promise.all(page.entries.map((row) => this.#rows.asRecorded(row)));
        return { ...page, entries };
      }
      default:
        return answer;
    }
  }

  /**
   * Jobs whose time has come, as far as the view knows. What one finds that rests is looked for again in one that has
   * everything: most of it may be done by now, and each job would be read from the log.
   */
  async due(ask: DueAsk, limit: number): Promise<readonly DueJob[]> {
    const isTold = ask.kind === "blocked" && this.#mayBeUnblocked(ask.service);
    const projection = await this.forKeeper(isTold);
    if (ask.kind === "blocked") await this.#rememberBlocked(projection, ask.service);
    const found = await projection.due(ask, limit);
    if (found.length === 0 || (projection.leads && !this.#rests.isOn)) return found;
    return (await this.caughtUp()).due(ask, limit);
  }

  /** Whether something has ended that a job of a service may have waited for. */
  #mayBeUnblocked(service: string): boolean {
    this.#endsTold.note(this.#options.endNews.take());
    return this.#endsTold.isNewTo(service) || this.#hasBlocked.get(service) === true;
  }

  async #rememberBlocked(projection: Projection, service: string): Promise<void> {
    if (this.#rests.isOn && this.#hasBlocked.has(service)) return;
    this.#hasBlocked.set(service, await this.#holdsBlocked(projection, service));
  }

  async #holdsBlocked(projection: Projection, service: string): Promise<boolean> {
    const filter = { service, state: ["blocked" as const] };
    return (await projection.query("counts", { filter })).some(({ count }) => count > 0);
  }

  /** How many jobs run under a cap. */
  async activeUnder({ service, type, queue }: CapScope): Promise<number> {
    const names = {
      service,
      ...(type !== undefined && { type }),
      ...(queue !== undefined && { queue }),
    };
    const counts = await this.query("counts", { filter: { ...names, state: ["active"] } });
    return counts.reduce((sum, { count }) => sum + count, 0);
  }

  /**
   * Tells the view of leases that this process has renewed, where it is in use. They stand, whatever becomes of the view, and so it is
   * waited for no longer than a moment.
   */
  async renewed(leases: readonly RenewedLease[]): Promise<void> {
    if (!this.#projection) return;
    const told = this.#projection.then((projection) => projection.renew(leases));
    const patience = new AbortController();
    const late = sleep(renewedMaxMs, undefined, { signal: patience.signal });
    await Promise.race([told, late]).catch(() => {});
    told.catch(() => {});
    late.catch(() => {});
    patience.abort();
  }

  /** The projection, when it has everything that is in the log now. */
  async caughtUp(): Promise<Projection> {
    const projection = await this.#opened();
    if (!projection.leads) this.#askForView();
    await this.#rests.awake(() => this.#catchUp(projection));
    return projection;
  }

  /**
   * The projection as the keeper needs it: up to date, or as it is while it rests. What the keeper finds is a hint and the
   * log decides, so that an old view makes it late and never wrong; where it was told of something it insists.
   */
  async forKeeper(isTold: boolean): Promise<Projection> {
    const projection = await this.#opened();
    if (isTold) return this.caughtUp();
    if (!projection.leads) return (await this.#mayRest(projection)) ? projection : this.caughtUp();
    if (this.#rests.isOn) return projection;
    this.#rests.nudge();
    await this.#catchUp(projection, this.#rests.begins);
    return projection;
  }

  /** Whether another process may let the view rest: many events gather, and it is not too old. */
  async #mayRest(projection: Projection): Promise<boolean> {
    const now = this.#options.clock.monotonic();
    const head = await this.#options.log.head();
    const position = await projection.position();
    if (head - position < fewEvents) return false;
    if (this.#restHead === null || position >= this.#restHead.head)
      this.#restHead = { head, until: now + 2 * restUnseenMaxMs };
    return now < this.#restHead.until;
  }

  /** Waits until the projection has everything that is in the log now, or until that is enough. */
  async #catchUp(projection: Projection, enough?: AbortSignal): Promise<void> {
    const { url, clock } = this.#options;
    const head = await this.#options.log.head();
    const patience = new AbortController();
    const callOff = clock.after(patienceMs, () => patience.abort());
    const signals = [this.#noMoreWaits.signal, patience.signal, ...(enough ? [enough] : [])];
    const reached = projection.reached(head, AbortSignal.any(signals));
    const isThere = await reached.finally(callOff);
    if (isThere || enough?.aborted) return;
    if (this.#noMoreWaits.signal.aborted) throw this.#closedBefore();
    const lag = head - (await projection.position());
    const [reason = "Check that a process with the projection runs and keeps up."] =
      this.#faults.values();
    const message = `The read model is ${lag} events behind the log and does not catch up. ${reason}`;
    throw new StoreBusy({ url, message });
  }

  /** Whoever applies the log may rest, and hears that somebody waits. */
  #askForView(): void {
    const { port, subjects } = this.#options;
    port.hint(subjects.viewHint(), "");
  }

  /** How the projection stands against the log. */
  async status(): Promise<ProjectionStatus> {
    const projection = await this.#opened();
    return projection.status(await this.#options.log.head());
  }

  /** Makes the view anew from the log; resolves when it has come to where the log is now. */
  async rebuild(): Promise<void> {
    const projection = await this.#opened();
    await projection.clear();
    this.#lead?.abort();
    this.#askForView();
    const head = await this.#options.log.head();
    const isThere = await this.#rests.awake(() => projection.reached(head, this.#hurry.signal));
    if (!isThere) throw this.#closedBefore();
  }

  /**
   * The store is about to be closed, and waits for whatever was asked: a rebuild goes on in the next process, and who asks is
   * answered if that takes no more than a moment.
   */
  hurry(): void {
    this.#hurry.abort();
    const callOff = this.#options.clock.after(closingPatienceMs, () => this.#noMoreWaits.abort());
    this.#stop.signal.addEventListener("abort", callOff);
  }

  #closedBefore(): StoreClosed {
    const { url } = this.#options;
    const message = `The store ${url} was closed before its view had everything.`;
    return new StoreClosed({ url, message });
  }

  async close(): Promise<void> {
    this.#hurry.abort();
    this.#noMoreWaits.abort();
    this.#stop.abort();
    await this.#projecting;
    if (this.#projection) await (await this.#projection.catch(() => null))?.close();
  }

  #opened(): Promise<Projection> {
    if (this.#projection === null) {
      const opening = this.#options.open().then(async (projection) => {
        await this.#leads(projection);
        return projection;
      });
      this.#projection = opening;
      opening.then(
        (projection) => {
          this.#projecting = Promise.all([
            this.#project(projection),
            this.#mirror(projection),
          ]).catch(() => {});
        },
        () => {
          this.#projection = null;
        },
      );
    }
    return this.#projection;
  }

  /** Applies the log while this process leads. */
  async #project(projection: Projection): Promise<void> {
    const { port, subjects, missed } = this.#options;
    const hearNoMore = port.onHint(subjects.viewHint(), () => void this.#wanted(projection));
    this.#stop.signal.addEventListener("abort", hearNoMore);
    while (!this.#stop.signal.aborted) {
      if (!(await this.#leads(projection))) {
        await this.#pause();
        continue;
      }
      const lead = new AbortController();
      this.#lead = lead;
      const callOff = this.#keepLead(projection, lead);
      const signal = AbortSignal.any([this.#stop.signal, lead.signal]);
      try {
        // Where a test's own port stands for a server, nothing rests.
        if (port.feed) await this.#rests.begin(signal);
        let position = await projection.position();
        this.#applied = position;
        if (position === 0) await missed.begin();
        let isFirst = true;
        for await (const packed of this.#feed(position, signal)) {
          const looking = missed.mayLieBehind(position);
          looking.catch(() => {});
          // What was forgotten while nobody read is known before anything is applied, because the position would hide it. Whoever
          // waits for later events does not wait for the look as well.
          const isLate = isFirst && (await looking);
          isFirst = false;
          if (!isLate) position = await projection.apply(position, packed);
          this.#faults.delete("apply");
          if (await looking) {
            await projection.clear();
            break;
          }
          this.#applied = position;
          // Somebody has cleared the projection: the log is read again from there.
          const { last, behind } = packed;
          if (position < last) break;
          if (behind !== undefined) await this.#rests.rest(last, behind, signal);
        }
      } catch (error) {
        // The database is away. The log is not, so that nothing is lost by waiting.
        this.#tellFault("apply", error);
        await this.#pause();
      } finally {
        callOff();
        lead.abort();
      }
    }
  }

  async *#feed(after: number, signal: AbortSignal): AsyncIterable<PackedEvents> {
    const { port, subjects } = this.#options;
    const filter = subjects.feedFilter();
    if (port.feed) return yield* port.feed(filter, after, signal);
    const packer = new Packer();
    for await (const messages of port.follow("jobs", filter, after, signal)) {
      for (const message of messages) {
        const { seq, subject, body } = message;
        const lease = subject.endsWith(startedEnding) ? leaseUntilOf(message) : undefined;
        packer.add(seq, subject, Buffer.from(body), lease);
      }
      for (let packed = packer.take(); packed; packed = packer.take()) yield packed;
    }
  }

  /** Somebody waits for the view, and may have cleared it: then the log is read again from there. */
  async #wanted(projection: Projection): Promise<void> {
    this.#rests.wake();
    if (await this.#wasCleared(projection)) this.#lead?.abort();
  }

  /** A database that is away for a while costs nothing but time. */
  async #leads(projection: Projection): Promise<boolean> {
    try {
      const leads = await projection.lead();
      this.#faults.delete("lead");
      return leads;
    } catch (error) {
      this.#tellFault("lead", error);
      return false;
    }
  }

  /** What goes on to fail in the same way is told once. */
  #tellFault(at: "lead" | "apply", error: unknown): void {
    const message = error instanceof Error ? error.message : String(error);
    if (this.#stop.signal.aborted || this.#faults.get(at) === message) return;
    this.#faults.set(at, message);
    this.#options.logger.warn(
      { error },
      "The view could not be brought up to date; it is tried again.",
    );
  }

  /** Whether this process still leads, and nobody has cleared the projection meanwhile. */
  async #isInPlace(projection: Projection): Promise<boolean> {
    return (await this.#leads(projection)) && !(await this.#wasCleared(projection));
  }

  async #wasCleared(projection: Projection): Promise<boolean> {
    const applied = this.#applied;
    // A look that somebody else began earlier may tell an older position, which is no reason to begin anew.
    const status = await projection.status(applied).catch(() => null);
    return status !== null && status.position < applied;
  }

  #keepLead(projection: Projection, lead: AbortController): () => void {
    let callOff = () => {};
    const again = () => {
      callOff = this.#options.clock.after(lookMs, () => {
        void this.#isInPlace(projection).then((isInPlace) => {
          if (!isInPlace) lead.abort();
          else if (!lead.signal.aborted) again();
        });
      });
    };
    again();
    return () => callOff();
  }

  /** Leases that others renew, and records that lists show. */
  async #mirror(projection: Projection): Promise<void> {
    const { port, records, observe } = this.#options;
    while (!this.#stop.signal.aborted) {
      try {
        for await (const messages of port.follow("records", records.all, 0, this.#stop.signal)) {
          const placed = messages.flatMap((message) => records.read(message).record ?? []);
          observe(placed, messages.at(-1)?.seq ?? 0);
          const renewals = placed.flatMap(renewalsOf);
          if (renewals.length > 0) await projection.renew(renewals);
        }
      } catch {
        // The database is away; records are read again from the start when it may be back.
        await this.#pause();
      }
    }
  }

  #pause(): Promise<void> {
    const { signal } = this.#stop;
    // Whoever was asked something else when the store was closed hears nothing of it any more.
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const done = () => {
        callOff();
        signal.removeEventListener("abort", done);
        resolve();
      };
      const callOff = this.#options.clock.after(lookMs, done);
      signal.addEventListener("abort", done);
    });
  }
}

const startedEnding = ".started" satisfies `.${EventName}`;
