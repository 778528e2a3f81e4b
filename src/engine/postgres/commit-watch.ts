/**
 * Notices when transactions of callers have committed, by asking the server what became of them.
 * So nothing has to be hooked into the caller's client, and hints go out only after the commit.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Clock } from "../clock.js";
import { arrays, type Step } from "../sql/statement.js";
import { array, list } from "./text.js";

/** How soon to ask first, and how rarely at most. */
const askMinMs = 1;
const askMaxMs = 250;

/** How long the last question may take, in real time: the server is as real, whatever clock the store was given. */
const lastAskMaxMs = 1_000;

/** The most transactions that are watched; more than these are left to everybody's own polling. */
const watchedMax = 10_000;

/** What the watch needs. */
export interface CommitWatchOptions {
  readonly clock: Clock;
  readonly run: <Value>(step: Step<Value>) => Promise<Value>;
}

/** A transaction that is watched. */
interface Watched {
  readonly calls: (() => void)[];
  askMs: number;
  askAt: number;
}

export class CommitWatch {
  readonly #options: CommitWatchOptions;
  readonly #watched = new Map<string, Watched>();
  #isAsking = false;
  #isClosed = false;
  #callOff: (() => void) | undefined;

  constructor(options: CommitWatchOptions) {
    this.#options = options;
  }

  /** Calls back when the transaction has committed, and never if it is rolled back or outlives the watch. */
  add(xid: string, call: () => void): void {
    if (this.#isClosed) return;
    const known = this.#watched.get(xid);
    if (known) known.calls.push(call);
    if (known || this.#watched.size >= watchedMax) return;
    const askAt = this.#options.clock.monotonic() + askMinMs;
    this.#watched.set(xid, { calls: [call], askMs: askMinMs, askAt });
    this.#askLater();
  }

  /** Asks once more, because a commit right before the end would otherwise be told to nobody; then no more. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#callOff?.();
    if (this.#watched.size > 0) await this.#askLast();
    this.#watched.clear();
  }

  #askLater(): void {
    this.#callOff?.();
    if (this.#isAsking || this.#isClosed || this.#watched.size === 0) return;
    const { clock } = this.#options;
    const next = Math.min(...[...this.#watched.values()].map(({ askAt }) => askAt));
    this.#callOff = clock.after(next - clock.monotonic(), () => void this.#ask());
  }

  async #ask(): Promise<void> {
    const { clock, run } = this.#options;
    const now = clock.monotonic();
    const due = [...this.#watched].filter(([, { askAt }]) => askAt <= now);
    this.#isAsking = true;
    try {
      const answers = due.length > 0 ? await run(statusOf(due.map(([xid]) => xid))) : [];
      for (const [xid, status] of answers) this.#learn(xid, status);
    } catch {
      // The server cannot be asked now; the transactions are asked about again.
      for (const [, watched] of due) postpone(watched, clock.monotonic());
    }
    this.#isAsking = false;
    this.#askLater();
  }

  /** A server that does not answer is not waited for: hints may be lost. */
  async #askLast(): Promise<void> {
    const asked = this.#options.run(statusOf([...this.#watched.keys()])).catch(() => []);
    const waiting = new AbortController();
    const tooLong = sleep(lastAskMaxMs, [], { signal: waiting.signal }).catch(() => []);
    const answers = await Promise.race([asked, tooLong]);
    waiting.abort();
    for (const [xid, status] of answers) this.#learn(xid, status);
  }

  #learn(xid: string, status: string | null): void {
    const watched = this.#watched.get(xid);
    if (!watched) return;
    if (status === "in progress") {
      postpone(watched, this.#options.clock.monotonic());
      return;
    }
    this.#watched.delete(xid);
    // One that is too old to be known has ended, one way or the other: a hint too many does no harm.
    if (status !== "aborted") for (const call of watched.calls) call();
  }
}

function postpone(watched: Watched, now: number): void {
  watched.askMs = Math.min(watched.askMs * 2, askMaxMs);
  watched.askAt = now + watched.askMs;
}

/** What became of transactions. */
function* statusOf(xids: readonly string[]): Step<readonly (readonly [string, string | null])[]> {
  const rows = yield {
    sql: `SELECT xid, pg_xact_status(xid::xid8) FROM unnest(${array("text")}) AS xid`,
    values: [list(xids)],
    raw: true,
  };
  return arrays<[string, string | null]>(rows);
}
