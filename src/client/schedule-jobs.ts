/**
 * The jobs that schedules make: of which type they are, and with which options.
 */
import type { Json } from "../core/json.js";
import { scheduleTag } from "../core/schedule.js";
import { isSealed } from "../core/secrets.js";
import type { Client } from "./client.js";
import type { InvalidOption } from "./errors.js";
import type { CreateTarget } from "./prepare.js";
import type { Runtime } from "./runtime.js";
import type { StoredSchedule } from "./stored-schedule.js";
import { unnamedTarget } from "./untyped.js";
import { type DecryptionFailed, lacksVault, openPart } from "./vault.js";

/** What the jobs of a schedule are given, or why that cannot be decrypted. */
export function schedulePayload(
  runtime: Runtime,
  { name, type, payload }: StoredSchedule,
): Json | DecryptionFailed {
  return openPart(runtime, { service: runtime.service, type, id: name }, "schedule", payload);
}

/** Whether only a process with keys can make the jobs of a schedule. */
export function needsKeys(
  { signing, encryptionDemand }: Runtime,
  schedule: StoredSchedule,
): boolean {
  if (schedule.signed || isSealed(schedule.payload)) return true;
  return encryptionDemand?.isMade === true || signing?.isRequired === true;
}

/** Whether this process lacks a key that the jobs of a schedule need. */
export function lacksKeys(runtime: Runtime, schedule: StoredSchedule): boolean {
  const { signing, vault } = runtime;
  if ((schedule.signed || signing?.isRequired) && !signing?.canSign) return true;
  if (isSealed(schedule.payload)) return !vault?.has(schedule.payload.key);
  return lacksVault(runtime);
}

/** What the jobs of a schedule are made of: as the contract of whoever fires says, or else as its maker said. */
export async function scheduleTarget(
  client: Client,
  { type, version, queue }: StoredSchedule,
): Promise<CreateTarget | InvalidOption> {
  const bound = client.boundJob(type, version);
  if (bound !== undefined) {
    const { service, definition } = bound;
    // The payload met the schema when the schedule was made, and meets it again before the handler.
    return { service, type, queue: bound.queue, schema: null, settings: definition.settings };
  }
  const lane = { type, queue, version };
  const { unnamedLanes, runtime } = client;
  const refused = unnamedLanes.has(lane) ? null : await unnamedLanes.record(lane);
  return refused ?? unnamedTarget(runtime.service, type, version, queue);
}

/** The options of a job that a schedule makes for an instant. */
export function firedOptions(
  { name, priority, deadlineMs, tags }: StoredSchedule,
  instant: number,
): {
  readonly runAt: number;
  readonly tags: readonly string[];
  readonly priority?: number;
  readonly deadline?: number;
} {
  return {
    runAt: instant,
    tags: [scheduleTag(name), ...tags],
    ...(priority === undefined ? null : { priority }),
    ...(deadlineMs === undefined ? null : { deadline: instant + deadlineMs }),
  };
}
