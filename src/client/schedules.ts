/**
 * The schedules of a service: made, looked at, paused, fired by hand and removed. The keeper that leads the service
 * fires them.
 */
import { Result } from "better-result";
import { cronReader } from "../contract/cron.js";
import type { ScheduleDefinition, ServiceContract } from "../contract/definition.js";
import { InvalidDefinition } from "../contract/errors.js";
import { resolveSchedule, type ScheduleInput, schedulesMax } from "../contract/schedules.js";
import type { Json } from "../core/json.js";
import { nameProblem } from "../core/names.js";
import { type CatchUp, nextInstant, type Overlap } from "../core/schedule.js";
import type { StoreError } from "../engine/errors.js";
import { pageMax } from "../engine/query.js";
import { type AsyncResult, attempt, refusal } from "./async-result.js";
import { type AuditAction, type AuditEvent, leaveAuditEvent } from "./audit.js";
import type { Client } from "./client.js";
import { checkSchedule } from "./declared-schedules.js";
import {
  type EncryptionRequired,
  InvalidOption,
  type InvalidPayload,
  ScheduleDeclared,
  ScheduleExists,
  ScheduleNotFound,
  SignatureRequired,
} from "./errors.js";
import { type CreateFailure, JobCreator } from "./job-creator.js";
import type { JobRef } from "./job-ref.js";
import { optionsProblem, whole } from "./option-checks.js";
import { firedOptions, lacksKeys, schedulePayload, scheduleTarget } from "./schedule-jobs.js";
import {
  findSchedule,
  listSchedules,
  newSchedule,
  type PlacedSchedule,
  removeSchedule,
  type SkipReason,
  type StoredSchedule,
  scheduleBusy,
  scheduleWrite,
  scheduleWritesMax,
} from "./stored-schedule.js";
import { DecryptionFailed, encryptionRequired, lacksVault } from "./vault.js";

/** How many instants `next` gives unless it is asked for more. */
const nextDefault = 5;
const nextChecks = { count: whole(1, pageMax) };

/** A schedule as it was when it was read. Times are milliseconds since 1970. */
export interface Schedule {
  readonly service: string;
  readonly name: string;
  /** Whether a contract declares it, or a caller made it. */
  readonly origin: "contract" | "caller";
  readonly cron?: string;
  readonly timeZone?: string;
  readonly everyMs?: number;
  readonly at?: number;
  readonly type: string;
  readonly version: number;
  /** What its jobs are given; as it is stored where it is encrypted and this process has not the key. */
  readonly payload: Json;
  readonly priority?: number;
  readonly deadlineMs?: number;
  readonly enabled: boolean;
  readonly catchUp: CatchUp;
  readonly catchUpMax: number;
  readonly overlap: Overlap;
  readonly tags: readonly string[];
  readonly createdAt: number;
  /** When it fires next; `null` while it is paused and when no instant comes any more. */
  readonly nextAt: number | null;
  /** The last instant that was fired, and its job. */
  readonly lastFired?: { readonly at: number; readonly jobId: string };
  /** The last instant that made no job, and why. */
  readonly lastSkipped?: { readonly at: number; readonly reason: SkipReason };
}

/** What can be wrong with a schedule that is to be made. */
export type CreateScheduleFailure =
  | InvalidOption
  | InvalidPayload
  | EncryptionRequired
  | ScheduleExists
  | StoreError;

type Found<Value> = AsyncResult<Value, ScheduleNotFound | StoreError>;

/** The schedules of a service. */
export class Schedules {
  readonly #client: Client;
  readonly #contract: ServiceContract;

  constructor(client: Client, contract: ServiceContract) {
    this.#client = client;
    this.#contract = contract;
  }

  /**
   * Makes a schedule. Jobs of a type that the contract knows have their payload checked now.
   *
   * @example
   * await service.schedules.create("nightly", {
   *   type: "report", payload: { kind: "sales" }, cron: "30 2 * * *", timeZone: "Europe/Berlin",
   * });
   */
  create(name: string, spec: ScheduleInput): AsyncResult<Schedule, CreateScheduleFailure> {
    return attempt<Schedule, CreateScheduleFailure>(async () => {
      const { engine, service } = this.#client.runtime;
      const definition = definitionOf(name, spec);
      if (definition instanceof InvalidOption) return Result.err(definition);
      const checked = await checkSchedule(this.#client.runtime, this.#contract, name, definition);
      if (checked instanceof Error) return Result.err(checked);
      const schedule = newSchedule(checked, "caller", engine.now());
      if (nextInstant(schedule.timing, schedule.createdAt, cronReader) === null)
        return Result.err(inThePast());
      if ((await listSchedules(this.#client.runtime)).length >= schedulesMax)
        return Result.err(tooMany());
      const [outcome] = await engine.swap([scheduleWrite(service, schedule, 0)]);
      if (outcome?.swapped) {
        await this.#leave("schedule.create", name, { type: schedule.type });
        return Result.ok(this.#view(schedule));
      }
      const message = `A schedule ${name} exists already; choose another name, or delete it first.`;
      return Result.err(new ScheduleExists({ schedule: name, message }));
    });
  }

  /** All schedules, in the order of their names. */
  list(): AsyncResult<readonly Schedule[], StoreError> {
    return attempt(async () => {
      const placed = await listSchedules(this.#client.runtime);
      return Result.ok(placed.map(({ schedule }) => this.#view(schedule)));
    });
  }

  /** One schedule. */
  get(name: string): Found<Schedule> {
    return this.#with(name, async ({ schedule }) => Result.ok(this.#view(schedule)));
  }

  /** Stops firing. Instants that come meanwhile are not missed: they are never made up for. */
  pause(name: string): Found<Schedule> {
    return this.#change(name, "schedule.pause", (schedule) => ({ ...schedule, enabled: false }));
  }

  /** Fires again, from the next instant on. */
  resume(name: string): Found<Schedule> {
    const { engine } = this.#client.runtime;
    return this.#change(name, "schedule.resume", (schedule) =>
      schedule.enabled ? schedule : { ...schedule, enabled: true, decidedUntil: engine.now() },
    );
  }

  /** Creates a job as the schedule would, now. Its instants go on as if nothing had happened. */
  run(name: string): AsyncResult<JobRef, CreateFailure | DecryptionFailed | ScheduleNotFound> {
    return attempt<JobRef, CreateFailure | DecryptionFailed | ScheduleNotFound>(async () => {
      const found = await findSchedule(this.#client.runtime, name);
      if (found === null) return Result.err(notFound(name));
      const { schedule } = found;
      const { engine } = this.#client.runtime;
      const payload = schedulePayload(this.#client.runtime, schedule);
      await this.#client.runtime.encryptionDemand?.look();
      if (payload instanceof DecryptionFailed) return Result.err(payload);
      if (lacksVault(this.#client.runtime)) return Result.err(this.#mustEncrypt(schedule));
      if (lacksKeys(this.#client.runtime, schedule)) return Result.err(noKeys(name));
      const target = await scheduleTarget(this.#client, schedule);
      if (target instanceof Error) return Result.err(target);
      const creator = new JobCreator<Json, Json, Json | undefined>(this.#client, target);
      const created = await creator.create(payload, firedOptions(schedule, engine.now()));
      if (created.isOk()) await this.#leave("schedule.run", name, { jobId: created.value.id });
      return created;
    });
  }

  /** The next instants of a schedule, also of one that is paused; 5 by default, at most 100. */
  next(
    name: string,
    options: { readonly count?: number } = {},
  ): AsyncResult<readonly number[], InvalidOption | ScheduleNotFound | StoreError> {
    const problem = optionsProblem("a preview", options, nextChecks);
    if (problem !== null) return refusal(problem);
    const { count = nextDefault } = options;
    return this.#with(name, async ({ schedule }) => {
      const instants: number[] = [];
      let at: number | null = this.#nextAt(schedule);
      for (; at !== null && instants.length < count; ) {
        instants.push(at);
        at = nextInstant(schedule.timing, at, cronReader);
      }
      return Result.ok(instants);
    });
  }

  /** Removes a schedule; jobs that it has made stay. One that the contract declares is removed there. */
  delete(name: string): AsyncResult<void, ScheduleDeclared | ScheduleNotFound | StoreError> {
    return attempt<void, ScheduleDeclared | ScheduleNotFound>(async () => {
      const found = await findSchedule(this.#client.runtime, name);
      if (found === null) return Result.err(notFound(name));
      if (found.schedule.origin === "contract") return Result.err(declaredElsewhere(name));
      await removeSchedule(this.#client.runtime, name);
      return Result.ok();
    });
  }

  #leave(action: AuditAction, target: string, details?: AuditEvent["details"]): Promise<void> {
    return leaveAuditEvent(this.#client.runtime, { action, target, ...(details && { details }) });
  }

  #change(
    name: string,
    action: AuditAction,
    change: (schedule: StoredSchedule) => StoredSchedule,
  ): Found<Schedule> {
    return this.#with(name, async (first) => {
      const { engine, service } = this.#client.runtime;
      let found: PlacedSchedule | null = first;
      for (let writes = 0; writes < scheduleWritesMax && found !== null; writes++) {
        const schedule = change(found.schedule);
        const [outcome] = await engine.swap([scheduleWrite(service, schedule, found.version)]);
        if (outcome?.swapped) {
          await this.#leave(action, name);
          return Result.ok(this.#view(schedule));
        }
        found = await findSchedule(this.#client.runtime, name);
      }
      return found === null
        ? Result.err(notFound(name))
        : Result.err(scheduleBusy(this.#client.runtime, name));
    });
  }

  #with<Value, Failure extends Error = never>(
    name: string,
    use: (found: PlacedSchedule) => Promise<Result<Value, Failure | ScheduleNotFound | StoreError>>,
  ): AsyncResult<Value, Failure | ScheduleNotFound | StoreError> {
    return attempt<Value, Failure | ScheduleNotFound | StoreError>(async () => {
      const found = await findSchedule(this.#client.runtime, name);
      return found === null ? Result.err(notFound(name)) : use(found);
    });
  }

  #mustEncrypt({ name, type }: StoredSchedule): EncryptionRequired {
    return encryptionRequired({ service: this.#client.runtime.service, type, id: name });
  }

  #nextAt({ timing, decidedUntil }: StoredSchedule): number | null {
    const { engine } = this.#client.runtime;
    return nextInstant(timing, Math.max(decidedUntil, engine.now()), cronReader);
  }

  #view(schedule: StoredSchedule): Schedule {
    const { format: _format, declared: _declared, queue: _queue, ...rest } = schedule;
    const { timing, decidedUntil: _decidedUntil, signed: _signed, ...stored } = rest;
    const nextAt = schedule.enabled ? this.#nextAt(schedule) : null;
    const { runtime } = this.#client;
    const { service } = runtime;
    const opened = schedulePayload(runtime, schedule);
    const shown = { ...stored, payload: opened instanceof Error ? stored.payload : opened };
    switch (timing.kind) {
      case "cron":
        return { service, ...shown, cron: timing.expression, timeZone: timing.timeZone, nextAt };
      case "every":
        return { service, ...shown, everyMs: timing.everyMs, nextAt };
      case "at":
        return { service, ...shown, at: timing.at, nextAt };
    }
  }
}

/** Checks what a caller gives. The contract's own checks say what is wrong, and here it is an option. */
function definitionOf(name: string, spec: ScheduleInput): ScheduleDefinition | InvalidOption {
  const problem = nameProblem("schedule", name);
  if (problem !== null) return new InvalidOption({ field: "name", message: problem });
  try {
    return resolveSchedule(spec);
  } catch (error) {
    if (!InvalidDefinition.is(error)) throw error;
    return new InvalidOption({ field: error.field, message: error.message });
  }
}

function inThePast(): InvalidOption {
  return new InvalidOption({ field: "at", message: "at: This time has passed; give a later one." });
}

function tooMany(): InvalidOption {
  const message = `A service has at most ${schedulesMax} schedules; delete some that are over.`;
  return new InvalidOption({ field: "name", message });
}

function notFound(name: string): ScheduleNotFound {
  return new ScheduleNotFound({ schedule: name, message: `There is no schedule ${name}.` });
}

function noKeys(name: string): SignatureRequired {
  const message = `The schedule ${name} makes signed jobs, and this process has no private key: run it where there is one.`;
  return new SignatureRequired({ id: name, message });
}

function declaredElsewhere(name: string): ScheduleDeclared {
  const message = `The contract declares the schedule ${name}; remove it there, or pause it.`;
  return new ScheduleDeclared({ schedule: name, message });
}
