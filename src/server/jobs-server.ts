/**
 * The admin calls as a NATS service: `<prefix>.rpc.Jobs.<Call>`, in JSON. Several instances share the requests.
 */
import type { Msg, NatsConnection } from "@nats-io/transport-node";
import { type IdSource, systemIds } from "../client/ids.js";
import type { Actor } from "../core/job.js";
import { nameProblem } from "../core/names.js";
import { type Clock, systemClock } from "../engine/clock.js";
import type { Engine } from "../engine/engine.js";
import { type Logger, silentLogger } from "../engine/logger.js";
import { packageVersion } from "../service/package-version.js";
import { type JobsCallName, jobsCallNames } from "./calls.js";
import {
  type AdminError,
  errorWire,
  isAdminError,
  UnavailableError,
  ValidationError,
} from "./errors.js";
import { fittingText } from "./fitting.js";
import { carryOut, type JobsBackend } from "./handlers.js";
import { NatsService, type Refusal, ServiceBusy } from "./nats-service.js";
import type { HealthCheck } from "./wire.js";

/** The largest request. */
const requestBytesMax = 64 * 1024;

/** The codes by which clients of NATS services tell failures apart, those of HTTP. */
const codes: { readonly [Tag in AdminError["_tag"]]: number } = {
  NotFoundError: 404,
  ValidationError: 400,
  UnavailableError: 503,
};

/** The header in which a caller may say who gives a command. */
export const actorHeader = "Millrace-Actor";

/** What the calls are served with. */
export interface JobsServerOptions {
  /** Whoever opened it closes it. */
  readonly connection: NatsConnection;
  /** The engine whose jobs are looked at and changed; whoever opened it closes it. */
  readonly engine: Engine;
  /** What the subjects begin with; `millrace` by default. */
  readonly prefix?: string;
  /** The name of this process among those that serve. */
  readonly instance?: string;
  /** Looks at what else the admin runtime lives from, for `Jobs.Health`. */
  readonly checks?: () => Promise<readonly HealthCheck[]>;
  readonly clock?: Clock;
  readonly ids?: IdSource;
  readonly logger?: Logger;
}

/** The subject of a call. */
export function callSubject(prefix: string, name: JobsCallName): string {
  return `${prefix}.rpc.Jobs.${name}`;
}

/**
 * Serves the admin calls from `start` until `stop`.
 *
 * @example
 * const server = new JobsServer({ connection, engine });
 * await server.start();
 */
export class JobsServer {
  readonly #service: NatsService;
  readonly #backend: JobsBackend;
  readonly #connection: NatsConnection;

  constructor(options: JobsServerOptions) {
    const { connection, engine, prefix = "millrace", checks } = options;
    const { clock = systemClock, ids = systemIds, logger = silentLogger } = options;
    const instance = options.instance ?? ids.randomHex(8);
    const version = packageVersion();
    const startedAt = clock.now();
    this.#connection = connection;
    this.#backend = {
      ...{ engine, clock, ids, logger, instance, version, startedAt },
      ...(checks && { checks }),
    };
    this.#service = new NatsService({
      connection,
      clock,
      description: {
        name: `${prefix}-jobs`,
        version,
        description: `Looks at the jobs of ${prefix} and tends them.`,
        id: instance,
        endpoints: jobsCallNames.map((name) => ({
          name,
          subject: callSubject(prefix, name),
          answer: (request) => this.#answer(name, request),
        })),
        refusal: (error) => this.#refusal(error),
      },
    });
  }

  /** Listens; resolves when the server knows of it. */
  start(): Promise<void> {
    return this.#service.start();
  }

  /** Takes no more calls and waits until those that it has are answered. Idempotent. */
  stop(): Promise<void> {
    return this.#service.stop();
  }

  async #answer(name: JobsCallName, request: Msg): Promise<string> {
    const input = inputOf(name, request);
    const answer = await carryOut(this.#backend, name, input, this.#actorOf(request));
    return fittingText(answer, this.#connection.info?.max_payload ?? Number.POSITIVE_INFINITY);
  }

  #actorOf({ headers }: Msg): Actor {
    const given = headers?.get(actorHeader) ?? "";
    return `admin:${nameProblem("instance", given) === null ? given : this.#backend.instance}`;
  }

  #refusal(thrown: unknown): Refusal {
    const wire = errorWire(this.#told(thrown));
    return { code: codes[wire.type], description: wire.message, body: JSON.stringify(wire) };
  }

  /** What is not for callers is for the log. */
  #told(thrown: unknown): AdminError {
    if (isAdminError(thrown)) return thrown;
    if (thrown instanceof ServiceBusy)
      return new UnavailableError({ message: `${thrown.message} Try again.` });
    this.#backend.logger.error({ error: thrown }, "An admin call failed.");
    return new UnavailableError({
      message: "The call failed; the log of the admin runtime says why.",
    });
  }
}

function inputOf(name: JobsCallName, request: Msg): unknown {
  const field = "input";
  if (request.data.length > requestBytesMax)
    throw new ValidationError({
      field,
      message: `The input of Jobs.${name} has more than ${requestBytesMax} bytes.`,
    });
  try {
    return request.data.length === 0 ? {} : request.json();
  } catch {
    throw new ValidationError({ field, message: `The input of Jobs.${name} is not JSON.` });
  }
}
