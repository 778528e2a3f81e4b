/**
 * Hearing messages where they lie. The library makes a dozen objects of each message, most of them views of its bytes,
 * and they cost a worker more than what it does with the message. Where it lets itself be preceded, what comes in is
 * looked at first (`framing.ts`), and otherwise the library's messages are told.
 */
import type { Msg, NatsConnection } from "@nats-io/transport-node";
import { Framing, type Heard, type Parser } from "./framing.js";
import { incomingOf } from "./incoming.js";

/** Somebody listens. */
export interface Listening {
  unsubscribe(): void;
}

/** What the library reads with, though its types do not tell. It makes a new parser whenever it connects. */
interface Protocol {
  parser?: Parser;
}

/** Hears over a connection. */
export class Receiver {
  readonly #connection: NatsConnection;
  readonly #listeners = new Map<number, Heard>();

  constructor(connection: NatsConnection) {
    this.#connection = connection;
    const { protocol } = connection as unknown as { readonly protocol?: Protocol };
    if (typeof protocol?.parser?.parse !== "function") return;
    let framing = new Framing(protocol.parser, this.#listeners);
    Object.defineProperty(protocol, "parser", {
      configurable: true,
      enumerable: true,
      get: () => framing,
      set: (parser: Parser) => {
        framing = new Framing(parser, this.#listeners);
      },
    });
  }

  /** Hears what comes under a subject, and why nothing comes any more if the server does not allow it. */
  subscribe(subject: string, heard: Heard, failed: (error: Error) => void): Listening {
    const callback = (error: Error | null, message: Msg) => {
      if (error) failed(error);
      else heard(incomingOf(message));
    };
    const subscription = this.#connection.subscribe(subject, { callback });
    const number = subscription.getID();
    this.#listeners.set(number, heard);
    const unsubscribe = () => {
      this.#listeners.delete(number);
      subscription.unsubscribe();
    };
    return { unsubscribe };
  }
}
