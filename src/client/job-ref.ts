/**
 * A reference to one job: what a caller holds to look at it, wait for it and move it on.
 */
import { Result } from "better-result";
import type { Command, CommandOf } from "../core/command.js";
import type { JobEvent } from "../core/event.js";
import { isEnded, type Job, type JobState, type LogEntry } from "../core/job.js";
import type { Json } from "../core/json.js";
import { delayMaxMs } from "../core/retry.js";
import { type Why, why } from "../core/why.js";
import { StoreBusy, type StoreError } from "../engine/errors.js";
import { type AsyncResult, attempt, refusal } from "./async-result.js";
import { leaveCancelRequest } from "./cancel-requests.js";
import type { Client } from "./client.js";
import { command } from "./commands.js";
import {
  type CompleteOptions,
  completeJob,
  completeJobSync,
  type SyncCompleteOptions,
} from "./completion.js";
import type { CompleteFailure } from "./completion-steps.js";
import { CommandRefused, type InvalidOption, type JobNotFound, jobNotFound } from "./errors.js";
import {
  optionProblem,
  optionsProblem,
  rangeProblem,
  stringProblem,
  timeMs,
  yesOrNoProblem,
} from "./option-checks.js";
import { actorOf } from "./runtime.js";
import { openedJob } from "./vault.js";
import { type WaitFailure, type WaitOptions, waitForJob } from "./wait.js";
import { whyFacts } from "./why-facts.js";

/** A job as it was when it was read, with its payload and result typed. */
export interface JobSnapshot<Payload = Json, Value = Json | undefined>
  extends Omit<Job, "payload" | "result"> {
  readonly payload: Payload;
  /** What its handler returned, once it has completed. */
  readonly result?: Value;
}

/** The longest reason of a command that is kept. */
const reasonLengthMax = 1_000;

/** What a cancel did: ended the job, asked its handler to stop, or met a job that had ended. */
export interface CancelOutcome {
  readonly outcome: "cancelled" | "requested" | "ended";
  readonly state: JobState;
}

/** The failures of a command. */
export type CommandFailure = CommandRefused | JobNotFound | InvalidOption | StoreError;

const cancelChecks = { force: yesOrNoProblem };
/** The options of a delete, each with its check. */
export const deleteChecks = { force: yesOrNoProblem, reason: stringProblem };
const retryChecks = {
  force: yesOrNoProblem,
  delayMs: (delayMs: unknown) => rangeProblem(delayMs, 0, delayMaxMs),
};

type ManualCommand = "cancel" | "retry" | "dismiss" | "delete";

/** A command without the origin that the ref adds. */
type Wish = { [Name in ManualCommand]: Omit<CommandOf<Name>, "eventId" | "actor"> }[ManualCommand];

/**
 * A reference to a job. Holding one costs nothing and reads nothing. `Given` is what its handler may complete it with.
 *
 * @example
 * const ref = await service.jobs.sendReceipt.create(payload).orThrow();
 * const receipt = await ref.wait({ timeoutMs: 30_000 });
 */
export class JobRef<Payload = Json, Value = Json | undefined, Given = unknown> {
  readonly id: string;
  /** Whether the job was there before the call that gave this ref. */
  readonly existing: boolean;
  readonly #client: Client;

  constructor(client: Client, id: string, existing = false) {
    this.#client = client;
    this.id = id;
    this.existing = existing;
  }

  /** Reads the job. */
  get(): AsyncResult<JobSnapshot<Payload, Value>, JobNotFound | StoreError> {
    return attempt(async () => Result.map(await this.#load(), ({ job }) => this.#snapshot(job)));
  }

  /**
   * Waits until the job has ended and gives its result. Without `timeoutMs` and `signal` it waits as long
   * as it takes, and keeps the process alive meanwhile.
   */
  wait(options: WaitOptions = {}): AsyncResult<Value, WaitFailure> {
    return waitForJob<Value>(this.#client, this.id, options);
  }

  /**
   * Completes the job without a worker, also while it is blocked, scheduled or running. The result is checked as a
   * handler's is, and `completedBy` is `null`. With `tx` it counts when the caller's transaction commits.
   * `chains.complete` also continues a job.
   *
   * @example
   * await approval.complete({ approved: true }, { tx }).orThrow();
   */
  complete(
    result: Given,
    options: CompleteOptions = {},
  ): AsyncResult<JobSnapshot<Payload, Value>, CompleteFailure> {
    const completed = completeJob(this.#client, this.id, result, options);
    return attempt(async () => Result.map(await completed, (job) => this.#snapshot(job)));
  }

  /** As `complete`, inside a synchronous transaction of better-sqlite3; the job is completed when it returns. */
  completeSync(
    result: Given,
    options: SyncCompleteOptions,
  ): Result<JobSnapshot<Payload, Value>, CompleteFailure> {
    const completed = completeJobSync(this.#client, this.id, result, options);
    return Result.map(completed, (job) => this.#snapshot(job));
  }

  /**
   * Stops the job: at once while it waits, through its handler's signal while it runs. `force` ends
   * a running one at once, too; its handler's outcome is then ignored. A job that has ended stays as it is.
   */
  cancel(
    reason?: string,
    options: { readonly force?: boolean } = {},
  ): AsyncResult<CancelOutcome, JobNotFound | InvalidOption | StoreError> {
    const problem = reasonProblem(reason) ?? optionsProblem("a cancel", options, cancelChecks);
    if (problem !== null) return refusal(problem);
    return attempt(async () => {
      const wish = {
        command: "cancel" as const,
        force: options.force ?? false,
        ...reasonOf(reason),
      };
      const outcome = await this.#give(wish);
      if (outcome.ok) return Result.ok(cancelOutcome(outcome.job, "cancelled"));
      if (outcome.job === null) {
        const { rejection } = outcome;
        const locked = rejection.reason === "contended" ? rejection.locked : undefined;
        const left = locked && !wish.force && (await this.#leaveCancel(locked, wish.reason));
        if (left) return Result.ok({ outcome: "requested", state: locked.state });
        return Result.err(this.#unreached(rejection));
      }
      return Result.ok(cancelOutcome(outcome.job, "ended"));
    });
  }

  /** Runs an ended job again, as a new run of the same job. `force` allows it for a completed one. */
  retry(
    options: { readonly delayMs?: number; readonly force?: boolean } = {},
  ): AsyncResult<JobSnapshot<Payload, Value>, CommandFailure> {
    const problem = optionsProblem("a retry", options, retryChecks);
    if (problem !== null) return refusal(problem);
    const { delayMs = 0, force = false } = options;
    const runAt = timeMs(this.#client.runtime.engine.now() + delayMs);
    return this.#command({ command: "retry", runAt, force });
  }

  /** Runs a dead job again. */
  replay(): AsyncResult<JobSnapshot<Payload, Value>, CommandFailure> {
    const runAt = this.#client.runtime.engine.now();
    return this.#command({ command: "retry", runAt }, "use retry() for other ended jobs");
  }

  /** Marks a dead job as seen. */
  dismiss(reason?: string): AsyncResult<JobSnapshot<Payload, Value>, CommandFailure> {
    const problem = reasonProblem(reason);
    if (problem !== null) return refusal(problem);
    const wish = { command: "dismiss", ...reasonOf(reason) } as const;
    return this.#command(wish, "only dead jobs can be dismissed");
  }

  /** Removes an ended job and its log; `force` removes one that has not ended, too. Gives it as it last was. */
  delete(
    options: { readonly reason?: string; readonly force?: boolean } = {},
  ): AsyncResult<JobSnapshot<Payload, Value>, CommandFailure> {
    const problem = optionsProblem("a delete", options, deleteChecks);
    if (problem !== null) return refusal(problem);
    const { reason = "deleted by hand", force = false } = options;
    return this.#command({ command: "delete", force, reason: reason.slice(0, reasonLengthMax) });
  }

  /** The job's history: every event of its log, oldest first. */
  events(): AsyncResult<readonly JobEvent[], JobNotFound | StoreError> {
    return attempt(() => this.#history());
  }

  /** The lines that the job's handlers logged, oldest first. */
  logs(): AsyncResult<readonly LogEntry[], JobNotFound | StoreError> {
    return attempt(async () =>
      Result.map(await this.#history(), (events) =>
        events.flatMap((event) => (event.name === "logged" ? event.entries : [])),
      ),
    );
  }

  /** Why the job is not running now, as a typed reason and a sentence. */
  why(): AsyncResult<Why, JobNotFound | StoreError> {
    return attempt(async () => {
      const loaded = await this.#load();
      if (loaded.isErr()) return Result.err(loaded.error);
      const { job } = loaded.value;
      return Result.ok(why(job, await whyFacts(this.#client, job)));
    });
  }

  async #history(): Promise<Result<readonly JobEvent[], JobNotFound>> {
    return Result.map(await this.#load({ history: true }), ({ events = [] }) => events);
  }

  async #load(options?: { readonly history: boolean }) {
    const [loaded] = await this.#client.runtime.engine.load([this.id], options);
    return loaded ? Result.ok(loaded) : Result.err(jobNotFound(this.id));
  }

  #leaveCancel(locked: Job, reason: string | undefined): Promise<boolean> {
    return leaveCancelRequest(this.#client.runtime, locked, reason);
  }

  #give(wish: Wish) {
    const { runtime } = this.#client;
    const actor = actorOf(runtime);
    return command(
      runtime,
      this.id,
      () => ({ ...wish, eventId: runtime.ids.eventId(), actor }) as Command,
    );
  }

  /** Gives a command; one that is for dead jobs only says what to do with another. */
  #command(
    wish: Wish,
    remedyUnlessDead?: string,
  ): AsyncResult<JobSnapshot<Payload, Value>, CommandFailure> {
    return attempt<JobSnapshot<Payload, Value>, CommandFailure>(async () => {
      if (remedyUnlessDead !== undefined) {
        const loaded = await this.#load();
        if (loaded.isErr()) return Result.err(loaded.error);
        const { state } = loaded.value.job;
        const message = `Job ${this.id} is ${state}, not dead; ${remedyUnlessDead}.`;
        if (state !== "dead") return Result.err(this.#refused(wish, state, message));
      }
      const outcome = await this.#give(wish);
      if (outcome.ok) return Result.ok(this.#snapshot(outcome.job));
      if (outcome.job === null) return Result.err(this.#unreached(outcome.rejection));
      return Result.err(this.#refused(wish, outcome.job.state, outcome.rejection.message));
    });
  }

  #refused(wish: Wish, state: JobState, message: string): CommandRefused {
    return new CommandRefused({ id: this.id, command: wish.command, state, message });
  }

  #unreached(rejection: {
    readonly reason: string;
    readonly message: string;
  }): JobNotFound | StoreBusy {
    if (rejection.reason !== "contended") return jobNotFound(this.id);
    return new StoreBusy({ url: this.#client.runtime.engine.url, message: rejection.message });
  }

  /** The stored JSON under the types that the contract gives it, decrypted where this process has the key. */
  #snapshot(job: Job): JobSnapshot<Payload, Value> {
    const opened: JobSnapshot<unknown, unknown> = openedJob(this.#client.runtime, job);
    return opened as JobSnapshot<Payload, Value>;
  }
}

/** A reason in words, if there is one, cut to what a job keeps. */
function reasonOf(reason: string | undefined): { readonly reason?: string } {
  return reason === undefined ? {} : { reason: reason.slice(0, reasonLengthMax) };
}

/** A job that goes on was asked to stop; how it comes that one has ended, the caller knows. */
function cancelOutcome({ state }: Job, ended: "cancelled" | "ended"): CancelOutcome {
  return { outcome: isEnded(state) ? ended : "requested", state };
}

function reasonProblem(reason: unknown): InvalidOption | null {
  return reason === undefined ? null : optionProblem("reason", reason, stringProblem);
}
