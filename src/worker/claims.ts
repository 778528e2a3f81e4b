/**
 * The claim loop: one for all lanes of a worker. It asks for as many jobs as there are free places,
 * asks again as soon as places come free, and sleeps while there is nothing to do.
 */
import type { Runtime } from "../client/runtime.js";
import type { Job } from "../core/job.js";
import { laneOf } from "../core/order.js";
import { batchMax, type ClaimAnswer, type ClaimAsk, type ClaimedJob } from "../engine/engine.js";
import { StoreTooNew } from "../engine/errors.js";
import type { WorkerLane } from "./lane.js";
import type { Lanes } from "./lanes.js";
import type { QueueLimits } from "./queue-limits.js";

/** How long an idle worker sleeps at most: hints may be lost, so it looks by itself, ever more rarely. */
const pollMinMs = 1_000;
const pollMaxMs = 5_000;

/**
 * One claim takes at most this share of a lane's places, but never has to be smaller than the second
 * number. So handlers of one claim run while the store settles those of another, no answer is so
 * large that it holds up the process, and a long line of one type never keeps another waiting.
 */
const claimShareMax = 1 / 3;
const claimSmall = 50;

/**
 * How many claims may be under way while jobs come in full batches, unless the store has a wish of its own. Each goes to the
 * store together with the outcomes of the batch before, so that one commit serves both; and there are two such batches, so
 * that the handlers of one run while the store is busy with the other.
 */
const claimsAtOnce = 2;

/** What the loop needs to know and to tell. */
export interface ClaimsOptions {
  readonly runtime: Runtime;
  readonly lanes: Lanes;
  readonly limits: QueueLimits;
  /** How many places of the worker are free over all lanes. */
  readonly free: () => number;
  /** A job was claimed; `askedAt` is the monotonic time from which its lease counts. */
  readonly onClaimed: (lane: WorkerLane, claimed: ClaimedJob, askedAt: number) => void;
}

export class Claims {
  readonly #options: ClaimsOptions;
  readonly #lanes: Lanes;
  readonly #claimsMax: number;
  #isStarted = false;
  readonly #underWay = new Set<Promise<void>>();
  /** How many claims the store has not answered. */
  #unanswered = 0;
  /** The places that the claims under way have asked for. */
  #asked = 0;
  /** The last claim got all that it asked for of some lane, so that there is probably more. */
  #isBusy = false;
  /** Something happened while a claim was under way, so that it may have missed a job. */
  #again = false;
  #pollMs = pollMinMs;
  #isFailing = false;
  #callOff: (() => void) | undefined;
  #stopListening: (() => void) | undefined;

  constructor(options: ClaimsOptions) {
    this.#options = options;
    this.#lanes = options.lanes;
    this.#claimsMax = options.runtime.engine.claimsAtOnce ?? claimsAtOnce;
  }

  start(): void {
    this.#isStarted = true;
    this.#stopListening = this.#options.runtime.engine.wake("ready", () => this.poke());
    this.poke();
  }

  /** Claims no more, and waits for the claim that is under way. */
  async stop(): Promise<void> {
    this.#end();
    await Promise.all(this.#underWay);
  }

  /** There may be a job to claim: a place came free, or the store gave a hint. */
  poke(): void {
    this.#pollMs = pollMinMs;
    if (this.#unanswered < (this.#isBusy ? this.#claimsMax : 1)) this.#claim();
    else this.#again = true;
  }

  #claim(): void {
    if (!this.#isStarted) return;
    const ask = this.#ask();
    if (ask.limit === 0) return;
    this.#sleepNoMore();
    this.#again = false;
    this.#unanswered += 1;
    this.#reserve(ask, 1);
    const claim = this.#carryOut(ask)
      .catch((error) => this.#failed(error))
      .finally(() => this.#underWay.delete(claim));
    this.#underWay.add(claim);
  }

  /** Counts the places that a claim asks for, or no longer asks for, as taken. */
  #reserve(ask: ClaimAsk, sign: 1 | -1): void {
    this.#asked += sign * ask.limit;
    for (const { lane, free } of ask.lanes) {
      const asked = this.#lanes.get(lane);
      if (asked) asked.asked += sign * Math.min(free, ask.limit);
    }
  }

  #ask(): ClaimAsk {
    const { lanes, free, runtime } = this.#options;
    const open = Math.max(free() - this.#asked, 0);
    let wanted = 0;
    const asked = [];
    for (const lane of lanes) {
      const { concurrency } = lane.settings;
      const places = Math.min(concurrency - lane.running - lane.asked, open, claimMax(concurrency));
      if (places <= 0) continue;
      asked.push({ ...lane.ask, free: places });
      wanted += places;
    }
    return {
      worker: runtime.instance,
      lanes: asked,
      limit: Math.min(wanted, open, batchMax),
    };
  }

  async #carryOut(ask: ClaimAsk): Promise<void> {
    const { engine, clock } = this.#options.runtime;
    const askedAt = clock.monotonic();
    const now = engine.now();
    let answer: ClaimAnswer | undefined;
    try {
      answer = await this.#answerTo(ask);
      this.#isBusy = isFull(answer.jobs, ask);
      // The store would have nothing to do while these jobs are handed over. Their places still count as asked for.
      if (this.#isBusy && this.#unanswered < this.#claimsMax) this.#claim();
    } catch (error) {
      this.#failed(error);
    }
    this.#unanswered -= 1;
    this.#reserve(ask, -1);
    if (answer === undefined) return;
    this.#recovered();
    this.#takeAll(answer.jobs, askedAt);
    // No job waits for that.
    this.#options.limits.refresh();
    this.#goOn(answer, now);
  }

  #answerTo(ask: ClaimAsk): Promise<ClaimAnswer> {
    const { engine, telemetry } = this.#options.runtime;
    const limited = this.#limited(ask);
    const recorder = telemetry?.recorder();
    return recorder ? recorder.receive(() => engine.claim(limited)) : engine.claim(limited);
  }

  /** The same wish under the limits of operators. */
  #limited(ask: ClaimAsk): ClaimAsk {
    const { limits } = this.#options;
    if (limits.isEmpty) return ask;
    const lanes = ask.lanes.map((lane) => {
      const queueMaxActive = limits.of(lane.queue);
      return queueMaxActive === undefined ? lane : { ...lane, queueMaxActive };
    });
    return { ...ask, lanes };
  }

  #takeAll(jobs: readonly ClaimedJob[], askedAt: number): void {
    let last: Job | undefined;
    let lane: WorkerLane | undefined;
    for (const claimed of jobs) {
      // Jobs of one lane mostly come together, so that its name is made once for all of them.
      if (last === undefined || !isOfSameLane(claimed.job, last))
        lane = this.#lanes.get(laneOf(claimed.job));
      last = claimed.job;
      if (lane) this.#options.onClaimed(lane, claimed, askedAt);
    }
  }

  /** Claims again at once where there may be more, and sleeps otherwise. */
  #goOn(answer: ClaimAnswer, askedAt: number): void {
    if (answer.jobs.length > 0) this.#pollMs = pollMinMs;
    if (this.#again || this.#isBusy) {
      if (this.#unanswered < this.#claimsMax) this.#claim();
      return;
    }
    const { nextDueAt } = answer;
    // A job that was due before the claim and was not given waits for something else than time.
    const dueMs =
      nextDueAt !== null && nextDueAt > askedAt
        ? Math.max(nextDueAt - this.#options.runtime.engine.now(), 0)
        : Number.POSITIVE_INFINITY;
    this.#sleep(Math.min(dueMs, this.#pollMs));
    this.#pollMs = Math.min(this.#pollMs * 2, pollMaxMs);
  }

  #sleep(delayMs: number): void {
    if (!this.#isStarted) return;
    this.#sleepNoMore();
    this.#callOff = this.#options.runtime.clock.after(delayMs, () => {
      this.#callOff = undefined;
      if (this.#unanswered === 0) this.#claim();
    });
  }

  #sleepNoMore(): void {
    this.#callOff?.();
    this.#callOff = undefined;
  }

  #end(): void {
    this.#isStarted = false;
    this.#sleepNoMore();
    this.#stopListening?.();
  }

  #failed(error: unknown): void {
    this.#isBusy = false;
    if (!this.#isStarted) return;
    const { logger } = this.#options.runtime;
    if (StoreTooNew.is(error)) {
      // No later try of this process can succeed.
      this.#end();
      logger.error({ error }, `${error.message} Its worker claims no more jobs.`);
      return;
    }
    if (!this.#isFailing) {
      logger.error({ error }, "Jobs could not be claimed; the worker keeps trying.");
    }
    this.#isFailing = true;
    this.#sleep(this.#pollMs);
    this.#pollMs = Math.min(this.#pollMs * 2, pollMaxMs);
  }

  #recovered(): void {
    if (!this.#isFailing) return;
    this.#isFailing = false;
    this.#options.runtime.logger.info({}, "Jobs can be claimed again.");
  }
}

/** Whether a claim gave all that it asked for, of one lane at least, so that there is probably more. */
function isFull(jobs: readonly ClaimedJob[], { lanes, limit }: ClaimAsk): boolean {
  if (jobs.length === limit) return true;
  if (lanes.every(({ free }) => jobs.length < free)) return false;
  const counts = new Map<string, number>();
  let last: Job | undefined;
  let name = "";
  for (const { job } of jobs) {
    if (last === undefined || !isOfSameLane(job, last)) name = laneOf(job);
    last = job;
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return lanes.some(({ lane, free }) => counts.get(lane) === free);
}

/** The most jobs that one claim takes from a lane. */
function claimMax(concurrency: number): number {
  return Math.max(Math.ceil(concurrency * claimShareMax), claimSmall);
}

function isOfSameLane(a: Job, b: Job): boolean {
  return a.type === b.type && a.queue === b.queue && a.typeVersion === b.typeVersion;
}
