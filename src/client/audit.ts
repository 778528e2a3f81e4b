/**
 * The audit trail: who changed what is not a job (tokens, queues, keys, schedules, webhooks, contracts). What happens to
 * jobs stands in their own logs. Each change leaves a record that lies with its service and runs out after a time.
 */
import type { Actor } from "../core/job.js";
import type { Json } from "../core/json.js";
import type { Engine } from "../engine/engine.js";
import { pageDefault } from "../engine/query.js";
import { recordId, type StoredRecord } from "../engine/record.js";
import { whole } from "./option-checks.js";
import { actorOf, type Runtime } from "./runtime.js";

const dayMs = 24 * 60 * 60 * 1_000;

/** How long an audit event is kept where nobody says otherwise, and at most. */
export const auditRetentionDefaultMs = 90 * dayMs;
const auditRetentionMaxMs = 36_500 * dayMs;

/** Says what is wrong with a time for which audit events are to be kept. */
export const auditRetentionProblem = whole(1, auditRetentionMaxMs);

/** What an audit event tells of. */
export const auditActions = [
  "token.create",
  "token.revoke",
  "queue.create",
  "queue.change",
  "queue.pause",
  "queue.resume",
  "queue.purge",
  "queue.delete",
  "key.release",
  "schedule.create",
  "schedule.update",
  "schedule.pause",
  "schedule.resume",
  "schedule.run",
  "schedule.delete",
  "webhook.create",
  "webhook.update",
  "webhook.enabled",
  "webhook.disabled",
  "webhook.rotateSecret",
  "webhook.redeliver",
  "webhook.test",
  "webhook.delete",
  "contract.accept",
] as const;

export type AuditAction = (typeof auditActions)[number];

/** A change of something that is not a job, and who made it. Times are milliseconds since 1970. */
export interface AuditEvent {
  /** Ids sort by time. */
  readonly id: string;
  readonly at: number;
  readonly actor: Actor;
  readonly action: AuditAction;
  /** The service that it belongs to; tokens belong to none. */
  readonly service?: string;
  /** What was changed: the name or id of a queue, schedule, webhook or token, the hash of a key, the service of a contract. */
  readonly target: string;
  /** The HTTP request that asked for it. */
  readonly requestId?: string;
  /** What more there is to say. Never holds secrets or payloads. */
  readonly details?: { readonly [name: string]: Json };
}

/** A change that is to be told of. */
export type AuditedChange = Pick<AuditEvent, "action" | "target" | "service" | "details">;

/** Who makes a change, and where it is told of. */
type Witness = Pick<
  Runtime,
  "engine" | "ids" | "logger" | "instance" | "service" | "actor" | "requestId" | "auditRetentionMs"
>;

/** Where events lie that belong to no service. */
const nobody = "_admin";

/**
 * Leaves an event of a change that was made. A store that does not take it any more is told to the log: the change stands,
 * and whoever asked for it must not believe otherwise.
 */
export async function leaveAuditEvent(witness: Witness, change: AuditedChange): Promise<void> {
  const { engine, ids, logger, requestId, auditRetentionMs = auditRetentionDefaultMs } = witness;
  const { service = witness.service, ...what } = change;
  const event: AuditEvent = {
    ...{ id: ids.eventId(), at: engine.now(), actor: actorOf(witness), ...what },
    ...(service === "" ? null : { service }),
    ...(requestId === undefined ? null : { requestId }),
  };
  logger.info({ ...event }, "A setting was changed.");
  const id = recordId.auditEvents(service || nobody) + placeOf(event);
  const body = event as unknown as Json;
  const expiresAt = event.at + auditRetentionMs;
  try {
    const [outcome] = await engine.swap([{ id, expect: 0, body, expiresAt }]);
    if (!outcome?.swapped) throw new Error(`The place ${id} was taken.`);
  } catch (error) {
    logger.error({ error, ...event }, "An audit event could not be stored.");
  }
}

/** Which audit events are wanted. */
export interface AuditAsk {
  /** Of this service; of all of them, and of none, without one. */
  readonly service?: string;
  readonly action?: AuditAction;
  readonly actor?: string;
  readonly target?: string;
  /** At or after this time. */
  readonly since?: number;
  /** Before this time. */
  readonly until?: number;
  readonly limit?: number;
  readonly cursor?: string;
}

/** Audit events, newest first. */
export interface AuditPage {
  readonly entries: readonly AuditEvent[];
  /** Where the list goes on. A page may hold fewer events than were asked for, or none, and go on all the same. */
  readonly nextCursor?: string;
}

/** The cursors of the trail. */
export const auditCursorPattern = /^\d{13}-[A-Za-z0-9_-]{1,64}$/;

/** How many events one question looks at, and how many at a time, when only some of them are wanted. */
const lookedAtMax = 5_000;
const chunkMax = 1_000;

/** Comes after every place. */
const end = "~";

/** Reads a page of the trail. */
export async function auditPage(engine: Engine, ask: AuditAsk): Promise<AuditPage> {
  const { service, since = 0, until, limit = pageDefault, cursor = end } = ask;
  const owners =
    service === undefined
      ? await engine.query("recordOwners", { prefix: recordId.auditEvents() })
      : [service];
  const isNarrowed = [ask.action, ask.actor, ask.target].some((wanted) => wanted !== undefined);
  const chunk = isNarrowed ? chunkMax : limit + 1;
  const entries: AuditEvent[] = [];
  let place = until === undefined || cursor < timeText(until) ? cursor : timeText(until);
  for (let lookedAt = 0; lookedAt < lookedAtMax; lookedAt += chunk) {
    const events = await eventsBefore(engine, owners, place, chunk);
    for (const event of events) {
      if (event.at < since) return { entries };
      if (matches(event, ask)) {
        if (entries.length === limit) return { entries, nextCursor: place };
        entries.push(event);
      }
      place = placeOf(event);
    }
    if (events.length < chunk) return { entries };
  }
  return { entries, nextCursor: place };
}

/** The newest events of some services before a place. Those of each are in order, so that its newest are enough. */
async function eventsBefore(
  engine: Engine,
  owners: readonly string[],
  place: string,
  limit: number,
): Promise<readonly AuditEvent[]> {
  const lists = await Promise.all(
    owners.map((owner) => {
      const prefix = recordId.auditEvents(owner);
      return engine.query("records", { prefix, before: prefix + place, limit });
    }),
  );
  const newestFirst = (one: AuditEvent, other: AuditEvent) =>
    placeOf(one) < placeOf(other) ? 1 : -1;
  return lists.flat().map(eventOf).sort(newestFirst).slice(0, limit);
}

/** Where an event lies among those of its service. */
function placeOf({ at, id }: AuditEvent): string {
  return `${timeText(at)}-${id}`;
}

/** A time as digits that sort. */
function timeText(at: number): string {
  return String(Math.min(Math.max(Math.floor(at), 0), timeMaxMs)).padStart(timeDigits, "0");
}

/** Times are stored with so many digits, which is enough until the year 2286. */
const timeDigits = 13;
const timeMaxMs = 10 ** timeDigits - 1;

function eventOf({ body }: StoredRecord): AuditEvent {
  return body as unknown as AuditEvent;
}

function matches(event: AuditEvent, { action, actor, target }: AuditAsk): boolean {
  return (
    (action === undefined || event.action === action) &&
    (actor === undefined || event.actor === actor) &&
    (target === undefined || event.target === target)
  );
}
