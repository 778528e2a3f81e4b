/**
 * A schedule as its record holds it: what it creates and when, and up to where it has been decided about.
 */
import type { ScheduleDefinition } from "../contract/definition.js";
import { schedulesMax } from "../contract/schedules.js";
import { canonicalHash, type Json } from "../core/json.js";
import type { CatchUp, Overlap, ScheduleTiming } from "../core/schedule.js";
import { StoreBusy } from "../engine/errors.js";
import { recordId, type StoredRecord } from "../engine/record.js";
import { leaveAuditEvent } from "./audit.js";
import type { Runtime } from "./runtime.js";

/** The version of what is stored. */
const formatVersion = 1;

/** How often a schedule is written when others write it at the same time. */
export const scheduleWritesMax = 20;

/**
 * Why an instant made no job: nobody was there, the last job had not ended, the job's key was full, or the payload lacks
 * what its type asks for by now.
 */
export type SkipReason = "missed" | "overlap" | "key_full" | "refused";

/** What is stored of a schedule. */
export interface StoredSchedule {
  readonly format: number;
  readonly name: string;
  /** Who made it: a contract, which changes and removes it, or a caller. */
  readonly origin: "contract" | "caller";
  /** The hash of what the contract declares, so that a change of it is seen. */
  readonly declared?: string;
  readonly timing: ScheduleTiming;
  readonly type: string;
  readonly version: number;
  /** The queue that jobs go to, should whoever fires not know their type. */
  readonly queue: string;
  /** Encrypted where payloads of jobs are. */
  readonly payload: Json;
  /** Whether it was made where jobs have to be signed, so that only a process that signs may make its jobs. */
  readonly signed?: true;
  readonly priority?: number;
  readonly deadlineMs?: number;
  readonly enabled: boolean;
  readonly catchUp: CatchUp;
  readonly catchUpMax: number;
  readonly overlap: Overlap;
  readonly tags: readonly string[];
  readonly createdAt: number;
  readonly decidedUntil: number;
  readonly lastFired?: { readonly at: number; readonly jobId: string };
  readonly lastSkipped?: { readonly at: number; readonly reason: SkipReason };
}

/** A schedule with the record that it was read from. */
export interface PlacedSchedule {
  readonly schedule: StoredSchedule;
  readonly version: number;
}

/** What a definition becomes once its payload was checked and its type found. */
export interface CheckedSchedule {
  readonly name: string;
  readonly definition: ScheduleDefinition;
  readonly version: number;
  readonly queue: string;
  /** As it is stored. */
  readonly payload: Json;
  readonly signed: boolean;
  /** The hash of the definition, by which a change of it is seen. */
  readonly hash: string;
}

/** A new schedule. It knows nothing of instants before its time. */
export function newSchedule(
  { name, definition, version, queue, payload, signed, hash }: CheckedSchedule,
  origin: StoredSchedule["origin"],
  now: number,
): StoredSchedule {
  const { timing, type, enabled = true, ...rest } = definition;
  return {
    ...rest,
    format: formatVersion,
    name,
    origin,
    ...(origin === "contract" ? { declared: hash } : null),
    timing: timing.kind === "every" ? { ...timing, anchor: now } : timing,
    type,
    version,
    queue,
    payload,
    ...(signed ? ({ signed } as const) : null),
    enabled,
    createdAt: now,
    decidedUntil: now,
  };
}

/**
 * A declared schedule once its declaration has changed. What was fired stays known; an interval whose length stays goes on
 * from where it began; and a pause stays, unless the declaration itself says whether it is enabled.
 */
export function changedSchedule(
  before: StoredSchedule,
  checked: CheckedSchedule,
  now: number,
): StoredSchedule {
  const next = newSchedule(checked, "contract", now);
  const timing = sameTiming(before.timing, checked.definition.timing) ? before.timing : next.timing;
  const enabled = checked.definition.enabled ?? before.enabled;
  // What came while it was switched off is not missed.
  const goesOn = timing === before.timing && (before.enabled || !enabled);
  return {
    ...next,
    timing,
    enabled,
    createdAt: before.createdAt,
    decidedUntil: goesOn ? before.decidedUntil : now,
    ...(before.lastFired === undefined ? null : { lastFired: before.lastFired }),
    ...(before.lastSkipped === undefined ? null : { lastSkipped: before.lastSkipped }),
  };
}

/** Reads a schedule. A record of another version may have another shape; it is left alone and not misread. */
function readSchedule(record: StoredRecord): PlacedSchedule | null {
  const { body, version } = record;
  const isKnown = typeof body === "object" && body !== null && "format" in body;
  if (!isKnown || body.format !== formatVersion) return null;
  return { schedule: body as unknown as StoredSchedule, version };
}

/** One schedule of the runtime's service. */
export async function findSchedule(
  { engine, service }: Runtime,
  name: string,
): Promise<PlacedSchedule | null> {
  const [record] = await engine.records([recordId.schedule(service, name)]);
  return record ? readSchedule(record) : null;
}

/** All schedules of the runtime's service, in the order of their names. */
export async function listSchedules({
  engine,
  service,
}: Runtime): Promise<readonly PlacedSchedule[]> {
  const ask = { prefix: recordId.schedules(service), limit: schedulesMax };
  const records = await engine.query("records", ask);
  return records.flatMap((record) => readSchedule(record) ?? []);
}

/** Removes a schedule, whoever changes it meanwhile. */
export async function removeSchedule(runtime: Runtime, name: string): Promise<void> {
  const { engine, service } = runtime;
  const id = recordId.schedule(service, name);
  for (let writes = 0; writes < scheduleWritesMax; writes++) {
    const found = await findSchedule(runtime, name);
    if (found === null) return;
    const [outcome] = await engine.swap([{ id, expect: found.version, body: null }]);
    if (outcome?.swapped)
      return leaveAuditEvent(runtime, { action: "schedule.delete", target: name });
  }
  throw scheduleBusy(runtime, name);
}

/** The error of a schedule that others keep changing. */
export function scheduleBusy({ engine }: Runtime, name: string): StoreBusy {
  const message = `The schedule ${name} kept changing; try again.`;
  return new StoreBusy({ url: engine.url, message });
}

/** The write that puts a schedule in the place of the one that was read; version 0 means that there was none. */
export function scheduleWrite(service: string, schedule: StoredSchedule, expect: number) {
  const body = schedule as unknown as Json;
  return { id: recordId.schedule(service, schedule.name), expect, body };
}

function sameTiming(had: ScheduleTiming, has: ScheduleDefinition["timing"]): boolean {
  const { anchor: _anchor, ...rest } = had.kind === "every" ? had : { ...had, anchor: 0 };
  return canonicalHash(rest) === canonicalHash(has);
}
