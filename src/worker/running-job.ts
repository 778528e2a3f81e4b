/**
 * The handle behind `ActiveJob`. It is made for every job, so it holds nothing but references;
 * what a handler never touches costs nothing. Methods are getters that give closures,
 * so that `({ payload, log }) => …` works.
 */
import { cut } from "../client/job-error.js";
import type { Runtime } from "../client/runtime.js";
import type { JobContext, LogEntry, Progress } from "../core/job.js";
import { type Json, jsonText } from "../core/json.js";
import type { ActiveJob, AnyComplete, AnyPrepare, KeyHold } from "./active-job.js";
import { type BlockerOutcome, loadBlockers } from "./blockers.js";
import { type CompleteParts, complete } from "./complete.js";
import type { Hold } from "./hold.js";
import type { Leases } from "./leases.js";
import type { MiddlewareStack } from "./middleware.js";
import { ignorable, type Notes } from "./notes.js";
import { latePrepare, Phases } from "./phases.js";

/** The longest log line, progress message or step that is kept; what is longer is cut. */
const lineLengthMax = 8_192;

/** The longest topic of an emitted event. */
const topicLengthMax = 128;

const levels: readonly string[] = ["info", "warn", "error"] satisfies LogEntry["level"][];

/** What a running job works with. */
export interface RunningJobParts extends CompleteParts {
  readonly leases: Leases;
  /** The middleware of the whole service. */
  readonly middleware: MiddlewareStack;
}

export class RunningJob implements ActiveJob<unknown> {
  readonly #hold: Hold;
  readonly #parts: RunningJobParts;
  readonly payload: unknown;
  readonly blockers: { readonly [name: string]: BlockerOutcome };
  #phases: Phases | undefined;

  constructor(
    hold: Hold,
    payload: unknown,
    blockers: { readonly [name: string]: BlockerOutcome },
    parts: RunningJobParts,
  ) {
    this.#hold = hold;
    this.#parts = parts;
    this.payload = payload;
    this.blockers = blockers;
  }

  get #runtime(): Runtime {
    return this.#parts.client.runtime;
  }

  get #notes(): Notes {
    return this.#parts.notes;
  }

  get id(): string {
    return this.#hold.job.id;
  }

  get type(): string {
    return this.#hold.job.type;
  }

  get queue(): string {
    return this.#hold.job.queue;
  }

  get createdAt(): number {
    return this.#hold.job.createdAt;
  }

  get context(): JobContext {
    return this.#hold.job.context;
  }

  get tries(): number {
    return this.#hold.job.tries;
  }

  get maxTries(): number {
    return this.#hold.job.maxTries;
  }

  get run(): number {
    return this.#hold.job.run;
  }

  /** Tokens count the starts, those that cost no try included. */
  get isRedelivery(): boolean {
    return this.#hold.job.token > 1;
  }

  get signal(): AbortSignal {
    return this.#hold.signal;
  }

  get key(): KeyHold | undefined {
    const { job, leaseUntil, isLost } = this.#hold;
    if (job.key === undefined) return undefined;
    const isFresh = !isLost && this.#runtime.engine.now() < leaseUntil;
    return { key: job.key.key, leaseUntil, isFresh };
  }

  get tags(): readonly string[] {
    return this.#hold.job.tags;
  }

  get deadline(): number | undefined {
    return this.#hold.job.deadline;
  }

  get remainingMs(): number {
    const { timeoutAt, deadlineAt } = this.#hold;
    return Math.max(0, Math.min(timeoutAt, deadlineAt) - this.#runtime.clock.monotonic());
  }

  get progress(): (progress: Progress) => Promise<void> {
    return (progress) =>
      this.#checked(progressProblem(progress), this.#hold.lane.settings.progress, () =>
        this.#notes.add(this.#hold, (origin) => ({
          command: "progress",
          progress: plainProgress(progress),
          ...origin,
        })),
      );
  }

  get log(): (message: string, level?: LogEntry["level"]) => Promise<void> {
    return (message, level = "info") =>
      this.#checked(logProblem(message, level), this.#hold.lane.settings.logs, () =>
        this.#notes.log(this.#hold, {
          at: this.#runtime.engine.now(),
          level,
          message: cut(message, lineLengthMax),
        }),
      );
  }

  get emit(): (topic: string, data?: Json) => Promise<void> {
    return (topic, data) =>
      this.#checked(emitProblem(topic, data), true, () =>
        this.#notes.add(this.#hold, (origin) => {
          const emitted = { command: "emit", topic, ...origin } as const;
          return data === undefined
            ? emitted
            : { ...emitted, data: JSON.parse(JSON.stringify(data)) };
        }),
      );
  }

  get heartbeat(): () => Promise<void> {
    return () => {
      const renewed = this.#parts.leases.renew(this.#hold);
      const noted = this.#notes.add(this.#hold, (origin) => ({ command: "heartbeat", ...origin }));
      return ignorable(Promise.all([renewed, noted]).then(() => {}));
    };
  }

  get loadDependencies(): () => Promise<readonly BlockerOutcome[]> {
    return () => loadBlockers(this.#runtime, this.#hold.job);
  }

  get prepare(): AnyPrepare {
    if (this.#phases === undefined && this.#hold.isUnderWay) throw latePrepare();
    return this.#ownPhases().prepare;
  }

  get complete(): AnyComplete {
    return (callback) => {
      const phases = this.#ownPhases();
      phases.setUp(this.#hold.isUnderWay ? "staged" : "atomic");
      return complete(this.#hold, this.#parts, phases, callback);
    };
  }

  #ownPhases(): Phases {
    const { transactions, leases } = this.#parts;
    const hold = this.#hold;
    const renew = () => leases.renew(hold);
    this.#phases ??= new Phases(hold, this.#runtime.engine, transactions, renew);
    return this.#phases;
  }

  /** A mistake rejects, so that it is seen where the call is awaited and ends no process where it is not. */
  #checked(problem: string | null, isWanted: boolean, send: () => Promise<void>): Promise<void> {
    if (problem !== null) return ignorable(Promise.reject(new TypeError(problem)));
    return isWanted ? send() : Promise.resolve();
  }
}

function progressProblem(progress: Progress): string | null {
  if (typeof progress !== "object" || progress === null) {
    return "progress takes an object with step, message, current and total.";
  }
  for (const [name, value] of Object.entries(progress)) {
    const isText = name === "step" || name === "message";
    if (!isText && name !== "current" && name !== "total") {
      return `progress knows step, message, current and total, not "${name}".`;
    }
    if (value === undefined) continue;
    if (isText && typeof value !== "string") return `progress.${name} must be a string.`;
    if (!isText && !(Number.isFinite(value) && (value as number) >= 0)) {
      return `progress.${name} must be a number of 0 or more, not ${String(value)}.`;
    }
  }
  return null;
}

function plainProgress({ step, message, current, total }: Progress): Progress {
  return {
    ...(step === undefined ? null : { step: cut(step, lineLengthMax) }),
    ...(message === undefined ? null : { message: cut(message, lineLengthMax) }),
    ...(current === undefined ? null : { current }),
    ...(total === undefined ? null : { total }),
  };
}

function logProblem(message: string, level: string): string | null {
  if (typeof message !== "string") return "log takes a string; format other values first.";
  return levels.includes(level)
    ? null
    : `log knows the levels ${levels.join(", ")}, not "${level}".`;
}

function emitProblem(topic: string, data: unknown): string | null {
  if (typeof topic !== "string" || topic === "" || topic.length > topicLengthMax) {
    return `emit takes a topic of 1 to ${topicLengthMax} characters.`;
  }
  const json = jsonText(data);
  if (json.ok) return null;
  return `emit cannot store its data: ${json.problem.path || "it"} ${json.problem.message}.`;
}
