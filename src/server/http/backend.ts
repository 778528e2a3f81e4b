/**
 * What the routes work with: the store, and what the server keeps in memory for all of them.
 */
import { type Client, createClient } from "../../client/client.js";
import { encryptionDemanded } from "../../client/encryption-demand.js";
import type { IdSource } from "../../client/ids.js";
import type { Runtime, WebhookSettings } from "../../client/runtime.js";
import type { Signing } from "../../client/signing.js";
import type { Telemetry } from "../../client/telemetry.js";
import type { ActiveTrace } from "../../client/trace.js";
import { UntypedJobs } from "../../client/untyped.js";
import type { Vault } from "../../client/vault.js";
import {
  type AcceptedContract,
  type BrokenContract,
  isBroken,
  readAccepted,
} from "../../contract/acceptance.js";
import { checkManifest } from "../../contract/check-manifest.js";
import type { ServiceContract } from "../../contract/definition.js";
import { InvalidDefinition } from "../../contract/errors.js";
import type { Clock } from "../../engine/clock.js";
import type { Engine } from "../../engine/engine.js";
import type { Logger } from "../../engine/logger.js";
import { recordId } from "../../engine/record.js";
import type { Caller } from "./caller.js";
import type { FeedHub } from "./feed-hub.js";
import type { Readiness } from "./readiness.js";
import { type Refused, refused } from "./refusal.js";
import type { Tokens } from "./tokens.js";
import type { WorkPresence } from "./work-presence.js";

/** How callers prove who they are. `none` asks nobody, which a server does on loopback only. */
export type AuthMode = "none" | "token" | "mtls";

/** What every route works with. */
export interface Backend {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly ids: IdSource;
  readonly logger: Logger;
  /** The name of this process. */
  readonly instance: string;
  /** The version of Millrace. */
  readonly version: string;
  readonly startedAt: number;
  readonly auth: AuthMode;
  /** Whether a queue may be called DEFAULT. */
  readonly allowsDefaultQueue: boolean;
  /** Where webhooks may be sent to. */
  readonly webhooks?: WebhookSettings;
  /** The keys whose signatures count. */
  readonly signing?: Signing;
  /** The keys that what workers get is decrypted with. What is stored is encrypted as the service's contract says. */
  readonly vault?: Vault;
  readonly services: Services;
  readonly tokens: Tokens;
  readonly hub: FeedHub;
  readonly presence: WorkPresence;
  readonly readiness: Readiness;
  /** Who is told of requests and creates. */
  readonly telemetry?: Telemetry;
  /** The metrics as text, where the server keeps any. */
  readonly metrics?: { text(): Promise<string>; readonly contentType: string };
}

/** How long a contract that was read counts as the accepted one. */
const contractFreshMs = 5_000;

/** How many services are kept in memory. */
const servicesMax = 1_000;

/** For how many callers of a service what creates its jobs is kept in memory. */
const creatorsMax = 100;

interface Known {
  readonly accepted: AcceptedContract | null;
  readonly client: Client;
  readonly contract: ServiceContract;
  readonly signature: string | null;
  /** Why nothing can be done by the accepted contract. */
  readonly unusable: Refused | null;
  /** What creates jobs for each caller, made once because a client on a caller's behalf costs more than a create. */
  readonly creators: Map<Caller["actor"], UntypedJobs>;
  readAt: number;
}

/** The services that requests name, each with its accepted contract and a client of its own. */
export class Services {
  readonly #parts: Omit<Runtime, "service" | "vault">;
  readonly #vault: Vault | undefined;
  readonly #activeTrace: ActiveTrace;
  readonly #known = new Map<string, Known>();
  readonly #operator: Client;
  /** Called when a request has named a service that none had named before. */
  onNamed: () => void = () => {};

  constructor({ vault, ...parts }: Omit<Runtime, "service">, activeTrace: ActiveTrace) {
    this.#parts = parts;
    this.#vault = vault;
    this.#activeTrace = activeTrace;
    const nothing: ServiceContract = { kind: "service", name: "", jobs: {} };
    this.#operator = createClient({ ...parts, service: "" }, nothing, activeTrace);
  }

  /** What the keeper of a service works with, and whoever stores its payloads and results. */
  async runtime(service: string): Promise<Runtime> {
    return (await this.#service(service)).client.runtime;
  }

  /**
   * A client that acts for a caller on jobs of any service, which it knows from their logs. It creates none, and decrypts
   * nothing, so that views are made with it.
   */
  operator(caller: Pick<Caller, "actor">, requestId?: string): Client {
    return actingFor(this.#operator, caller, requestId);
  }

  /** A client of a service that acts for a caller. */
  async client(
    service: string,
    caller: Pick<Caller, "actor">,
    requestId?: string,
  ): Promise<Client> {
    const { client } = await this.#service(service);
    return actingFor(client, caller, requestId);
  }

  /** What creates jobs of a service for a caller. */
  async creator(service: string, caller: Pick<Caller, "actor">): Promise<UntypedJobs> {
    const { client, contract, creators } = this.#fresh(service) ?? (await this.#service(service));
    const known = creators.get(caller.actor);
    if (known !== undefined) return known;
    const creator = new UntypedJobs(actingFor(client, caller), contract);
    forgetOldest(creators, creatorsMax);
    creators.set(caller.actor, creator);
    return creator;
  }

  /** The contract that creates of a service are checked by; without job types where none that can be used was accepted. */
  async contract(service: string): Promise<ServiceContract> {
    return (await this.#read(service)).contract;
  }

  /**
   * The accepted contract of a service as it is stored; `null` when there is none that this version can read. Refuses to
   * show one that is broken.
   */
  async accepted(service: string): Promise<AcceptedContract | null> {
    const { accepted, unusable } = await this.#read(service);
    if (accepted === null && unusable !== null) throw unusable;
    return accepted;
  }

  /** Forgets what it knows of a service, whose contract has changed. */
  forget(service: string): void {
    this.#known.delete(service);
  }

  #fresh(service: string): Known | undefined {
    const known = this.#known.get(service);
    if (known?.unusable) return undefined;
    const isFresh = known && this.#parts.clock.monotonic() - known.readAt < contractFreshMs;
    return isFresh ? known : undefined;
  }

  /** The workers of a service whose contract does not ask for encryption may have no keys. */
  #runtime({ name: service, encrypted = false }: ServiceContract): Runtime {
    if (!encrypted) return { ...this.#parts, service };
    const vault = this.#vault;
    const runtime = { ...this.#parts, service, encryptionDemand: encryptionDemanded };
    return { ...runtime, ...(vault && { vault }) };
  }

  /** A service that can be worked for. */
  async #service(service: string): Promise<Known> {
    const known = await this.#read(service);
    if (known.unusable !== null) throw known.unusable;
    return known;
  }

  async #read(service: string): Promise<Known> {
    const kept = this.#fresh(service);
    if (kept !== undefined) return kept;
    const now = this.#parts.clock.monotonic();
    const known = this.#known.get(service);
    const [record] = await this.#parts.engine.records([recordId.contract(service)]);
    const read = record ? readAccepted(record.body) : null;
    const stored = read === "unreadable" ? null : read;
    const accepted = stored === null || isBroken(stored) ? null : stored;
    const signature = signatureOf(stored);
    if (known !== undefined && known.signature === signature) {
      known.readAt = now;
      return known;
    }
    const { contract, unusable } = contractOf(service, stored);
    const client = createClient(this.#runtime(contract), contract, this.#activeTrace);
    const parts = { accepted, client, contract, signature, unusable };
    const fresh = { ...parts, creators: new Map(), readAt: now };
    forgetOldest(this.#known, servicesMax);
    this.#known.set(service, fresh);
    if (known === undefined) this.onNamed();
    return fresh;
  }
}

/** The contract to go by. One that was stored unchecked may be unusable, which stops its own service and nothing else. */
function contractOf(
  service: string,
  stored: AcceptedContract | BrokenContract | null,
): Pick<Known, "contract" | "unusable"> {
  const contract: ServiceContract = { kind: "service", name: service, jobs: {} };
  if (stored === null) return { contract, unusable: null };
  const unusable = (why: string) => {
    const message = `The accepted contract of ${service} cannot be used; accept another: ${why}`;
    return refused("unavailable", { reason: "contract_unusable", message });
  };
  if (isBroken(stored)) return { contract, unusable: unusable(stored.problem) };
  try {
    return { contract: checkManifest(stored.manifest), unusable: null };
  } catch (error) {
    const why = InvalidDefinition.is(error) ? error.message : "It is not one.";
    return { contract, unusable: unusable(why) };
  }
}

function signatureOf(stored: AcceptedContract | BrokenContract | null): string | null {
  if (stored === null) return null;
  return isBroken(stored) ? stored.signature : stored.manifest.signature;
}

/** Makes room for one more. */
function forgetOldest<Key>(entries: Map<Key, unknown>, entriesMax: number): void {
  const [oldest] = entries.keys();
  if (entries.size >= entriesMax && oldest !== undefined) entries.delete(oldest);
}

/** The same client on a caller's behalf; a request is named where it may change settings. */
function actingFor(client: Client, { actor }: Pick<Caller, "actor">, requestId?: string): Client {
  const runtime = { ...client.runtime, actor, ...(requestId !== undefined && { requestId }) };
  return { ...client, runtime };
}
