/**
 * A NATS service: endpoints that share their requests with other instances of the same name, and that anybody finds
 * by `$SRV.PING`, `$SRV.INFO` and `$SRV.STATS` (the protocol of NATS' ADR-32).
 */
import {
  headers,
  type Msg,
  type MsgHdrs,
  type NatsConnection,
  type Subscription,
} from "@nats-io/transport-node";
import type { Clock } from "../engine/clock.js";

/** The most requests that one instance works on at once; more are told to come again. */
const inFlightMax = 64;

/** There are too many requests at once. */
export class ServiceBusy extends Error {}

/** One thing that can be asked for. */
export interface Endpoint {
  readonly name: string;
  readonly subject: string;
  /** Gives the text of the answer. */
  answer(request: Msg): Promise<string>;
}

/** Why a request has no answer, for headers that every client of a NATS service reads. */
export interface Refusal {
  readonly code: number;
  readonly description: string;
  /** What the body says. */
  readonly body: string;
}

/** What a service is. */
export interface ServiceDescription {
  /** Letters, digits, `-` and `_`; the same for all instances. */
  readonly name: string;
  readonly version: string;
  readonly description: string;
  /** Names this instance. */
  readonly id: string;
  readonly endpoints: readonly Endpoint[];
  /** What a caller is told of whatever was thrown. */
  refusal(error: unknown): Refusal;
}

interface Stats {
  requests: number;
  errors: number;
  lastError: string;
  processingMs: number;
}

/** A service that listens from `start` until `stop`. */
export class NatsService {
  readonly #connection: NatsConnection;
  readonly #description: ServiceDescription;
  readonly #clock: Clock;
  readonly #stats = new Map<string, Stats>();
  readonly #inFlight = new Set<Promise<void>>();
  #subscriptions: readonly Subscription[] = [];
  #startedAt = 0;
  #stopped: Promise<void> | undefined;

  constructor(parts: {
    readonly connection: NatsConnection;
    readonly description: ServiceDescription;
    readonly clock: Clock;
  }) {
    this.#connection = parts.connection;
    this.#description = parts.description;
    this.#clock = parts.clock;
  }

  /** Listens; resolves when the server knows of it. */
  async start(): Promise<void> {
    if (this.#subscriptions.length > 0) return;
    this.#startedAt = this.#clock.now();
    const { name, id, endpoints } = this.#description;
    const said = { PING: () => this.#ping(), INFO: () => this.#info(), STATS: () => this.#said() };
    const asked = Object.entries(said).flatMap(([verb, say]) =>
      [`$SRV.${verb}`, `$SRV.${verb}.${name}`, `$SRV.${verb}.${name}.${id}`].map((subject) =>
        this.#connection.subscribe(subject, {
          callback: (error, request) => {
            if (!error) this.#respond(request, JSON.stringify(say()));
          },
        }),
      ),
    );
    const served = endpoints.map((endpoint) => {
      this.#stats.set(endpoint.name, { requests: 0, errors: 0, lastError: "", processingMs: 0 });
      return this.#connection.subscribe(endpoint.subject, {
        queue: name,
        callback: (error, request) => {
          if (!error) this.#take(endpoint, request);
        },
      });
    });
    this.#subscriptions = [...asked, ...served];
    await this.#connection.flush();
  }

  /** Takes no more requests and waits until those that it has are answered. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    if (!this.#connection.isClosed())
      await Promise.all(this.#subscriptions.map((subscription) => subscription.drain()));
    await Promise.all(this.#inFlight);
  }

  #take(endpoint: Endpoint, request: Msg): void {
    const work = this.#serve(endpoint, request).finally(() => this.#inFlight.delete(work));
    this.#inFlight.add(work);
  }

  async #serve(endpoint: Endpoint, request: Msg): Promise<void> {
    const stats = this.#stats.get(endpoint.name);
    const began = this.#clock.monotonic();
    let refused: Refusal | null = null;
    try {
      if (this.#inFlight.size >= inFlightMax)
        throw new ServiceBusy(`${this.#description.name} has ${inFlightMax} requests already.`);
      request.respond(await endpoint.answer(request));
    } catch (error) {
      refused = this.#description.refusal(error);
      this.#refuse(request, refused);
    }
    if (!stats) return;
    stats.requests += 1;
    stats.processingMs += this.#clock.monotonic() - began;
    if (refused === null) return;
    stats.errors += 1;
    stats.lastError = `${refused.code}:${refused.description}`;
  }

  #refuse(request: Msg, { code, description, body }: Refusal): void {
    const told = headers();
    // A header is one line of printable characters.
    told.set("Nats-Service-Error", description.replaceAll(/[^\x20-\x7e]/g, "?"));
    told.set("Nats-Service-Error-Code", String(code));
    this.#respond(request, body, told);
  }

  /**
   * Answers, unless the connection goes or has gone, or the server takes no message as large. Whoever asked hears nothing then,
   * and others go on to be served.
   */
  #respond(request: Msg, body: string, told?: MsgHdrs): void {
    try {
      request.respond(body, told && { headers: told });
    } catch {}
  }

  #identity() {
    const { name, id, version } = this.#description;
    return { name, id, version, metadata: {} };
  }

  #ping() {
    return { type: "io.nats.micro.v1.ping_response", ...this.#identity() };
  }

  #info() {
    const { name: queue_group, description, endpoints } = this.#description;
    return {
      type: "io.nats.micro.v1.info_response",
      ...this.#identity(),
      description,
      endpoints: endpoints.map(({ name, subject }) => ({
        name,
        subject,
        queue_group,
        metadata: {},
      })),
    };
  }

  #said() {
    const { name: queue_group, endpoints } = this.#description;
    return {
      type: "io.nats.micro.v1.stats_response",
      ...this.#identity(),
      started: new Date(this.#startedAt).toISOString(),
      endpoints: endpoints.map(({ name, subject }) => {
        const {
          requests = 0,
          errors = 0,
          lastError = "",
          processingMs = 0,
        } = this.#stats.get(name) ?? {};
        return {
          name,
          subject,
          queue_group,
          num_requests: requests,
          num_errors: errors,
          last_error: lastError,
          processing_time: nanos(processingMs),
          average_processing_time: requests === 0 ? 0 : nanos(processingMs / requests),
        };
      }),
    };
  }
}

function nanos(ms: number): number {
  return Math.round(ms * 1e6);
}
