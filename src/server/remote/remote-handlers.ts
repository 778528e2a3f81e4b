/**
 * Remote handlers: a job is carried out by whoever answers a request over NATS, in any language. The worker claims it,
 * holds its lease and settles it, whatever engine it lies in; only the work is done elsewhere.
 */
import type { Msg, NatsConnection } from "@nats-io/transport-node";
import { type Clock, systemClock } from "../../engine/clock.js";
import { type Address, addressOf } from "../../engine/nats/address.js";
import { openConnection } from "../../engine/nats/connection.js";
import { loadNats } from "../../engine/nats/libraries.js";
import { InvalidHandler } from "../../service/errors.js";
import { JobAborted } from "../../worker/abort.js";
import { RemoteHandlerFailed } from "./errors.js";
import { type RemoteJob, remoteSubject, replyOutcome, taskBody, taskHeaders } from "./wire.js";

/** How long before the end of a try its remote handler is told to be done, at most: a reply needs time to come back. */
const replyMarginMaxMs = 2_000;

/** The share of a short try that is kept for the reply. */
const replyMarginShare = 1 / 4;

/** The longest wait that a timer can hold. */
const waitMaxMs = 2 ** 31 - 1;

/** How long a reply is waited for after its worker was told to stop; the worker's own grace time is 10 s by default. */
const shutdownWaitDefaultMs = 5_000;

const prefixDefault = "millrace";
const prefixPattern = /^[A-Za-z0-9_-]{1,64}(?:\.[A-Za-z0-9_-]{1,64}){0,7}$/;
const typePattern = /^[A-Za-z0-9_.:-]{0,64}$/;

/** How remote handlers are reached. */
export type RemoteHandlersOptions = RemoteSettings &
  (
    | {
        /** A connection of the caller's, who closes it. */
        readonly connection: NatsConnection;
        readonly url?: undefined;
      }
    | {
        /** The servers to connect to, as in `nats://user:password@host:4222`; it need not be the store's. */
        readonly url: string;
        readonly connection?: undefined;
      }
  );

/** What may be said of remote handlers besides where they are. */
interface RemoteSettings {
  /** What the subjects begin with; the prefix that the URL names, or `millrace`. */
  readonly prefix?: string;
  /** Whether tasks carry the results of the jobs that theirs has waited for; false by default, for it costs a read. */
  readonly loadDependencies?: boolean;
  /** How long a reply is still waited for when the worker stops, before the job is given back; 5 s by default. */
  readonly shutdownWaitMs?: number;
  readonly clock?: Clock;
}

/**
 * Makes handlers that ask remote ones over NATS.
 *
 * @example
 * const remote = remoteHandlers({ url: "nats://localhost:4222" });
 * service.route("email:", remote.handler());
 * await remote.start();
 * await service.start();
 */
export function remoteHandlers(options: RemoteHandlersOptions): RemoteHandlers {
  return new RemoteHandlers(options);
}

/** The way to remote handlers; made by `remoteHandlers`. Start it before the service, and stop it after. */
export class RemoteHandlers {
  readonly #options: RemoteHandlersOptions;
  readonly #address: Address | undefined;
  readonly #prefix: string;
  readonly #clock: Clock;
  readonly #shutdownWaitMs: number;
  #connection: NatsConnection | undefined;
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;

  constructor(options: RemoteHandlersOptions) {
    const { url, connection, prefix, clock = systemClock } = options;
    if ((url === undefined) === (connection === undefined))
      throw new TypeError("remoteHandlers takes either a connection or a url.");
    this.#options = options;
    this.#address = url === undefined ? undefined : addressOf(url);
    this.#prefix = prefix ?? this.#address?.prefix ?? prefixDefault;
    if (!prefixPattern.test(this.#prefix))
      throw new TypeError(
        `The prefix "${this.#prefix}" cannot be used; it is the beginning of a subject, such as millrace or CHORIA_AJ, without wildcards.`,
      );
    this.#clock = clock;
    this.#shutdownWaitMs = options.shutdownWaitMs ?? shutdownWaitDefaultMs;
  }

  /** Connects. Idempotent; after a failure it may be called again. Throws a `StoreError` when the server is out of reach. */
  start(): Promise<void> {
    if (this.#stopping) throw new Error("The remote handlers were stopped; make new ones.");
    this.#starting ??= this.#start();
    return this.#starting;
  }

  /** Closes the connection, unless it is the caller's. What still waits for a reply fails, and is tried again. Idempotent. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  /** Lets go of the connection at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /**
   * A handler for `handle` and `route`. It asks on the subject of the job's own type, or, if a type or the beginning of
   * types is given, on that one for every job; `""` is the catch-all. What the contract says of results is checked as
   * it is for any handler. Throws `InvalidHandler` for a type that cannot stand in a subject.
   *
   * @example
   * service.jobs.resize.handle(remote.handler());
   * service.route("", remote.handler(""));
   */
  handler<Value = unknown>(type?: string): (job: RemoteJob) => Promise<Value> {
    if (type !== undefined && !typePattern.test(type)) {
      const message = `"${type}" cannot stand in a subject; use letters, digits, _, -, : and ., at most 64 characters.`;
      throw new InvalidHandler({ type, message });
    }
    return (job) => this.#ask(job, remoteSubject(this.#prefix, type ?? job.type)) as Promise<Value>;
  }

  async #start(): Promise<void> {
    try {
      this.#connection = this.#options.connection ?? (await this.#open(this.#address));
    } catch (error) {
      this.#starting = undefined;
      throw error;
    }
  }

  async #open(address: Address | undefined): Promise<NatsConnection> {
    if (address === undefined) throw new Error("There is neither a connection nor a URL.");
    const { inbox } = address;
    const purpose = { name: "millrace remote handlers", ...(inbox !== undefined && { inbox }) };
    return openConnection(await loadNats(address.where), address, purpose);
  }

  async #stop(): Promise<void> {
    // A start that fails leaves nothing to close.
    await this.#starting?.catch(() => {});
    const connection = this.#connection;
    this.#connection = undefined;
    if (this.#options.connection === undefined) await connection?.close();
  }

  async #ask(job: RemoteJob, subject: string): Promise<unknown> {
    const connection = this.#connection;
    if (connection === undefined) {
      const message =
        "The remote handlers are not connected; call start() before the service's, and stop() after its.";
      throw new RemoteHandlerFailed({ code: "remote_unreachable", subject, message });
    }
    const dependencies = this.#options.loadDependencies ? await job.loadDependencies() : undefined;
    job.signal.throwIfAborted();
    const { remainingMs } = job;
    const marginMs = Math.min(replyMarginMaxMs, remainingMs * replyMarginShare);
    const now = this.#clock.now();
    const headers = taskHeaders(now + remainingMs - marginMs, job.context);
    const timeout = Math.min(Math.max(remainingMs - marginMs / 2, 1), waitMaxMs);
    const body = taskBody(job, now, dependencies);
    const reply = connection.request(subject, body, { timeout, headers }).catch((error) => {
      throw failureOf(error, subject, timeout);
    });
    return replyOutcome(await this.#untilAborted(reply, job.signal), subject);
  }

  /**
   * Waits for a reply until the job has to stop. The remote handler hears nothing of that and goes on, so that the worker's
   * own shutdown leaves it some time: a job that is given back at once would be done twice.
   */
  #untilAborted(reply: Promise<Msg>, signal: AbortSignal): Promise<Msg> {
    return new Promise((resolve, reject) => {
      let callOff = () => {};
      const onAbort = () => {
        const { reason } = signal;
        const isShutdown = JobAborted.is(reason) && reason.reason === "shutdown";
        if (isShutdown) callOff = this.#clock.after(this.#shutdownWaitMs, () => reject(reason));
        else reject(reason);
      };
      signal.addEventListener("abort", onAbort, { once: true });
      const tidy = () => {
        callOff();
        signal.removeEventListener("abort", onAbort);
      };
      reply.then(resolve, reject).finally(tidy);
    });
  }
}

/** Errors of the library are told by what they have, because the caller's connection may come from a copy of its own. */
function failureOf(error: unknown, subject: string, waitedMs: number): RemoteHandlerFailed {
  const told = error as { name?: string; message?: string; isNoResponders?: () => boolean };
  if (told.isNoResponders?.()) {
    const message = `No remote handler listens on ${subject}; start one, or check its subject and prefix.`;
    return new RemoteHandlerFailed({ code: "remote_no_responder", subject, message });
  }
  if (told.name === "TimeoutError") {
    const message = `No reply came on ${subject} within ${Math.round(waitedMs)} ms; one that comes later is ignored.`;
    return new RemoteHandlerFailed({ code: "remote_no_reply", subject, message });
  }
  const message = `The request on ${subject} failed: ${told.message ?? String(error)}.`;
  return new RemoteHandlerFailed({ code: "remote_unreachable", subject, message });
}
