/**
 * Renews the leases of all holds together, on one timer, and tells handlers what the store says:
 * that their job was cancelled, has ended, or is no longer theirs.
 */
import { cancelRequestsFor } from "../client/cancel-requests.js";
import type { Runtime } from "../client/runtime.js";
import { batchMax, type RenewOutcome } from "../engine/engine.js";
import { abortReasonOf } from "./abort.js";
import type { Hold } from "./hold.js";
import type { Holds } from "./holds.js";

/** How long to wait before a renewal that failed is tried again, unless the lease is short. */
const retryMs = 1_000;

/** The share of its interval after which a lease is renewed with the others. */
const dueShare = 0.5;

export class Leases {
  readonly #runtime: Runtime;
  readonly #holds: Holds;
  readonly #intervalMs: number;
  #callOff: (() => void) | undefined;
  #isRenewing = false;
  #hinted = false;
  #stopped = false;

  /** `intervalMs` is the shortest interval of all job types. */
  constructor(runtime: Runtime, holds: Holds, intervalMs: number) {
    this.#runtime = runtime;
    this.#holds = holds;
    this.#intervalMs = intervalMs;
  }

  /** Makes sure that the timer runs. It stops by itself when nothing is held. */
  watch(): void {
    if (this.#callOff === undefined && !this.#stopped) this.#schedule(this.#intervalMs);
  }

  /** Renews everything now, because a job was cancelled and it could be one of these. */
  hint(): void {
    if (this.#holds.size === 0 || this.#stopped) return;
    if (this.#isRenewing) this.#hinted = true;
    else void this.#renewAll(0);
  }

  /** Renews one lease now. */
  async renew(hold: Hold): Promise<void> {
    if (!hold.abandoned && hold.phase !== "settled") await this.#renew([hold]);
  }

  /** Renews nothing any more. */
  stop(): void {
    this.#stopped = true;
    this.#callOff?.();
    this.#callOff = undefined;
  }

  #schedule(delayMs: number): void {
    this.#callOff?.();
    this.#callOff = this.#runtime.clock.after(delayMs, () => {
      this.#callOff = undefined;
      if (this.#holds.size === 0) return;
      this.#schedule(this.#intervalMs);
      if (!this.#isRenewing) void this.#renewAll(dueShare);
    });
  }

  /** Renews what was last renewed longer ago than this share of its interval. */
  async #renewAll(share: number): Promise<void> {
    this.#isRenewing = true;
    const now = this.#runtime.clock.monotonic();
    const due: Hold[] = [];
    for (const hold of this.#holds) {
      if (hold.phase === "settled") continue;
      const ageMs = now - hold.renewedAt;
      if (ageMs >= hold.lane.renewMs * share) due.push(hold);
    }
    const calls: Promise<boolean>[] = [];
    for (let start = 0; start < due.length; start += batchMax) {
      calls.push(this.#renew(due.slice(start, start + batchMax)));
    }
    const renewed = await Promise.all(calls);
    this.#isRenewing = false;
    if (this.#stopped) return;
    if (renewed.includes(false)) this.#schedule(Math.min(retryMs, this.#intervalMs / 4));
    if (this.#hinted) {
      this.#hinted = false;
      this.hint();
    }
  }

  /** Gives whether the store answered. */
  async #renew(holds: readonly Hold[]): Promise<boolean> {
    const { engine, clock, logger } = this.#runtime;
    const askedAt = clock.monotonic();
    try {
      const held = holds.map((hold) => {
        return { job: hold.key, token: hold.job.token, leaseMs: hold.lane.settings.leaseMs };
      });
      const outcomes = await engine.renew(held);
      for (const [index, hold] of holds.entries()) {
        const outcome = outcomes[index];
        if (outcome) this.#apply(hold, outcome, askedAt);
      }
      await this.#lookForCancels(holds.filter(({ locksLease }) => locksLease));
      return true;
    } catch (error) {
      for (const hold of holds) hold.renewalFailed = true;
      logger.warn({ error, leases: holds.length }, "Leases could not be renewed; trying again.");
      return false;
    }
  }

  /** A cancel that cannot be appended to a locked job lies beside it. */
  async #lookForCancels(locked: readonly Hold[]): Promise<void> {
    if (locked.length === 0) return;
    const requests = await cancelRequestsFor(
      this.#runtime,
      locked.map(({ key }) => key),
    );
    for (const [index, hold] of locked.entries()) {
      const request = requests[index];
      if (!request || request.run !== hold.job.run) continue;
      hold.cancelReason = request.reason;
      this.#holds.abort(hold, "cancelled");
    }
  }

  /** A job that is no longer this worker's is renewed as well, because its slots are in use while the handler runs. */
  #apply(hold: Hold, outcome: RenewOutcome, askedAt: number): void {
    hold.renewedAt = askedAt;
    hold.renewalFailed = false;
    switch (outcome.outcome) {
      case "held":
        hold.leaseUntil = outcome.leaseUntil;
        if (outcome.cancelRequested) this.#holds.abort(hold, "cancelled");
        return;
      case "ended":
        hold.isLost = true;
        this.#holds.abort(hold, abortReasonOf(outcome.state));
        return;
      case "lost":
        hold.isLost = true;
        this.#holds.abort(hold, outcome.state ? abortReasonOf(outcome.state) : "not_found");
        return;
    }
  }
}
