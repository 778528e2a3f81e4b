/**
 * Sends one webhook: a signed request to a receiver that may be slow, broken or hostile. Nothing that a receiver does takes
 * longer, costs more memory or leads further than is said here.
 */
import { type ClientRequest, Agent as PlainAgent, request as plainRequest } from "node:http";
import { Agent as TlsAgent, request as tlsRequest } from "node:https";
import { Webhook as Signer } from "standardwebhooks";
import { type CloudEvent, cloudEventMediaType } from "../../core/cloud-event.js";
import type { Clock } from "../../engine/clock.js";
import { AddressRules, type Lookup } from "./addresses.js";

/** How long a receiver has to answer, from the first look at its name to the last byte. */
export const deliveryTimeoutMs = 15_000;

/** How much of an answer is read. Nobody looks at it; more of it only ends the connection. */
const answerBytesMax = 16 * 1024;

/** How many connections to one receiver are kept open, and for how long without use. */
const socketsMax = 32;
const idleMs = 10_000;

/** How much of an error is told. */
const errorLengthMax = 300;

/** What a receiver made of a webhook. Anything but a status of 200 to 299 is a failure. */
export interface DeliveryAnswer {
  readonly delivered: boolean;
  readonly status?: number;
  readonly error?: string;
  readonly durationMs: number;
}

/** What is sent, and where to. */
export interface Delivery {
  readonly url: string;
  /** Each signs the request, so that a receiver may go by any of them. */
  readonly secrets: readonly string[];
  readonly event: CloudEvent;
  /** Breaks it off. */
  readonly signal?: AbortSignal;
}

/** What a deliverer is made of. */
export interface DelivererOptions {
  readonly clock: Clock;
  /** Networks that may be reached although they are not public. */
  readonly allowAddresses?: readonly string[];
  /** Resolves names; the system's own by default. */
  readonly lookup?: Lookup;
}

type Outcome = Omit<DeliveryAnswer, "durationMs">;

/** A connection was closed that another request had left open. */
class ClosedMeanwhile extends Error {}

/** Sends webhooks. */
export class Deliverer {
  readonly #clock: Clock;
  readonly #rules: AddressRules;
  readonly #plain: PlainAgent;
  readonly #tls: TlsAgent;

  constructor({ clock, allowAddresses, lookup }: DelivererOptions) {
    this.#clock = clock;
    this.#rules = new AddressRules(allowAddresses, lookup);
    const options = { keepAlive: true, maxSockets: socketsMax, timeout: idleMs };
    this.#plain = new PlainAgent(options);
    this.#tls = new TlsAgent(options);
  }

  /** Sends one webhook and waits for what comes of it. Never throws for anything that a receiver does. */
  async deliver(delivery: Delivery): Promise<DeliveryAnswer> {
    const began = this.#clock.monotonic();
    const send = () => this.#send(delivery, true).catch((error) => this.#again(delivery, error));
    const outcome = await send().catch((error: unknown) => ({
      delivered: false,
      error: (error instanceof Error ? error.message : String(error)).slice(0, errorLengthMax),
    }));
    return { ...outcome, durationMs: Math.round(this.#clock.monotonic() - began) };
  }

  /** Closes connections that are kept open. */
  close(): void {
    this.#plain.destroy();
    this.#tls.destroy();
  }

  /** A connection that was kept open may be closed just when it is used: that says nothing of the receiver. */
  async #again(delivery: Delivery, error: unknown): Promise<Outcome> {
    if (error instanceof ClosedMeanwhile) return this.#send(delivery, false);
    throw error;
  }

  async #send({ url, secrets, event, signal }: Delivery, reuses: boolean): Promise<Outcome> {
    const place = new URL(url);
    const problem = this.#rules.hostProblem(place.hostname);
    if (problem !== null) throw problem;
    const body = JSON.stringify(event);
    const isTls = place.protocol === "https:";
    const sent = (isTls ? tlsRequest : plainRequest)(place, {
      method: "POST",
      agent: reuses && (isTls ? this.#tls : this.#plain),
      lookup: this.#rules.lookup,
      ...(signal === undefined ? null : { signal }),
      headers: {
        "content-type": cloudEventMediaType,
        "content-length": Buffer.byteLength(body),
        "user-agent": "millrace",
        ...signatureHeaders(secrets, event.id, this.#clock.now(), body),
      },
    });
    return this.#answer(sent, body);
  }

  /** A status alone is no answer: the receiver may still be at it, and may fail. */
  #answer(sent: ClientRequest, body: string): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      const callOff = this.#clock.after(deliveryTimeoutMs, () => {
        sent.destroy(new Error(`The receiver did not answer within ${deliveryTimeoutMs} ms.`));
      });
      sent.on("close", callOff);
      sent.on("error", (error: NodeJS.ErrnoException) => {
        const isClosed = sent.reusedSocket && error.code === "ECONNRESET";
        reject(isClosed ? new ClosedMeanwhile(error.message) : error);
      });
      sent.on("response", (response) => {
        const status = response.statusCode ?? 0;
        const done = () => resolve(answerOf(status));
        let bytes = 0;
        response.on("data", (chunk: Buffer) => {
          bytes += chunk.length;
          if (bytes <= answerBytesMax) return;
          done();
          sent.destroy();
        });
        response.on("end", done);
        response.on("error", reject);
        response.on("close", () => reject(new Error("The receiver broke off its answer.")));
      });
      sent.end(body);
    });
  }
}

function answerOf(status: number): Outcome {
  if (status >= 200 && status < 300) return { delivered: true, status };
  const isRedirect = status >= 300 && status < 400;
  const error = isRedirect
    ? `The receiver answered ${status}; redirects are not followed, so give its own address.`
    : `The receiver answered ${status}.`;
  return { delivered: false, status, error };
}

/** The headers of Standard Webhooks. */
function signatureHeaders(
  secrets: readonly string[],
  id: string,
  now: number,
  body: string,
): { readonly [name: string]: string } {
  const at = new Date(now);
  return {
    "webhook-id": id,
    "webhook-timestamp": String(Math.floor(now / 1_000)),
    "webhook-signature": secrets.map((secret) => new Signer(secret).sign(id, at, body)).join(" "),
  };
}
