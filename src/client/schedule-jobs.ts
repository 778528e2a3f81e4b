/**
 * The jobs that schedules make: of which type they are, and with which options.
 */
import { scheduleTag } from "../core/schedule.js";
import type { Client } from "./client.js";
import type { InvalidOption } from "./errors.js";
import type { CreateTarget } from "./prepare.js";
import type { StoredSchedule } from "./stored-schedule.js";
import { unnamedTarget } from "./untyped.js";

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
