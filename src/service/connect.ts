/**
 * `connect` opens the store that a URL names and composes client, worker and keeper into a service.
 */
import { hostname } from "node:os";
import { auditRetentionProblem } from "../client/audit.js";
import { createClient } from "../client/client.js";
import { demandsEncryption } from "../client/contract.js";
import { encryptionDemanded, openDemand } from "../client/encryption-demand.js";
import { InvalidOption } from "../client/errors.js";
import { createIds, type IdSource, systemIds } from "../client/ids.js";
import { openTelemetry } from "../client/open-telemetry/open.js";
import {
  isObject,
  kindOf,
  membersProblem,
  type OptionCheck,
  optionsProblem,
  stringProblem,
  whole,
} from "../client/option-checks.js";
import type { WebhookSettings } from "../client/runtime.js";
import { Signing, type SigningOptions } from "../client/signing.js";
import { openTelemetryTrace } from "../client/trace.js";
import type { TransactionSource } from "../client/transactions/source.js";
import { type EncryptionOptions, Vault } from "../client/vault.js";
import { networksProblem } from "../client/webhooks/addresses.js";
import type { JobEntries, ServiceContract } from "../contract/definition.js";
import { concurrencyLimit } from "../contract/validate.js";
import { nameProblem } from "../core/names.js";
import { delayMaxMs } from "../core/retry.js";
import { type Clock, systemClock } from "../engine/clock.js";
import type { Engine } from "../engine/engine.js";
import { transactionsNotSupported } from "../engine/errors.js";
import { type Logger, silentLogger } from "../engine/logger.js";
import { defaultUrl, openEngine, openOutbox } from "../engine/open.js";
import type { Outbox } from "../engine/outbox.js";
import type { KeeperTimings } from "../keeper/keeper.js";
import { packageVersion } from "./package-version.js";
import { Service } from "./service.js";

/** How a service is connected. */
export interface ConnectOptions<Tx = undefined> {
  /** The store: `file:jobs.db` (SQLite) or `memory:`; `file:millrace.db` by default. */
  readonly url?: string;
  /** An engine that is open already, in place of a URL. Whoever opened it closes it. */
  readonly engine?: Engine;
  /** The name of this process among those of the service; made from host and process by default. */
  readonly instance?: string;
  /** How many jobs of all types this process runs at once; no limit but the types' own by default. */
  readonly concurrency?: number;
  /** How long running handlers may take to stop; 10 s by default. */
  readonly graceMs?: number;
  /** Whether a started service tends the store (lapsed leases, deadlines, retention); true by default. */
  readonly keeper?: boolean | KeeperTimings;
  /**
   * Where `tx` in `prepare` and `complete` comes from, such as `pgTransactions(pool)` or
   * `betterSqliteTransactions(db)`: a client of the database that the jobs are in.
   */
  readonly transactions?: TransactionSource<Tx>;
  /**
   * The database of your own tables, `postgres://…` or `file:app.db`, for a store that cannot take part in your
   * transactions: `create(…, { tx })` puts the job down there, and started services publish it after the commit.
   */
  readonly outbox?: string;
  /**
   * The name of a migration of the contract that may be stored when the service starts, as `MigrationNotAccepted`
   * tells it. It stands for those changes and no others, so that it does no harm when it stays.
   */
  readonly acceptMigration?: string;
  /** Keys that jobs are signed with, and those whose jobs this process runs. */
  readonly signing?: SigningOptions;
  /** Keys that payloads and results are encrypted with, so that the store never sees them. */
  readonly encryption?: EncryptionOptions;
  /** Where webhooks may be sent to: public addresses only by default. */
  readonly webhooks?: WebhookSettings;
  /** How long the changes that this process makes stay in the audit trail; 90 days by default. */
  readonly auditRetentionMs?: number;
  /** Where the runtime says what it does; it is silent by default. */
  readonly logger?: Logger;
  readonly clock?: Clock;
  readonly ids?: IdSource;
}

/**
 * Connects a service to its store. A store that cannot be used throws a typed error (`StoreUnavailable`,
 * `StoreReadOnly`, `StoreCorrupt`, `StoreTooNew` and others), one that cannot take part in the caller's
 * transactions `TransactionsNotSupported` when it is asked to, and options that do not fit `InvalidOption`.
 *
 * @example
 * const service = await connect(shop, { url: "file:jobs.db" });
 */
export async function connect<Entries extends JobEntries, Tx = undefined>(
  contract: ServiceContract<Entries>,
  options: ConnectOptions<Tx> = {},
): Promise<Service<Entries, Tx>> {
  checkContract(contract);
  checkOptions(options);
  // Who has keys tells those who have none, such as servers, through the contract.
  const own = options.encryption ? { ...contract, encrypted: true } : contract;
  const { clock = systemClock, logger = silentLogger, url = defaultUrl, keeper = true } = options;
  const ids = options.ids ?? (clock === systemClock ? systemIds : createIds(() => clock.now()));
  const instance = options.instance ?? defaultInstance(ids);
  const signing = options.signing && new Signing(options.signing);
  const vault = options.encryption && new Vault(options.encryption);
  const engine = options.engine ?? (await openEngine(url, { clock, logger }));
  const ownsEngine = options.engine === undefined;
  let outbox: Outbox | undefined;
  try {
    const { transactions } = options;
    if (transactions !== undefined) checkSource(engine, transactions);
    if (engine.scope !== undefined && engine.scope !== contract.name)
      throw wrongScope(engine.url, engine.scope, contract.name);
    await engine.provision();
    if (options.outbox !== undefined) {
      if (engine.capabilities.transactions) throw outboxNotNeeded(engine.url);
      outbox = await openOutbox(options.outbox, { clock, logger });
      await outbox.provision();
    }
    const parts = { engine, clock, ids, logger };
    const ask = () => demandsEncryption(parts, own, options.acceptMigration);
    const encryptionDemand = own.encrypted
      ? encryptionDemanded
      : await openDemand({ clock, logger, ask });
    const names = { instance, service: contract.name };
    const telemetry = await openTelemetry({ clock, instance, version: packageVersion() });
    const { webhooks, auditRetentionMs } = options;
    const runtime = {
      ...parts,
      ...names,
      encryptionDemand,
      ...(telemetry && { telemetry }),
      ...(outbox && { outbox }),
      ...(signing && { signing }),
      ...(vault && { vault }),
      ...(webhooks && { webhooks }),
      ...(auditRetentionMs !== undefined && { auditRetentionMs }),
    };
    const client = createClient(runtime, own, await openTelemetryTrace());
    return new Service<Entries, Tx>(client, own, {
      ownsEngine,
      keeper: keeper === true ? {} : keeper,
      ...(options.concurrency === undefined ? null : { concurrency: options.concurrency }),
      ...(options.graceMs === undefined ? null : { graceMs: options.graceMs }),
      ...(transactions === undefined ? null : { transactions }),
      ...(options.acceptMigration === undefined
        ? null
        : { acceptMigration: options.acceptMigration }),
    });
  } catch (fault) {
    await outbox?.close();
    if (ownsEngine) await engine.close();
    throw fault;
  }
}

const connectChecks: { readonly [Name in keyof ConnectOptions]-?: OptionCheck } = {
  url: stringProblem,
  engine: membersProblem("provision", "append", "load"),
  instance: (instance) => nameProblem("instance", instance),
  concurrency: whole(1, concurrencyLimit),
  graceMs: (graceMs) =>
    typeof graceMs === "number" && graceMs >= 0 && Number.isFinite(graceMs)
      ? null
      : `${String(graceMs)} is not a number of milliseconds; give 0 or more.`,
  keeper: keeperProblem,
  transactions: sourceProblem,
  outbox: stringProblem,
  acceptMigration: stringProblem,
  signing: (value) => (isObject(value) ? null : "It must be an object with sign and verify."),
  encryption: (value) => (isObject(value) ? null : "It must be an object with keys."),
  webhooks: (webhooks) =>
    optionsProblem("webhooks", webhooks, { allowAddresses: networksProblem })?.message ?? null,
  auditRetentionMs: auditRetentionProblem,
  logger: membersProblem("info", "warn", "error"),
  clock: membersProblem("now", "monotonic", "after"),
  ids: membersProblem("jobId", "eventId", "randomHex"),
};

const timingChecks: { readonly [Name in keyof KeeperTimings]-?: OptionCheck } = {
  ttlMs: whole(1, delayMaxMs),
  renewMs: whole(1, delayMaxMs),
  tickMs: whole(1, delayMaxMs),
  resolveMs: whole(0, delayMaxMs),
  pruneMs: whole(1, delayMaxMs),
  tombstoneMs: whole(0, delayMaxMs),
};

function keeperProblem(keeper: unknown): string | null {
  if (typeof keeper === "boolean") return null;
  if (!isObject(keeper)) return "It must be true, false or timings.";
  return optionsProblem("keeper", keeper, timingChecks)?.message ?? null;
}

function checkOptions(options: ConnectOptions<unknown>): void {
  const problem = optionsProblem("connect", options, connectChecks);
  if (problem !== null) throw problem;
  if (options.url === undefined || options.engine === undefined) return;
  throw new InvalidOption({ field: "engine", message: "Give an engine or a url, not both." });
}

/** Throws `InvalidOption` for what is not a contract. */
export function checkContract(contract: unknown): void {
  if (isObject(contract) && contract.kind === "service") return;
  const message = `The contract must come from defineService; it is ${kindOf(contract)}.`;
  throw new InvalidOption({ field: "contract", message });
}

function sourceProblem(source: unknown): string | null {
  if (isObject(source) && typeof source.run === "function")
    if (source.kind === "async" || source.kind === "sync") return null;
  return 'It must be a source of transactions, such as pgTransactions(pool), or { kind: "async", run }.';
}

/** Throws where the store cannot take part in what a source hands out, whatever database that is of. */
function checkSource(
  { capabilities, url }: Engine,
  { kind }: Pick<TransactionSource<unknown>, "kind">,
): void {
  if (!capabilities.transactions) throw transactionsNotSupported(url);
  if (kind !== "sync" || capabilities.synchronousTransactions) return;
  const message = `transactions: The store ${url} cannot take part in transactions of a client that answers at once, as those of betterSqliteTransactions(db). Give the source of a client of that database, such as pgTransactions(pool).`;
  throw new InvalidOption({ field: "transactions", message });
}

function outboxNotNeeded(url: string): InvalidOption {
  const message = `The store ${url} takes part in your transactions itself; leave outbox out.`;
  return new InvalidOption({ field: "outbox", message });
}

function wrongScope(url: string, scope: string, service: string): InvalidOption {
  const message = `The store ${url} was opened for the service "${scope}" (?service=${scope}), and this is the contract of "${service}", whose jobs could not be seen there. Name the same service in both, or leave ?service= out.`;
  return new InvalidOption({ field: "url", message });
}

/** How much of the host's name goes into an instance's name, which has 64 characters at most. */
const hostLengthMax = 40;

/** A name that no other process has, and that still tells where it runs. */
function defaultInstance(ids: IdSource): string {
  const host = hostname().split(".")[0] ?? "";
  const name = host.replaceAll(/[^A-Za-z0-9-]/g, "-").slice(0, hostLengthMax) || "host";
  return `${name}-${process.pid}-${ids.randomHex(3)}`;
}
