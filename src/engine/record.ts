/**
 * Records: small versioned documents for everything that is not a job
 * (pauses, leadership, idempotency windows, presence, accepted contracts, cancels that wait, schedules, webhooks, audit events). Their ids are made here and nowhere else.
 */
import type { Json } from "../core/json.js";

/** A record as it is stored. One whose time has run out is not there any more. */
export interface StoredRecord {
  readonly id: string;
  /** Counts the writes, from 1. */
  readonly version: number;
  readonly body: Json;
  readonly expiresAt?: number;
}

/** Writes a record if it is still at the version that the writer saw; 0 means that there is none. */
export interface RecordWrite {
  readonly id: string;
  readonly expect: number;
  /** `null` removes it. */
  readonly body: Json | null;
  readonly expiresAt?: number;
}

/** Whether a write took effect; if not, the record that stands in its way. */
export type SwapOutcome =
  | { readonly swapped: true; readonly version: number }
  | { readonly swapped: false; readonly current: StoredRecord | null };

/** The settings of a queue that an operator changes at run time. */
export interface QueueSettings {
  readonly paused: boolean;
  /** How many of its jobs may be active at once over all processes, in place of what contracts say. */
  readonly maxActive?: number;
  /** When they were last changed, and by whom. */
  readonly changedAt?: number;
  readonly changedBy?: string;
}

/** The ids of all records. */
export const recordId = {
  queues: "queue/",
  queue: (service: string, queue: string) => `queue/${service}/${queue}`,
  keeper: (service: string) => `keeper/${service}`,
  announcer: "announcer/_admin",
  hooks: (service: string) => `hooks/${service}`,
  relay: (service: string, outbox: string) => `relay/${service}/${outbox}`,
  worker: (service: string, instance: string) => `worker/${service}/${instance}`,
  workers: (service?: string) => (service === undefined ? "worker/" : `worker/${service}/`),
  idempotency: (service: string, type: string, typeVersion: number, key: string) =>
    `idempotency/${service}/${type}@${typeVersion}/${key}`,
  cancel: (service: string, jobId: string) => `cancel/${service}/${jobId}`,
  cancels: (service: string) => `cancel/${service}/`,
  contract: (service: string) => `contract/${service}`,
  contracts: "contract/",
  lane: (service: string, queue: string, type: string, typeVersion: number) =>
    `lane/${service}/${queue}/${type}@${typeVersion}`,
  lanes: (service: string) => `lane/${service}/`,
  rate: (service: string, hash: string) => `rate/${service}/${hash}`,
  places: (service: string, hash: string) => `places/${service}/${hash}`,
  token: (id: string) => `token/${id}`,
  tokens: "token/",
  request: (caller: string, key: string) => `request/${caller}/${key}`,
  schedule: (service: string, name: string) => `schedule/${service}/${name}`,
  schedules: (service?: string) => (service === undefined ? "schedule/" : `schedule/${service}/`),
  webhook: (service: string, id: string) => `webhook/${service}/${id}`,
  webhooks: (service?: string) => (service === undefined ? "webhook/" : `webhook/${service}/`),
  /** What the ids of audit events begin with, which sort by their time within a service. */
  auditEvents: (service?: string) => (service === undefined ? "audit/" : `audit/${service}/`),
  /** Stands for all blockers of a store, where it is locked to look for circles of them. */
  circles: "circles/_store",
  /** How far deletions of a service are forgotten, on a store whose log is followed by views. */
  forgotten: (service: string) => `forgotten/${service}`,
  /** How far a reader of the feed has come. */
  cursor: (service: string, name: string) => `cursor/${service}/${name}`,
  cursors: "cursor/",
} as const;

/** The owner of a record, which comes second in its id. */
export function ownerOf(id: string): string {
  return id.split("/")[1] ?? "";
}
