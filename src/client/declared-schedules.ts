/**
 * The schedules that a contract declares become records when a service starts: new ones are made, changed ones changed,
 * and those that it does not declare any more removed. What callers have made is left alone.
 */
import type { ScheduleDefinition, ServiceContract } from "../contract/definition.js";
import { InvalidDefinition } from "../contract/errors.js";
import { schedulesMax } from "../contract/schedules.js";
import { validate } from "../contract/schema.js";
import { leaveAuditEvent } from "./audit.js";
import { EncryptionRequired, InvalidOption, InvalidPayload } from "./errors.js";
import { invalidPayload, storedPayload } from "./prepare.js";
import type { Runtime } from "./runtime.js";
import { schedulePayload } from "./schedule-jobs.js";
import {
  type CheckedSchedule,
  changedSchedule,
  findSchedule,
  listSchedules,
  newSchedule,
  removeSchedule,
  type StoredSchedule,
  scheduleBusy,
  scheduleWrite,
  scheduleWritesMax,
} from "./stored-schedule.js";
import { targetOf } from "./untyped.js";
import { DecryptionFailed, payloadHash, sealPart, type Vault } from "./vault.js";

/** Stores what a contract declares. Throws `InvalidDefinition` for a schedule whose jobs could never be created. */
export async function takeUpSchedules(runtime: Runtime, contract: ServiceContract): Promise<void> {
  const declared = contract.schedules ?? {};
  const stored = (await listSchedules(runtime)).map(({ schedule }) => schedule);
  const isGone = ({ origin, name }: StoredSchedule) =>
    origin === "contract" && !Object.hasOwn(declared, name);
  const kept = stored.filter((schedule) => !isGone(schedule)).map(({ name }) => name);
  checkCount(Object.keys(declared), kept);
  for (const schedule of stored) if (isGone(schedule)) await removeSchedule(runtime, schedule.name);
  for (const [name, definition] of Object.entries(declared)) {
    const checked = await checkSchedule(runtime, contract, name, definition);
    if (checked instanceof EncryptionRequired) {
      const message = "Declared schedules are left to a process that holds the encryption keys.";
      runtime.logger.warn({ service: runtime.service }, message);
      return;
    }
    if (checked instanceof Error) {
      const field = `schedules.${name}`;
      throw new InvalidDefinition({ field, message: `${field}: ${checked.message}` });
    }
    await declare(runtime, checked);
  }
  await sealAll(runtime);
}

/**
 * Seals what is stored of schedules as this process would: in place of plain text from before there were keys, and of what
 * other keys of the ring have sealed, so that those can be dropped.
 */
async function sealAll(runtime: Runtime): Promise<void> {
  const { vault } = runtime;
  if (vault === undefined) return;
  for (const { schedule } of await listSchedules(runtime))
    if (!vault.isCurrent(schedule.payload)) await sealOne(runtime, vault, schedule.name);
}

async function sealOne(runtime: Runtime, vault: Vault, name: string): Promise<void> {
  const { engine, service, logger } = runtime;
  for (let writes = 0; writes < scheduleWritesMax; writes++) {
    const found = await findSchedule(runtime, name);
    if (found === null || vault.isCurrent(found.schedule.payload)) return;
    const payload = schedulePayload(runtime, found.schedule);
    if (payload instanceof DecryptionFailed) {
      logger.warn({ service, schedule: name, error: payload }, "A schedule cannot be decrypted.");
      return;
    }
    const key = { service, type: found.schedule.type, id: name };
    const sealed = { ...found.schedule, payload: vault.seal(payload, key, "schedule") };
    const [outcome] = await engine.swap([scheduleWrite(service, sealed, found.version)]);
    if (outcome?.swapped) return;
  }
  throw scheduleBusy(runtime, name);
}

/** Throws for declared schedules that, beside those that callers have made, would be too many. */
function checkCount(declared: readonly string[], kept: readonly string[]): void {
  const count = new Set([...declared, ...kept]).size;
  if (count <= schedulesMax) return;
  const message = `schedules are ${declared.length}, and callers have made others, which is ${count} together; a service has at most ${schedulesMax}, so delete some that callers made, or declare fewer.`;
  throw new InvalidDefinition({ field: "schedules", message });
}

/** Finds the type of a schedule, checks its payload, and encrypts it where those of jobs are. */
export async function checkSchedule(
  runtime: Runtime,
  contract: ServiceContract,
  name: string,
  definition: ScheduleDefinition,
): Promise<CheckedSchedule | InvalidOption | InvalidPayload | EncryptionRequired> {
  const { type, version, payload } = definition;
  const target = targetOf(contract, type, version, undefined);
  if (target instanceof InvalidOption) return target;
  const { service, schema, settings, queue } = target;
  if (settings.blockers !== undefined) return waits(type, Object.keys(settings.blockers));
  const result =
    schema === null ? ({ ok: true, value: payload } as const) : await validate(schema, payload);
  if (!result.ok) return invalidPayload(type, result.issues);
  const stored = storedPayload(type, result.value);
  if (stored instanceof InvalidPayload) return stored;
  await runtime.encryptionDemand?.look();
  const sealed = sealPart(runtime, { service, type, id: name }, "schedule", stored.json);
  if (sealed instanceof EncryptionRequired) return sealed;
  const hash = payloadHash(runtime, JSON.parse(JSON.stringify(definition)));
  const signed = runtime.signing?.isRequired ?? false;
  return { name, definition, version: settings.version, queue, payload: sealed, signed, hash };
}

/** Which jobs the next one waits for, no schedule can know. */
function waits(type: string, names: readonly string[]): InvalidOption {
  const message = `A job of ${type} waits for ${names.join(", ")}, which a schedule cannot name; let a job of another type create it.`;
  return new InvalidOption({ field: "type", message });
}

async function declare(runtime: Runtime, checked: CheckedSchedule): Promise<void> {
  const { engine, service, logger } = runtime;
  const { name, hash } = checked;
  for (let writes = 0; writes < scheduleWritesMax; writes++) {
    const found = await findSchedule(runtime, name);
    if (found?.schedule.origin === "caller") {
      const message = "A caller has made a schedule of this name; the declared one is left out.";
      logger.warn({ service, schedule: name }, message);
      return;
    }
    if (found?.schedule.declared === hash) return;
    const now = engine.now();
    const schedule =
      found === null
        ? newSchedule(checked, "contract", now)
        : changedSchedule(found.schedule, checked, now);
    const [outcome] = await engine.swap([scheduleWrite(service, schedule, found?.version ?? 0)]);
    if (outcome?.swapped) {
      const action = found === null ? "schedule.create" : "schedule.update";
      const details = { type: schedule.type, origin: schedule.origin };
      return leaveAuditEvent(runtime, { action, target: name, details });
    }
  }
  throw scheduleBusy(runtime, name);
}
