/**
 * The streams and the bucket of a deployment: made where they are missing, put right in place where that is safe,
 * and refused with the reason where it is not. A user who may not manage streams takes them as others have made them.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { Msg, NatsConnection } from "@nats-io/transport-node";
import { type StoreError, StoreTooNew, StoreUnavailable } from "../errors.js";
import type { Address } from "./address.js";
import { type ApiError, apiFault, thrownFault } from "./faults.js";
import { ServerVersion, takesBatches } from "./server-version.js";
import {
  compareStreams,
  deploymentNames,
  layoutKey,
  layoutVersion,
  type StreamConfig,
  wantedStreams,
} from "./streams.js";

/** Where the parts of a deployment lie, and what its server can do. */
export interface Topology {
  readonly prefix: string;
  readonly jobsStream: string;
  readonly recordsStream: string;
  readonly recordsBucket: string;
  readonly advisoriesStream: string;
  /** What the subjects of the JetStream API begin with. */
  readonly api: string;
  /** What the subjects begin with that records are published to; records are read under `$KV.<bucket>`. */
  readonly recordsSubject: string;
  /** Whether many events can be stored together or not at all. */
  readonly atomicBatches: boolean;
  /** How many servers hold a copy of the log. */
  readonly replicas: number;
  readonly serverVersion: string;
  /** Names this deployment and this making of its streams. */
  readonly identity: string;
}

/** What is told to those who may not ask the server themselves. */
interface Binding {
  readonly layout: number;
  readonly identity: string;
  /** Whether the log takes atomic batches, and its leader handles them well; the server in use has to, too. */
  readonly atomicBatches: boolean;
  readonly replicas: number;
}

interface StreamAnswer {
  readonly error?: ApiError;
  readonly config?: StreamConfig;
  readonly created?: string;
  readonly cluster?: { readonly name?: string };
}

const requestTimeoutMs = 5_000;

/** For how long, and how often, the server is asked again while something passes. */
const patienceMs = 15_000;
const roundPauseMs = 100;

/** How many copies are kept where there are servers enough and nobody says otherwise. */
const replicasSensible = 3;

const apiCode = {
  streamNotFound: 10059,
  streamNameInUse: 10058,
  subjectsOverlap: 10065,
  replicasNotSupported: 10074,
  noSuitablePeers: 10005,
  notAvailable: 10008,
  notLeader: 10009,
  streamOffline: 10118,
} as const;

/** What is over in a moment: somebody else is making the stream, or a cluster is choosing who leads. */
const passing: ReadonlySet<number> = new Set([
  apiCode.streamNameInUse,
  apiCode.notAvailable,
  apiCode.notLeader,
  apiCode.streamOffline,
]);

/** The key of the record that tells others what was found; names of services never begin like this. */
const bindingKey = "_deployment";

/** Makes a deployment usable. Idempotent, and safe when many processes start at once. */
export async function provision(connection: NatsConnection, address: Address): Promise<Topology> {
  return new Provisioning(connection, address).run();
}

class Provisioning {
  readonly #connection: NatsConnection;
  readonly #address: Address;
  readonly #apiPrefix: string;
  readonly #version: ServerVersion;

  constructor(connection: NatsConnection, address: Address) {
    this.#connection = connection;
    this.#address = address;
    this.#apiPrefix = address.domain === undefined ? "$JS.API" : `$JS.${address.domain}.API`;
    this.#version = new ServerVersion(connection.info?.version);
  }

  async run(): Promise<Topology> {
    const version = this.#version.toString();
    if (!this.#version.isUsable)
      throw this.#refusal(
        `The NATS server is ${version}, and Millrace needs ${ServerVersion.needed} or newer, because older ones cannot compare per job. Upgrade the server.`,
      );
    const { prefix } = this.#address;
    const binding = (await this.#reconcile()) ?? (await this.#bound());
    const names = deploymentNames(prefix);
    return {
      prefix,
      ...names,
      api: this.#apiPrefix,
      recordsSubject: this.#recordsSubject,
      atomicBatches: binding.atomicBatches && this.#version.handlesBatches,
      replicas: binding.replicas,
      serverVersion: version,
      identity: binding.identity,
    };
  }

  /** Makes and mends all streams. Gives `null` to a user who may not. */
  async #reconcile(): Promise<Binding | null> {
    const { prefix } = this.#address;
    const atomic = this.#version.knowsBatches;
    let replicas = this.#address.replicas ?? replicasSensible;
    let log: StreamAnswer | null = null;
    for (const wanted of wantedStreams(prefix, { replicas, atomic })) {
      const answer = await this.#ensure({ ...wanted, num_replicas: replicas });
      if (answer === null) return null;
      this.#checkFeatures(answer.config, wanted);
      // What follows the log has as many copies as the log.
      if (log === null) replicas = answer.config?.num_replicas ?? 1;
      log ??= answer;
    }
    const binding: Binding = {
      layout: layoutVersion,
      identity: `${prefix}/${log?.created ?? ""}`,
      atomicBatches: takesBatches(log?.config),
      replicas,
    };
    await this.#tell(binding);
    return binding;
  }

  /** One stream, as the server says that it is in the end; `null` to a user who may not ask. */
  async #ensure(wanted: StreamConfig): Promise<StreamAnswer | null> {
    const answer = await patiently(async () => {
      const found = await this.#api(`STREAM.INFO.${wanted.name}`);
      // A cluster may be without a leader, or a domain not say that it refuses. What others have found is enough to start.
      if (found?.error === noAnswer && (await this.#told()) !== null) return null;
      return found?.error?.err_code === apiCode.streamNotFound
        ? this.#create(wanted)
        : this.#mend(found, wanted);
    });
    if (answer?.error) throw this.#streamFault(answer.error, wanted);
    return answer;
  }

  async #create(wanted: StreamConfig): Promise<StreamAnswer | null> {
    const subject = `STREAM.CREATE.${wanted.name}`;
    const answer = await this.#api(subject, wanted);
    if (!answer?.error || !this.#isTooMany(answer.error)) return answer;
    return this.#api(subject, { ...wanted, num_replicas: 1 });
  }

  /** Changes what differs, if that can be done in place. */
  async #mend(found: StreamAnswer | null, wanted: StreamConfig): Promise<StreamAnswer | null> {
    const config = found?.config;
    if (!found || !config) return found;
    const layout = Number(config.metadata?.[layoutKey] ?? layoutVersion);
    if (layout > layoutVersion) throw this.#tooNew(layout);
    const { obstacles, changes } = compareStreams(config, wanted);
    if (obstacles.length > 0)
      throw this.#refusal(
        `The stream ${wanted.name} cannot be used: ${obstacles.join("; ")}. This cannot be changed in place. Choose another prefix in the URL (?prefix=…), or remove the stream if nobody needs it.`,
      );
    const mended = changes === null ? found : await this.#update({ ...config, ...changes });
    if (!mended?.config) return mended;
    return this.#scale(mended, mended.config, wanted.num_replicas);
  }

  /** Without a number in the URL, copies are added when there are servers for them, and never taken away. */
  async #scale(
    found: StreamAnswer,
    config: StreamConfig,
    replicas: number,
  ): Promise<StreamAnswer | null> {
    const isGiven = this.#address.replicas !== undefined;
    const isRight = isGiven ? config.num_replicas === replicas : config.num_replicas >= replicas;
    // Only a cluster names itself.
    if (isRight || (!isGiven && found.cluster?.name === undefined)) return found;
    const scaled = await this.#update({ ...config, num_replicas: replicas });
    return scaled?.error && this.#isTooMany(scaled.error) ? found : scaled;
  }

  #update(config: StreamConfig): Promise<StreamAnswer | null> {
    return this.#api(`STREAM.UPDATE.${config.name}`, config);
  }

  /** Whether a server refuses a number of copies that nobody has asked for. */
  #isTooMany({ err_code }: ApiError): boolean {
    if (this.#address.replicas !== undefined) return false;
    return err_code === apiCode.replicasNotSupported || err_code === apiCode.noSuitablePeers;
  }

  #streamFault(error: ApiError, { name, num_replicas }: StreamConfig): StoreError {
    const said = error.description ?? `error ${error.code}`;
    switch (error.err_code) {
      case apiCode.replicasNotSupported:
      case apiCode.noSuitablePeers:
        return this.#refusal(
          `replicas in the URL asks for ${num_replicas} copies, which the servers cannot keep (${said}). Start more servers with JetStream, or ask for fewer.`,
        );
      case apiCode.streamNameInUse:
        return this.#refusal(`The stream ${name} keeps changing (${said}). Start again.`);
      case apiCode.subjectsOverlap:
        return this.#refusal(
          `The stream ${name} cannot be made, because another stream has its subjects (${said}). Choose another prefix in the URL (?prefix=…), or remove that stream.`,
        );
      default:
        return apiFault(error, this.#address.where);
    }
  }

  /** Servers drop what they do not know, and a cluster may have older ones. */
  #checkFeatures(config: StreamConfig | undefined, wanted: StreamConfig): void {
    for (const feature of ["allow_direct", "allow_msg_ttl"] as const)
      if (wanted[feature] && !config?.[feature])
        throw this.#refusal(
          `The NATS server has left out ${feature} of the stream ${wanted.name}. All servers of a cluster must be ${ServerVersion.needed} or newer.`,
        );
  }

  /** Writes down what was found, for users who may only read it. */
  async #tell(binding: Binding): Promise<void> {
    const told = await this.#told();
    if (JSON.stringify(told) === JSON.stringify(binding)) return;
    const subject = `${this.#recordsSubject}.${bindingKey}`;
    // Several may do this at once; all of them write the same.
    const answer = await patiently(() => this.#ask(subject, binding, leaderless));
    if (answer?.error) throw apiFault(answer.error, this.#address.where);
  }

  /** What somebody else has provided. */
  async #bound(): Promise<Binding> {
    const told = await this.#told();
    if (told === null)
      throw this.#refusal(
        `The streams of ${this.#address.prefix} are not there, or may not be seen, and this user may not make them. Start once with a user who may manage streams, or grant this user what its service needs.`,
      );
    if (told.layout > layoutVersion) throw this.#tooNew(told.layout);
    return told;
  }

  async #told(): Promise<Binding | null> {
    const { recordsBucket, recordsStream } = deploymentNames(this.#address.prefix);
    const subject = `DIRECT.GET.${recordsStream}.$KV.${recordsBucket}.${bindingKey}`;
    try {
      const answer = await this.#request(`${this.#apiPrefix}.${subject}`);
      return answer.headers?.hasError ? null : answer.json<Binding>();
    } catch (error) {
      if (isNamed(error, ["PermissionViolationError", "NoResponders"])) return null;
      throw thrownFault(error, this.#address.where);
    }
  }

  /** Where records are published; a domain has a way of its own to them. */
  get #recordsSubject(): string {
    const kv = `$KV.${deploymentNames(this.#address.prefix).recordsBucket}`;
    return this.#address.domain === undefined ? kv : `${this.#apiPrefix}.${kv}`;
  }

  /** Asks the API about streams; gives `null` when this user may not. */
  #api(subject: string, body?: StreamConfig): Promise<StreamAnswer | null> {
    return this.#ask(`${this.#apiPrefix}.${subject}`, body, ["TimeoutError"]);
  }

  async #ask(
    subject: string,
    body: object | undefined,
    silences: readonly string[],
  ): Promise<StreamAnswer | null> {
    const request = body === undefined ? "" : JSON.stringify(body);
    try {
      return (await this.#request(subject, request)).json<StreamAnswer>();
    } catch (error) {
      if (isNamed(error, ["PermissionViolationError"])) return null;
      if (isNamed(error, silences)) return { error: noAnswer };
      throw thrownFault(error, this.#address.where);
    }
  }

  #request(subject: string, body = ""): Promise<Msg> {
    return this.#connection.request(subject, body, { timeout: requestTimeoutMs });
  }

  #refusal(message: string): StoreUnavailable {
    return new StoreUnavailable({ url: this.#address.where, message });
  }

  #tooNew(found: number): StoreTooNew {
    const message = `The streams of ${this.#address.prefix} were laid out by a newer version of Millrace (${found}, this one knows ${layoutVersion}). Upgrade Millrace.`;
    return new StoreTooNew({ url: this.#address.where, message, found, known: layoutVersion });
  }
}

/** Asks again as long as what stands in the way may pass. */
async function patiently(ask: () => Promise<StreamAnswer | null>): Promise<StreamAnswer | null> {
  const patience = AbortSignal.timeout(patienceMs);
  for (;;) {
    const answer = await ask();
    if (!passing.has(answer?.error?.err_code ?? 0) || patience.aborted) return answer;
    await delay(roundPauseMs);
  }
}

/** How a stream is silent while it has no leader. */
const leaderless = ["TimeoutError", "NoResponders"] as const;

/** A cluster without a leader may say nothing at all. */
const noAnswer: ApiError = {
  code: 503,
  err_code: apiCode.notAvailable,
  description: "no answer in time",
};

function isNamed(error: unknown, names: readonly string[]): boolean {
  if (!(error instanceof Error)) return false;
  // A request's own error stands around the one that says why.
  return names.includes(error.name) || isNamed(error.cause, names);
}
