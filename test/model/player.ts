// Plays random commands on one engine: callers, workers and keepers, each with what they know.
import fc from "fast-check";
import type { Environment, Wish } from "millrace/conformance";
import { blockerVerdict, continuationId } from "#millrace/core/chains.js";
import { decide } from "#millrace/core/decide.js";
import { jobHash } from "#millrace/core/evolve.js";
import type { Blocker, Job, JobKeyPolicy } from "#millrace/core/job.js";

const service = "shop";
const types = ["mail", "sync"] as const;
const keyNames = ["k1", "k2"] as const;
const leaseMs = 100;

/** One thing that somebody does. `choice` picks a job among those that there are. */
export type Play =
  | { readonly kind: "advance"; readonly ms: number }
  | {
      readonly kind: "create";
      readonly type: (typeof types)[number];
      readonly key: (typeof keyNames)[number] | null;
      readonly whenFull: JobKeyPolicy["whenFull"];
      readonly stalePolicy: JobKeyPolicy["stalePolicy"];
      readonly priority: number;
      readonly delayMs: number;
      readonly deadlineMs: number | null;
      readonly maxTries: number;
      readonly deadLetter: boolean;
      /** Which of the jobs so far it waits for. */
      readonly blockers: readonly number[];
      readonly onBadEnd: Blocker["onBadEnd"];
      /** Whether it is the first of a chain. */
      readonly chained: boolean;
      readonly tags: readonly string[];
    }
  | {
      readonly kind: "claim";
      readonly lanes: readonly (typeof types)[number][];
      readonly limit: number;
      readonly worker: string;
    }
  | {
      readonly kind: "settle";
      readonly choice: number;
      readonly outcome: Outcome;
      /** Whether a completed job of a chain is continued. */
      readonly continued: boolean;
      readonly delayMs: number;
    }
  | { readonly kind: "renew" }
  | { readonly kind: "note"; readonly choice: number }
  | {
      readonly kind: "command";
      readonly choice: number;
      readonly command: Outside;
      readonly force: boolean;
    }
  | { readonly kind: "reap" }
  | { readonly kind: "expire" }
  | { readonly kind: "resolve" }
  | { readonly kind: "pause"; readonly type: (typeof types)[number]; readonly paused: boolean };

type Outcome = "complete" | "fail" | "release" | "terminate" | "skip" | "confirmCancel";
type Outside =
  | "cancel"
  | "complete"
  | "retry"
  | "dismiss"
  | "delete"
  | "unblock"
  | "releaseKey"
  | "skip";

const delays = fc.constantFrom(0, 0, 0, 20, 50, 150);

/** Everything that can happen, the common things more often. */
export const plays: fc.Arbitrary<Play> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant("advance"), ms: fc.constantFrom(1, 10, 40, 120) }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant("create"),
      type: fc.constantFrom(...types),
      key: fc.option(fc.constantFrom(...keyNames)),
      whenFull: fc.constantFrom("reject", "coalesce", "replace-oldest"),
      stalePolicy: fc.constantFrom("fail-stale", "requeue", "block"),
      priority: fc.integer({ min: -1, max: 2 }),
      delayMs: delays,
      deadlineMs: fc.option(fc.constantFrom(30, 200), { freq: 4 }),
      maxTries: fc.integer({ min: 1, max: 3 }),
      deadLetter: fc.boolean(),
      blockers: fc.oneof(
        { weight: 4, arbitrary: fc.constant([]) },
        { weight: 1, arbitrary: fc.array(fc.nat(), { maxLength: 3 }) },
      ),
      onBadEnd: fc.constantFrom("continue", "unreachable"),
      chained: fc.boolean(),
      tags: fc.subarray(["red", "blue"]),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant("claim"),
      lanes: fc.subarray([...types], { minLength: 1 }),
      limit: fc.integer({ min: 1, max: 4 }),
      worker: fc.constantFrom("worker-1", "worker-2"),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant("settle"),
      choice: fc.nat(),
      outcome: fc.constantFrom<Outcome>(
        "complete",
        "complete",
        "fail",
        "fail",
        "release",
        "terminate",
        "skip",
        "confirmCancel",
      ),
      continued: fc.boolean(),
      delayMs: delays,
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("renew") }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("note"), choice: fc.nat() }) },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant("command"),
      choice: fc.nat(),
      command: fc.constantFrom<Outside>(
        "cancel",
        "cancel",
        "complete",
        "retry",
        "retry",
        "dismiss",
        "delete",
        "unblock",
        "releaseKey",
        "skip",
      ),
      force: fc.boolean(),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("reap") }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("expire") }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("resolve") }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("pause"),
      type: fc.constantFrom(...types),
      paused: fc.boolean(),
    }),
  },
) as fc.Arbitrary<Play>;

/** How a player plays. */
export interface PlayerOptions {
  /** Whether a claim takes all that may be started, so that the order in which it does so says nothing. */
  readonly takesAll?: boolean;
}

/** Callers, workers and a keeper on one engine. What they answer can be compared as JSON. */
export class Player {
  readonly #env: Environment;
  readonly #takesAll: boolean;
  /** The jobs that workers believe to hold, as they were when they were claimed. */
  readonly #held: Job[] = [];
  readonly #created: string[] = [];

  constructor(env: Environment, { takesAll = false }: PlayerOptions = {}) {
    this.#env = env;
    this.#takesAll = takesAll;
  }

  /** Does one thing and gives the answer. */
  async play(play: Exclude<Play, { kind: "advance" }>): Promise<unknown> {
    switch (play.kind) {
      case "create":
        return this.#create(play);
      case "claim":
        return this.#claim(play);
      case "settle":
        return this.#settle(play);
      case "renew":
        return this.#env.engine.renew(
          this.#held.map((job) => ({ job, token: job.token, leaseMs })),
        );
      case "note":
        return this.#note(play.choice);
      case "command":
        return this.#command(play);
      case "reap":
        return this.#reap();
      case "expire":
        return this.#expire();
      case "resolve":
        return this.#resolve();
      case "pause":
        return this.#env.pause(play.type, play.paused);
    }
  }

  /** Every fold, log, row and count of the store. */
  async everything(): Promise<unknown> {
    const { engine } = this.#env;
    const loaded = await engine.load(this.#created, { history: true });
    const folds = loaded.map((entry) => entry && jobHash(entry.job));
    const logs = loaded.map((entry) =>
      entry?.events?.map(({ name, version, at }) => [name, version, at]),
    );
    const page = await engine.query("jobs", { limit: 100 });
    const keys = [];
    for (const type of types) {
      for (const name of keyNames) keys.push(await this.#key(this.#policy(name, type).hash));
    }
    const counts = await engine.query("counts", {});
    const queues = await engine.query("queues", {});
    const chains = await engine.query("chains", { limit: 100 });
    const relatives = await engine.query("blockers", { ids: this.#created });
    const waiting = await engine.query("dependents", { ids: this.#created });
    const rows = [];
    for (const id of this.#created) rows.push(await engine.query("job", { id }));
    const views = { entries: page.entries, count: page.count, keys, counts, queues };
    return { folds, logs, rows, ...views, chains: chains.entries, relatives, waiting };
  }

  #policy(name: string, type: string, policy: Partial<JobKeyPolicy> = {}): JobKeyPolicy {
    const maxActive = name === "k1" ? 1 : 2;
    return this.#env.key(name, { type, maxActive, maxQueued: 2, ...policy });
  }

  async #create(play: Extract<Play, { kind: "create" }>): Promise<unknown> {
    const { now } = this.#env;
    const { type, key, whenFull, stalePolicy, priority, delayMs, deadlineMs } = play;
    const id = `job-${this.#created.length}`;
    const change = this.#env.creation({
      id,
      type,
      priority,
      runAt: now + delayMs,
      maxTries: play.maxTries,
      deadLetter: play.deadLetter,
      tags: play.tags,
      blockers: this.#blockers(play),
      ...(play.chained && { chainId: id }),
      ...(deadlineMs !== null && { deadline: now + deadlineMs }),
      ...(key && { key: this.#policy(key, type, { whenFull, stalePolicy }) }),
    });
    const outcome = await this.#env.append(change);
    if (outcome.outcome === "appended") this.#created.push(change.job.id);
    return outcome;
  }

  /** A chain that is waited for as one is named by its first job; some may be gone. */
  #blockers({ blockers, onBadEnd }: Extract<Play, { kind: "create" }>): Blocker[] {
    if (this.#created.length === 0) return [];
    return blockers.map((choice) => {
      const jobId = this.#created[choice % this.#created.length] ?? "";
      return choice % 2 === 0 ? { jobId, onBadEnd } : { jobId, onBadEnd, chain: true };
    });
  }

  async #claim({ lanes, limit, worker }: Extract<Play, { kind: "claim" }>): Promise<unknown> {
    if (this.#takesAll) return this.#claimAll(lanes, worker);
    // One type has room for few, so that caps matter; the other has not.
    const asks = lanes.map((type) =>
      type === "mail" ? { type, leaseMs } : { type, leaseMs, typeMaxActive: 3, queueMaxActive: 3 },
    );
    const claimed = await this.#env.claimed(asks, { limit, worker });
    this.#held.push(...claimed.map(({ job }) => job));
    return claimed;
  }

  async #claimAll(lanes: readonly string[], worker: string): Promise<unknown> {
    const asks = lanes.map((type) => ({ type, leaseMs }));
    const claimed = await this.#env.claimed(asks, { worker });
    const ordered = [...claimed].sort((a, b) => (a.job.id < b.job.id ? -1 : 1));
    this.#held.push(...ordered.map(({ job }) => job));
    return ordered;
  }

  /** A worker settles what it holds. Where it has lost the job, it decides again, and then gives up with a note. */
  async #settle(play: Extract<Play, { kind: "settle" }>): Promise<unknown> {
    const [held] = this.#held.splice(play.choice % Math.max(this.#held.length, 1), 1);
    if (held === undefined) return null;
    const fresh = await this.#env.find(held.id);
    const answers: unknown[] = [];
    for (const job of [held, fresh]) {
      if (job === null || job.state !== "active" || job.token !== held.token) continue;
      const outcome = await this.#settleOne(job, play);
      answers.push(outcome);
      if (outcome.outcome === "appended") return answers;
    }
    if (fresh !== null) {
      const wish = { command: "reportStale", token: held.token, outcome: play.outcome } as const;
      answers.push(await this.#env.engine.note([this.#env.event(fresh, wish)]));
    }
    return answers;
  }

  async #settleOne(job: Job, play: Extract<Play, { kind: "settle" }>) {
    if (play.outcome !== "complete" || !play.continued || job.chainId === undefined)
      return this.#env.settle(job, this.#outcome(play, job.token));
    const { chainId, token, key } = job;
    const next = this.#env.creation({
      id: continuationId(job),
      chainId,
      type: job.type,
      runAt: this.#env.now + play.delayMs,
      ...(key && { key }),
    });
    const continuation = { jobId: next.job.id, type: job.type };
    const wish = { command: "complete", token, continuation, completedBy: "worker-1" } as const;
    const outcome = await this.#env.settle(job, wish, [next]);
    if (outcome.outcome === "appended") this.#created.push(next.job.id);
    return outcome;
  }

  #outcome(play: Extract<Play, { kind: "settle" }>, token: number): Wish {
    const error = { message: "no luck", reason: "error" } as const;
    const later = this.#env.now + play.delayMs;
    switch (play.outcome) {
      case "complete":
        return { command: "complete", token, result: { at: later }, completedBy: "worker-1" };
      case "fail":
        return { command: "fail", token, error, retryAt: later };
      case "release":
        return { command: "release", token, cause: "snooze", runAt: later };
      case "terminate":
        return { command: "terminate", token, error };
      case "skip":
        return { command: "skip", token, reason: "not needed" };
      case "confirmCancel":
        return { command: "confirmCancel", token };
    }
  }

  async #note(choice: number): Promise<unknown> {
    const job = this.#held[choice % Math.max(this.#held.length, 1)];
    if (job === undefined) return null;
    const progress = { current: this.#env.now };
    return this.#env.engine.note([
      this.#env.event(job, { command: "progress", token: job.token, progress }),
    ]);
  }

  async #command(play: Extract<Play, { kind: "command" }>): Promise<unknown> {
    const id = this.#created[play.choice % Math.max(this.#created.length, 1)];
    const job = id === undefined ? null : await this.#env.find(id);
    if (job === null) return null;
    return this.#apply(job, this.#wish(play));
  }

  #wish({ command, force }: Extract<Play, { kind: "command" }>): Wish {
    switch (command) {
      case "cancel":
        return { command, force, reason: "enough" };
      case "complete":
        return { command, completedBy: null };
      case "retry":
        return { command, runAt: this.#env.now, force };
      case "delete":
        return { command, reason: "test", force };
      case "skip":
        return { command, reason: "not needed" };
      case "dismiss":
      case "unblock":
      case "releaseKey":
        return { command };
    }
  }

  /** Applies a wish from outside if the core allows it. */
  async #apply(job: Job, wish: Wish): Promise<unknown> {
    const origin = { eventId: "trial", actor: wish.actor ?? "client:caller" } as const;
    const decision = decide(
      job,
      { ...wish, ...origin } as Parameters<typeof decide>[1],
      this.#env.now,
    );
    if (!decision.ok) return decision.rejection.reason;
    return this.#env.append(this.#env.change(job, wish));
  }

  async #reap(): Promise<unknown> {
    const due = await this.#env.engine.due({ kind: "lapsed", service }, 10);
    const answers: unknown[] = [due];
    for (const { id, token } of due) {
      const wish = {
        command: "lapse",
        actor: "keeper:keeper-1",
        token,
        retryAt: this.#env.now,
      } as const;
      answers.push(await this.#apply(await this.#env.load(id), wish));
    }
    return answers;
  }

  async #expire(): Promise<unknown> {
    const due = await this.#env.engine.due({ kind: "deadline", service }, 10);
    const answers: unknown[] = [due];
    for (const { id } of due) {
      const job = await this.#env.load(id);
      answers.push(await this.#apply(job, { command: "expire", actor: "keeper:keeper-1" }));
    }
    return answers;
  }

  /** As the keeper does it: what is found is resolved by the core. */
  async #resolve(): Promise<unknown> {
    const { engine } = this.#env;
    const due = await engine.due({ kind: "blocked", service }, 10);
    const rows = await engine.query("blockers", { ids: due.map(({ id }) => id) });
    const answers: unknown[] = [due, rows];
    for (const [index, { id }] of due.entries()) {
      const job = await this.#env.load(id);
      const found = blockerVerdict(job.blockers, (_, place) => rows[index]?.[place]?.state);
      const actor = "keeper:keeper-1";
      if (found.verdict === "wait") throw new Error(`Job ${id} was found and has to wait.`);
      const wish: Wish =
        found.verdict === "unblock"
          ? { command: "unblock", actor }
          : { command: "blockerEndedBadly", blockerId: found.blockerId, actor };
      answers.push(await this.#apply(job, wish));
    }
    return answers;
  }

  /** A key's row; the order of its holders says nothing. */
  async #key(hash: string): Promise<unknown> {
    const row = await this.#env.engine.query("key", { hash });
    if (row === null) return null;
    const active = row.active.map((holder) => JSON.stringify(holder)).sort();
    return { ...row, active };
  }
}
