/**
 * The bundle that client, worker and keeper are built from: one store, one clock, one name.
 */
import type { Actor } from "../core/job.js";
import type { Clock } from "../engine/clock.js";
import type { Engine } from "../engine/engine.js";
import type { Logger } from "../engine/logger.js";
import type { Outbox } from "../engine/outbox.js";
import type { EncryptionDemand } from "./encryption-demand.js";
import type { IdSource } from "./ids.js";
import type { Signing } from "./signing.js";
import type { Telemetry } from "./telemetry.js";
import type { Vault } from "./vault.js";

/** What a process does about webhooks. */
export interface WebhookSettings {
  /** Networks that webhooks may be sent to although they are not public, such as `["10.1.0.0/16"]`; none by default. */
  readonly allowAddresses?: readonly string[];
}

/** What every part of a running service shares. */
export interface Runtime {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly ids: IdSource;
  readonly logger: Logger;
  /** The name of this process among those of the service. */
  readonly instance: string;
  readonly service: string;
  /** On whose behalf jobs are created and commanded; the process itself by default. */
  readonly actor?: Actor;
  /** The HTTP request on whose behalf settings are changed. */
  readonly requestId?: string;
  /** Who is told of creates, claims, tries and settlements; nobody by default. */
  readonly telemetry?: Telemetry;
  /** How long what this process changes stays in the audit trail; 90 days by default. */
  readonly auditRetentionMs?: number;
  /** Where webhooks may be sent to. */
  readonly webhooks?: WebhookSettings;
  /** Where creates in transactions of the caller's go, when the store cannot take part in them. */
  readonly outbox?: Outbox;
  /** The keys that jobs are signed and checked with. */
  readonly signing?: Signing;
  /** The keys that payloads and results are encrypted with. */
  readonly vault?: Vault;
  /** Whether payloads and results may be stored encrypted only, as the contract says; no by default. */
  readonly encryptionDemand?: EncryptionDemand;
}

/** Who creates and commands jobs through a runtime. */
export function actorOf({ actor, instance }: Pick<Runtime, "actor" | "instance">): Actor {
  return actor ?? `client:${instance}`;
}
