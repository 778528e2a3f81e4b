/**
 * Brings outcomes into the store. Outcomes of one turn go in one call. The store compares version
 * and token; where the job has moved on, the outcome is decided again on the job as it is now,
 * or recorded as ignored when the hold is no longer current. A fault of the store is waited out
 * for as long as the lease may stand, and no outcome is dropped without a word.
 */
import type { Runtime } from "../client/runtime.js";
import type { Command } from "../core/command.js";
import { decide } from "../core/decide.js";
import type { JobEvent } from "../core/event.js";
import type { Job } from "../core/job.js";
import { type AppendOutcome, batchMax, type Change, type LoadedJob } from "../engine/engine.js";
import { StoreClosed, type StoreError } from "../engine/errors.js";
import { jobFields } from "../engine/logger.js";
import { discard, type Removal, removalOf } from "./discard.js";
import type { Hold } from "./hold.js";

/** How often an outcome is decided while others keep changing the job. */
export const decisionsMax = 20;

/** How long to wait before a settlement that the store could not take is sent again. */
const retryMinMs = 100;
const retryMaxMs = 5_000;

/** Makes the command of an outcome. It may be called again, for a newer fold of the job. */
export type MakeCommand = () => Command;

/** What became of an outcome: stored, refused because the job is no longer the worker's, or never taken by the store. */
export type Fate =
  | { readonly fate: "stored" }
  | { readonly fate: "stale"; readonly job: Job | null }
  | { readonly fate: "dropped" }
  /** What would follow from it cannot be stored, and so the job is still the handler's. */
  | {
      readonly fate: "refused";
      readonly refusal: Extract<AppendOutcome, { outcome: "bad_blocker" }>;
    };

const stored: Fate = { fate: "stored" };

interface Settlement {
  readonly hold: Hold;
  readonly make: MakeCommand;
  /** What is stored together with the outcome. */
  readonly follow: readonly Change[] | undefined;
  /** Whoever waits inside the handler to hear what became of it. */
  readonly tell: ((fate: Fate) => void) | undefined;
  /** The job that the outcome is decided on. */
  job: Job;
  /** The event that was sent last; kept after a fault, because it may have been stored. */
  event: JobEvent | undefined;
  isUnsure: boolean;
  decisions: number;
  retryMs: number;
}

/** What settlements need to tell. */
export interface SettlementsOptions {
  readonly runtime: Runtime;
  /** A batch was handed to the store, so that a claim may follow in the same commit. */
  readonly onSent: () => void;
  /** An outcome is stored; `job` is what it was decided on. */
  readonly onStored: (hold: Hold, job: Job, event: JobEvent) => void;
  /** An outcome is stored, ignored or given up; the handler may still run (`settled`). */
  readonly onOver: (hold: Hold) => void;
}

export class Settlements {
  readonly #runtime: Runtime;
  readonly #options: SettlementsOptions;
  #queue: Settlement[] = [];
  #unsettled = 0;
  #waiters: (() => void)[] = [];

  constructor(options: SettlementsOptions) {
    this.#options = options;
    this.#runtime = options.runtime;
  }

  /** How many outcomes the store has not answered for. */
  get unsettled(): number {
    return this.#unsettled;
  }

  /** Takes an outcome; it is sent at the end of this turn together with the others. */
  add(hold: Hold, make: MakeCommand): void {
    this.#add(hold, make, undefined, undefined);
  }

  /** Takes an outcome that its handler gives while it runs, with what follows from it; tells what became of it. */
  settle(hold: Hold, make: MakeCommand, follow: readonly Change[] | undefined): Promise<Fate> {
    return new Promise((tell) => this.#add(hold, make, follow, tell));
  }

  #add(
    hold: Hold,
    make: MakeCommand,
    follow: Settlement["follow"],
    tell: Settlement["tell"],
  ): void {
    this.#unsettled++;
    this.#enqueue({
      hold,
      make,
      follow,
      tell,
      job: hold.job,
      event: undefined,
      isUnsure: false,
      decisions: 0,
      retryMs: retryMinMs,
    });
  }

  /** Waits until every outcome is stored, ignored or given up. */
  async idle(): Promise<void> {
    if (this.#unsettled > 0) await new Promise<void>((resolve) => this.#waiters.push(resolve));
  }

  #enqueue(settlement: Settlement): void {
    if (this.#queue.length === 0) queueMicrotask(() => this.#flush());
    this.#queue.push(settlement);
  }

  #flush(): void {
    const queue = this.#queue;
    this.#queue = [];
    for (let start = 0; start < queue.length; start += batchMax) {
      const whole = start === 0 && queue.length <= batchMax;
      void this.#send(whole ? queue : queue.slice(start, start + batchMax));
    }
    this.#options.onSent();
  }

  async #send(settlements: readonly Settlement[]): Promise<void> {
    const sent: Settlement[] = [];
    const moved: Settlement[] = [];
    const changes: Change[] = [];
    const now = this.#runtime.engine.now();
    for (const settlement of settlements) {
      const event = settlement.event ?? this.#decide(settlement, now);
      if (event === undefined) {
        moved.push(settlement);
        continue;
      }
      settlement.event = event;
      sent.push(settlement);
      changes.push(changeOf(settlement, event));
    }
    try {
      if (changes.length > 0) this.#apply(sent, await this.#store(sent, changes), moved);
    } catch (error) {
      this.#retryLater(sent, error);
    }
    try {
      if (moved.length > 0) await this.#reconsider(moved);
    } catch (error) {
      this.#retryLater(moved, error);
    }
  }

  #store(
    sent: readonly Settlement[],
    changes: readonly Change[],
  ): Promise<readonly AppendOutcome[]> {
    const { engine, telemetry } = this.#runtime;
    const recorder = telemetry?.recorder();
    if (!recorder) return engine.settle(changes);
    const jobs = sent.map(({ hold }) => hold.job);
    return recorder.settle(jobs, () => engine.settle(changes));
  }

  #decide(settlement: Settlement, now: number): JobEvent | undefined {
    settlement.decisions++;
    const decision = decide(settlement.job, settlement.make(), now);
    return decision.ok ? decision.event : undefined;
  }

  #apply(
    sent: readonly Settlement[],
    outcomes: readonly AppendOutcome[],
    moved: Settlement[],
  ): void {
    const removals: Removal[] = [];
    const faulted: Settlement[] = [];
    let fault: StoreError | undefined;
    for (let index = 0; index < sent.length; index++) {
      const settlement = sent[index] as Settlement;
      const answer = outcomes[index];
      if (answer?.outcome === "bad_blocker") {
        this.#over(settlement, { fate: "refused", refusal: answer });
        continue;
      }
      if (answer?.outcome === "faulted") {
        faulted.push(settlement);
        fault ??= answer.error;
        continue;
      }
      if (answer?.outcome !== "appended") {
        moved.push(settlement);
        continue;
      }
      const removal = this.#stored(settlement);
      if (removal) removals.push(removal);
      this.#over(settlement, stored);
    }
    if (removals.length > 0) void discard(removals, this.#runtime);
    if (fault !== undefined) this.#retryLater(faulted, fault);
  }

  /** Tells the log of a bad end, and gives the removal of a job that is not kept. */
  #stored({ hold, job, event }: Settlement): Removal | undefined {
    if (event === undefined) return undefined;
    if (event.name === "dead" || event.name === "failed") {
      const fields = { ...jobFields(job), tries: event.tries, error: event.error };
      this.#runtime.logger.error(fields, `A job has ended as ${event.name}.`);
    }
    this.#options.onStored(hold, job, event);
    return removalOf({ hold, job }, event, this.#runtime);
  }

  /** The jobs have moved on: loads them and decides again. */
  async #reconsider(settlements: readonly Settlement[]): Promise<void> {
    const history = settlements.some((settlement) => settlement.isUnsure);
    const ids = settlements.map((settlement) => settlement.hold.job.id);
    const loaded = await this.#runtime.engine.load(ids, { history });
    const stale: Stale[] = [];
    const now = this.#runtime.engine.now();
    for (const [index, settlement] of settlements.entries()) {
      const found = loaded[index];
      // Of a deleted job nothing is left to settle, but its slots wait for this worker's word.
      if (!found) stale.push({ settlement, job: null });
      else if (wasStored(settlement, found)) {
        this.#stored(settlement);
        this.#over(settlement, stored);
      } else if (!this.#decideAgain(settlement, found.job, now)) {
        stale.push({ settlement, job: found.job });
      }
    }
    if (stale.length > 0) await this.#reportStale(stale);
  }

  /** Gives whether the outcome is dealt with: on its way again, or given up. */
  #decideAgain(settlement: Settlement, job: Job, now: number): boolean {
    if (settlement.decisions >= decisionsMax) {
      this.#drop(settlement, `its job kept changing while it was decided ${decisionsMax} times`);
      return true;
    }
    settlement.job = job;
    const event = this.#decide(settlement, now);
    if (event === undefined) return false;
    settlement.event = event;
    settlement.isUnsure = false;
    this.#enqueue(settlement);
    return true;
  }

  /** Records outcomes that came under an old token, which also frees what that token still holds. */
  async #reportStale(stale: readonly Stale[]): Promise<void> {
    const { engine, ids, instance, logger } = this.#runtime;
    const notes: JobEvent[] = [];
    for (const { settlement, job: found } of stale) {
      const job = found ?? settlement.job;
      const { token } = settlement.hold.job;
      const outcome = settlement.event?.name ?? settlement.make().command;
      const origin = { eventId: ids.eventId(), actor: `worker:${instance}` } as const;
      const decision = decide(
        job,
        { command: "reportStale", token, outcome, ...origin },
        engine.now(),
      );
      if (decision.ok) notes.push(decision.event);
      const fields = { ...jobFields(job), outcome, token, state: job.state };
      logger.warn(fields, "An outcome was ignored: the job is no longer under the worker's token.");
    }
    try {
      await engine.note(notes);
    } catch (error) {
      logger.warn({ error, outcomes: notes.length }, "Ignored outcomes could not be recorded.");
    }
    for (const { settlement, job } of stale) this.#over(settlement, { fate: "stale", job });
  }

  /** The store could not take them. Each goes on its own from now on, so that none holds up another. */
  #retryLater(settlements: readonly Settlement[], error: unknown): void {
    const { clock, logger } = this.#runtime;
    let delayed = 0;
    for (const settlement of settlements) {
      if (settlement.hold.phase !== "settling") continue;
      if (StoreClosed.is(error) || clock.monotonic() >= settlement.hold.lapsesAt) {
        this.#drop(settlement, "the store did not take it before its lease lapsed", error);
        continue;
      }
      if (settlement.retryMs === retryMinMs) delayed++;
      settlement.isUnsure = true;
      clock.after(settlement.retryMs, () => void this.#send([settlement]));
      settlement.retryMs = Math.min(settlement.retryMs * 2, retryMaxMs);
    }
    if (delayed > 0) {
      logger.warn({ error, outcomes: delayed }, "Outcomes could not be stored; trying again.");
    }
  }

  #drop(settlement: Settlement, why: string, error?: unknown): void {
    const { job } = settlement.hold;
    const outcome = settlement.event?.name ?? settlement.make().command;
    const fields = { ...jobFields(job), outcome, error };
    this.#runtime.logger.error(fields, `An outcome was not stored: ${why}.`);
    this.#over(settlement, { fate: "dropped" });
  }

  #over({ hold, tell }: Settlement, fate: Fate): void {
    this.#unsettled--;
    if (tell !== undefined) {
      hold.phase = fate.fate === "refused" ? "running" : "settled";
      tell(fate);
    }
    this.#options.onOver(hold);
    if (this.#unsettled > 0 || this.#waiters.length === 0) return;
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const resolve of waiters) resolve();
  }
}

/** An outcome under an old token, with the job as it is now; `null` when it is gone. */
interface Stale {
  readonly settlement: Settlement;
  readonly job: Job | null;
}

/** The change that settles an attempt with an event that was decided on `job`. */
export function changeOf(
  { hold, job, follow }: Pick<Settlement, "hold" | "job" | "follow">,
  event: JobEvent,
): Change {
  const expect = { version: job.version, token: hold.job.token };
  return follow === undefined
    ? { job: hold.key, expect, event }
    : { job: hold.key, expect, event, follow };
}

/** After a fault it is open whether the event was stored: its id tells. */
function wasStored({ isUnsure, event }: Settlement, found: LoadedJob): boolean {
  return isUnsure && event !== undefined && !!found.events?.some(({ id }) => id === event.id);
}
