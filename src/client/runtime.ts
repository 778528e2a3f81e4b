/**
 * The bundle that client, worker and keeper are built from: one store, one clock, one name.
 */
import type { Clock } from "../engine/clock.js";
import type { Engine } from "../engine/engine.js";
import type { Logger } from "../engine/logger.js";
import type { Outbox } from "../engine/outbox.js";
import type { IdSource } from "./ids.js";
import type { Signing } from "./signing.js";
import type { Vault } from "./vault.js";

/** What every part of a running service shares. */
export interface Runtime {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly ids: IdSource;
  readonly logger: Logger;
  /** The name of this process among those of the service. */
  readonly instance: string;
  readonly service: string;
  /** Where creates in transactions of the caller's go, when the store cannot take part in them. */
  readonly outbox?: Outbox;
  /** The keys that jobs are signed and checked with. */
  readonly signing?: Signing;
  /** The keys that payloads and results are encrypted with. */
  readonly vault?: Vault;
}
