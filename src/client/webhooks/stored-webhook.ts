/**
 * A webhook as its records hold it: one says what is sent where, which callers change, and one how far it has come, which
 * whoever delivers changes.
 */
import type { EventName, JobEvent } from "../../core/event.js";
import type { Json } from "../../core/json.js";
import type { Engine } from "../../engine/engine.js";
import { recordId, type StoredRecord } from "../../engine/record.js";
import type { Runtime } from "../runtime.js";

/** The version of what is stored. */
const formatVersion = 1;

/** How many webhooks a service may have. Each follows the feed on its own. */
export const webhooksMax = 20;

/** How many deliveries are remembered of a webhook. */
export const deliveriesMax = 50;

/** Why a webhook is not sent: a caller said so, it failed for too long, or its receiver said that it is gone. */
export type DisabledReason = "caller" | "failing" | "gone";

/** A secret that signs; one that was replaced does so until its time has run out. */
export interface StoredSecret {
  readonly secret: string;
  readonly expiresAt?: number;
}

/** What is stored of a webhook. */
export interface StoredWebhook {
  readonly format: number;
  readonly id: string;
  readonly url: string;
  readonly description?: string;
  /** The job types that it tells of; all of them without any. */
  readonly types?: readonly string[];
  readonly events: readonly EventName[];
  readonly includePayloads: boolean;
  /** Newest first. */
  readonly secrets: readonly StoredSecret[];
  readonly enabled: boolean;
  readonly disabled?: { readonly at: number; readonly reason: DisabledReason };
  readonly createdAt: number;
}

/** What became of the sending of an event. */
export interface WebhookDelivery {
  readonly eventId: string;
  readonly jobId: string;
  readonly event: EventName;
  /** When it was last tried. */
  readonly at: number;
  readonly tries: number;
  /** `failed` ones are tried again. */
  readonly outcome: "delivered" | "failed";
  readonly status?: number;
  readonly error?: string;
  readonly durationMs: number;
}

/** How far a webhook has come. */
export interface WebhookProgress {
  readonly format: number;
  /** Everything up to here was delivered, or need not be. */
  readonly cursor: string;
  /** No event from before this time is still to be read. */
  readonly readUntil: number;
  /** Since when the event fails that has failed for longest. */
  readonly failingSince?: number;
  /** Newest first. */
  readonly deliveries: readonly WebhookDelivery[];
}

/** A webhook with the version of its record. */
export interface PlacedWebhook {
  readonly webhook: StoredWebhook;
  readonly version: number;
}

/** The webhooks of the runtime's service, in the order of their ids. */
export async function listWebhooks({
  engine,
  service,
}: Pick<Runtime, "engine" | "service">): Promise<readonly PlacedWebhook[]> {
  const ask = { prefix: recordId.webhooks(service), limit: webhooksMax };
  const records = await engine.query("records", ask);
  return records.flatMap((record) => readWebhook(record) ?? []);
}

/** One webhook of the runtime's service. */
export async function findWebhook(
  { engine, service }: Runtime,
  id: string,
): Promise<PlacedWebhook | null> {
  const [record] = await engine.records([recordId.webhook(service, id)]);
  return record ? readWebhook(record) : null;
}

/** How far a webhook has come, with the version of the record. */
export async function findProgress(
  { engine, service }: Pick<Runtime, "engine" | "service">,
  id: string,
): Promise<{ readonly progress: WebhookProgress; readonly version: number } | null> {
  const [record] = await engine.records([recordId.cursor(service, id)]);
  if (!record || !isKnown(record)) return null;
  return { progress: record.body as unknown as WebhookProgress, version: record.version };
}

/**
 * The time up to which every enabled webhook has read, of whatever service, as far as their records tell: what a store
 * forgets, it forgets for all of them.
 */
export async function readByAll(engine: Engine): Promise<number> {
  const services = await engine.query("recordOwners", { prefix: recordId.webhooks() });
  let readUntil = Number.POSITIVE_INFINITY;
  for (const service of services) {
    for (const { webhook } of await listWebhooks({ engine, service })) {
      const found = webhook.enabled ? await findProgress({ engine, service }, webhook.id) : null;
      readUntil = Math.min(readUntil, found?.progress.readUntil ?? Number.POSITIVE_INFINITY);
    }
  }
  return readUntil;
}

/** The write that puts a webhook in the place of the one that was read; version 0 means that there was none. */
export function webhookWrite(service: string, webhook: StoredWebhook, expect: number) {
  const body = webhook as unknown as Json;
  return { id: recordId.webhook(service, webhook.id), expect, body };
}

/** The write that says how far a webhook has come. */
export function progressWrite(
  service: string,
  id: string,
  progress: Omit<WebhookProgress, "format">,
  expect: number,
) {
  const body = { format: formatVersion, ...progress } as unknown as Json;
  return { id: recordId.cursor(service, id), expect, body };
}

/** A webhook as it is first stored. */
export function newWebhook(webhook: Omit<StoredWebhook, "format">): StoredWebhook {
  return { format: formatVersion, ...webhook };
}

/** Whether a webhook tells of an event. */
export function wants({ types, events }: StoredWebhook, service: string, event: JobEvent): boolean {
  if (event.service !== service || !events.includes(event.name)) return false;
  return types === undefined || types.includes(event.type);
}

/** The secrets that sign now. */
export function signingSecrets({ secrets }: StoredWebhook, now: number): readonly string[] {
  return secrets
    .filter(({ expiresAt }) => expiresAt === undefined || expiresAt > now)
    .map(({ secret }) => secret);
}

/** A record of another version may have another shape; it is left alone and not misread. */
function readWebhook(record: StoredRecord): PlacedWebhook | null {
  if (!isKnown(record)) return null;
  return { webhook: record.body as unknown as StoredWebhook, version: record.version };
}

function isKnown({ body }: StoredRecord): boolean {
  return (
    typeof body === "object" && body !== null && "format" in body && body.format === formatVersion
  );
}
