/**
 * Claims for one process: at once where nothing is to be decided, and step by step for what that left.
 */
import { laneOf } from "../../core/order.js";
import { distinctLanes } from "../claim-lanes.js";
import type { ClaimAnswer, ClaimAsk, ClaimedJob } from "../engine.js";
import { type CapsLeft, capScopes, type OpenLane } from "../sql/caps.js";
import type { Step } from "../sql/statement.js";
import { claimJobs, countUnderLock, type KeySweep, lockCaps, sweepKeys } from "./claim.js";
import { claimFew, mayTakeFew } from "./few-claim.js";
import { Marks } from "./marks.js";
import { claimPlain, type PlainClaim } from "./plain-claim.js";
import { type SharedLeases, sharedMin } from "./shared-leases.js";
import type { PostgresTransaction } from "./transaction.js";
import type { Transactions } from "./transactions.js";

/**
 * How often a claim with places to spare looks for keys whose next job was not let in. Jobs that are there do not wait for
 * that: a claim that found none looks, and only when there has been no such claim for long any other. Where there are always more
 * jobs than places, a look goes before the claim.
 */
const sweepEveryMs = 5_000;
const sweepLateMs = 30_000;

export class Claimer {
  readonly #transactions: Transactions;
  readonly #sharedLeases: SharedLeases;
  readonly #marks = new Marks();
  /** The last claim found fewer jobs than it asked for. */
  #isIdle = false;
  /** It found few, too, so that few are expected of the next. */
  #isQuiet = false;
  /** The key behind which the next sweep begins. */
  #sweptTo = "";
  #sweptAt = Number.NEGATIVE_INFINITY;
  /** A claim that found jobs sweeps no sooner than this. The first claims of a busy process so are not held up. */
  #isLateFrom = performance.now() + sweepLateMs;

  constructor(transactions: Transactions, sharedLeases: SharedLeases) {
    this.#transactions = transactions;
    this.#sharedLeases = sharedLeases;
  }

  /** Claims jobs of lanes whose numbers are known. */
  async claim(ask: ClaimAsk): Promise<ClaimAnswer> {
    const mayLook = this.#isIdle;
    const isLate = performance.now() >= this.#isLateFrom;
    if (isLate && !mayLook) await this.#sweepBefore();
    let answer =
      isLate && mayLook ? await this.#sweep(ask) : await this.#claimAtOnce(ask, this.#isQuiet);
    const foundNone = answer.jobs.length === 0;
    if (mayLook && foundNone && this.#isSweepDue()) answer = await this.#sweep(ask);
    this.#isIdle = answer.jobs.length < ask.limit;
    this.#isQuiet = this.#isIdle && answer.jobs.length < sharedMin;
    return answer;
  }

  #isSweepDue(): boolean {
    return performance.now() - this.#sweptAt >= sweepEveryMs;
  }

  /** Claims, and looks at the keys behind those of the last look. */
  async #sweep(ask: ClaimAsk): Promise<ClaimAnswer> {
    const sweep = this.#beginSweep();
    const answer = await this.#claimInSteps(ask, sweep);
    this.#sweptTo = sweep.upTo;
    return answer;
  }

  /** Looks at keys alone. */
  async #sweepBefore(): Promise<void> {
    const sweep = this.#beginSweep();
    await this.#transactions.again((tx) => sweepKeys(tx, sweep));
    this.#sweptTo = sweep.upTo;
  }

  #beginSweep(): KeySweep {
    this.#sweptAt = performance.now();
    this.#isLateFrom = this.#sweptAt + sweepLateMs;
    return { from: this.#sweptTo, upTo: this.#sweptTo };
  }

  async #claimAtOnce(ask: ClaimAsk, isFew: boolean): Promise<ClaimAnswer> {
    const take = (tx: PostgresTransaction) => this.#takeFirst(tx, ask, isFew);
    const { answer, follow } = await this.#transactions.again(take, { purpose: "claim" });
    if (follow === "nothing") return answer;
    const { jobs } = answer;
    const rest = withoutTaken(ask, jobs);
    try {
      const more = await (follow === "any"
        ? this.#claimAtOnce(rest, false)
        : this.#claimInSteps(rest, null));
      return { jobs: [...jobs, ...more.jobs], nextDueAt: more.nextDueAt };
    } catch (error) {
      // What was taken is the worker's already, whatever became of the rest.
      if (jobs.length > 0) return { jobs, nextDueAt: null };
      throw error;
    }
  }

  /** Where lanes with caps had jobs before, these are counted first, unless lanes compete for the places of one. */
  *#takeFirst(tx: PostgresTransaction, ask: ClaimAsk, isFew: boolean): Step<PlainClaim> {
    const lanes = openLanes(tx, ask);
    const lined = lanes.filter(({ number }) => this.#marks.isLined(number));
    const counted = haveSharedCap(lanes) ? [] : lined;
    const marks = this.#marks;
    if (isFew && mayTakeFew(ask, lanes, marks)) {
      const left: CapsLeft = new Map();
      if (counted.length > 0) yield* countUnderLock(tx, counted, left);
      return yield* claimFew(tx, ask, lanes, left, marks);
    }
    if (counted.length > 0) yield* lockCaps(counted);
    return yield* claimPlain(tx, ask, lanes, counted, { marks, sharedLeases: this.#sharedLeases });
  }

  #claimInSteps(ask: ClaimAsk, sweep: KeySweep | null): Promise<ClaimAnswer> {
    return this.#transactions.again((tx) =>
      claimJobs(tx, ask, openLanes(tx, ask), sweep, this.#marks),
    );
  }
}

function openLanes(tx: PostgresTransaction, ask: ClaimAsk): readonly OpenLane[] {
  return distinctLanes(ask.lanes).map((lane) => ({
    lane,
    number: tx.lanes.get(lane.lane) ?? 0,
    caps: capScopes(lane),
    free: lane.free,
  }));
}

function haveSharedCap(lanes: readonly OpenLane[]): boolean {
  const caps = lanes.flatMap((lane) => lane.caps);
  return new Set(caps).size < caps.length;
}

/** What is still wished for after some jobs were taken. */
function withoutTaken(ask: ClaimAsk, taken: readonly ClaimedJob[]): ClaimAsk {
  if (taken.length === 0) return ask;
  const counts = new Map<string, number>();
  for (const { job } of taken) {
    const lane = laneOf(job);
    counts.set(lane, (counts.get(lane) ?? 0) + 1);
  }
  const lanes = ask.lanes
    .map((lane) => ({ ...lane, free: lane.free - (counts.get(lane.lane) ?? 0) }))
    .filter(({ free }) => free > 0);
  return { ...ask, lanes, limit: ask.limit - taken.length };
}
