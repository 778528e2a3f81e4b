/**
 * Worker presence: the record that every running worker keeps, and how fresh it is.
 */
import type { Json } from "../core/json.js";
import type { Engine } from "../engine/engine.js";
import { recordId } from "../engine/record.js";

/** How long a worker counts as live after its last heartbeat. */
export const presenceFreshMs = 90_000;

/** The most workers that are listed at once. */
const workersMax = 1_000;

/** A type that a worker handles. */
export interface PresentType {
  readonly type: string;
  readonly version: number;
  readonly concurrency: number;
  readonly active: number;
}

/** What a worker says of itself. */
export interface WorkerPresence {
  readonly service: string;
  readonly instance: string;
  /** The version of Millrace that it runs. */
  readonly version: string;
  readonly startedAt: number;
  readonly heartbeatAt: number;
  readonly concurrency: number;
  readonly types: readonly PresentType[];
  readonly host: string;
  readonly pid: number;
}

/** A worker and whether it still lives. */
export interface WorkerRow extends WorkerPresence {
  readonly heartbeatAgeMs: number;
  readonly fresh: boolean;
}

/** The workers of a service, or of all. */
export async function workerRows(engine: Engine, service?: string): Promise<readonly WorkerRow[]> {
  const prefix = recordId.workers(service);
  const records = await engine.query("records", { prefix, limit: workersMax });
  const now = engine.now();
  return records.flatMap(({ body }) => (isPresence(body) ? [workerRow(body, now)] : []));
}

function workerRow(presence: WorkerPresence, now: number): WorkerRow {
  const heartbeatAgeMs = Math.max(now - presence.heartbeatAt, 0);
  return { ...presence, heartbeatAgeMs, fresh: heartbeatAgeMs < presenceFreshMs };
}

/** A record of a newer version may have another shape; it is left out and not misread. */
function isPresence(body: unknown): body is WorkerPresence & Json {
  if (typeof body !== "object" || body === null) return false;
  const { instance, heartbeatAt, types } = body as Partial<WorkerPresence>;
  return typeof instance === "string" && typeof heartbeatAt === "number" && Array.isArray(types);
}
