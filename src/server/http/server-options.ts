/**
 * What a server is started with, and the checks that refuse what cannot be.
 */
import { auditRetentionProblem } from "../../client/audit.js";
import type { IdSource } from "../../client/ids.js";
import {
  isObject,
  membersProblem,
  type OptionChecks,
  optionsProblem,
  stringProblem,
  whole,
  yesOrNoProblem,
} from "../../client/option-checks.js";
import type { WebhookSettings } from "../../client/runtime.js";
import type { SigningOptions } from "../../client/signing.js";
import type { EncryptionKey } from "../../client/vault.js";
import { networksProblem } from "../../client/webhooks/addresses.js";
import { nameProblem } from "../../core/names.js";
import type { Clock } from "../../engine/clock.js";
import type { Engine } from "../../engine/engine.js";
import type { Logger } from "../../engine/logger.js";
import type { Caller } from "./caller.js";
import type { ListenOptions } from "./listener.js";

/** What the API works with. */
export interface BackendOptions {
  /** The store; `file:millrace.db` by default. */
  readonly url?: string;
  /** An engine that is open already, in place of a URL. Whoever opened it closes it. */
  readonly engine?: Engine;
  readonly clock?: Clock;
  readonly ids?: IdSource;
  readonly logger?: Logger;
  /** The name of this process among those that serve; made from host and process by default. */
  readonly instance?: string;
  /** Where webhooks may be sent to: public addresses only by default. */
  readonly webhooks?: WebhookSettings;
  /** How long the changes that are made here stay in the audit trail; 90 days by default. */
  readonly auditRetentionMs?: number;
  /** Allows a queue to be called DEFAULT. */
  readonly allowCreateDefault?: boolean;
  /** The keys whose signatures count. The server signs nothing itself; callers send signatures along. */
  readonly signing?: Omit<SigningOptions, "sign" | "expiresMs">;
  /**
   * The keys of services whose contract says that they are encrypted: the first seals, and all open what workers get.
   * Without them, nothing of such services can be created or claimed here.
   */
  readonly encryptionKeys?: readonly EncryptionKey[];
}

/** How a server is started. */
export interface ServerOptions extends BackendOptions, ListenOptions {
  /** How large a request's body may be; 512 KiB by default, 8 MiB for bulk requests. */
  readonly maxBodyBytes?: number;
  /** Requests per second of one token or address; 1,000 by default where tokens are needed, else no limit. */
  readonly rateLimit?: number;
  /** How many streams may be open at once; 200 by default. */
  readonly maxStreams?: number;
  /** Further values of the Host header that are served without a token. */
  readonly allowedHosts?: readonly string[];
  /** Whether the server tends the services that it knows; true by default. */
  readonly keeper?: boolean;
}

/** How the API is opened in the process that asks it. */
export interface AppOptions extends BackendOptions {
  /** Who asks. */
  readonly caller: Caller;
}

const timeoutMost = 24 * 60 * 60 * 1_000;
const bodyMost = 64 * 1024 * 1024;
const countMost = 1_000_000;

const backendChecks = {
  url: stringProblem,
  engine: membersProblem("provision", "append", "load"),
  clock: membersProblem("now", "monotonic", "after"),
  ids: membersProblem("jobId", "eventId", "randomHex"),
  logger: membersProblem("info", "warn", "error"),
  instance: (instance: unknown) => nameProblem("instance", instance),
  webhooks: (webhooks: unknown) =>
    optionsProblem("webhooks", webhooks, { allowAddresses: networksProblem })?.message ?? null,
  auditRetentionMs: auditRetentionProblem,
  allowCreateDefault: yesOrNoProblem,
  encryptionKeys: (keys: unknown) => (Array.isArray(keys) ? null : "It must be a list of keys."),
  signing: (signing: unknown) => (isObject(signing) ? null : "It must be an object with verify."),
};

const serverChecks: { readonly [Name in keyof ServerOptions]-?: OptionChecks[string] } = {
  ...backendChecks,
  bind: stringProblem,
  tlsCert: stringProblem,
  tlsKey: stringProblem,
  tlsClientCa: stringProblem,
  auth: (auth) => (auth === "none" || auth === "token" ? null : 'It must be "none" or "token".'),
  unsafeBind: yesOrNoProblem,
  readTimeoutMs: whole(1, timeoutMost),
  writeTimeoutMs: whole(1, timeoutMost),
  maxBodyBytes: whole(1, bodyMost),
  rateLimit: whole(0, countMost),
  maxStreams: whole(0, countMost),
  allowedHosts: (hosts) =>
    Array.isArray(hosts) && hosts.every((host) => typeof host === "string")
      ? null
      : "It must be a list of hosts.",
  keeper: yesOrNoProblem,
};

/** Throws `InvalidOption` for the first option of a server that cannot be. */
export function checkServerOptions(options: ServerOptions): void {
  const problem = optionsProblem("startServer", options, serverChecks);
  if (problem !== null) throw problem;
}

/** Throws `InvalidOption` for the first option of an app that cannot be. */
export function checkAppOptions(options: AppOptions): void {
  const caller = (value: unknown) => (isObject(value) ? null : "It must say who asks.");
  const problem = optionsProblem("openApp", options, { ...backendChecks, caller });
  if (problem !== null) throw problem;
}
