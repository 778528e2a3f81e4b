/**
 * Sending what is said in one turn together. The library writes to its socket after every step of a promise, and each
 * such write costs the process and the server more than the message in it.
 */
import type { MsgHdrs, NatsConnection, PublishOptions } from "@nats-io/transport-node";

/** A message to be sent. */
export interface Sent {
  readonly subject: string;
  readonly body: string;
  /** Where an answer goes. */
  readonly reply?: string;
  /** The headers as they go over the wire, in printable characters. */
  readonly headers?: string | undefined;
  /** Is told why the message could not be sent. Without it nobody asks. */
  readonly failed?: (error: Error) => void;
}

/** Sends over a connection. */
export class Sender {
  readonly #connection: NatsConnection;
  #turn: Sent[] = [];

  constructor(connection: NatsConnection) {
    this.#connection = connection;
  }

  /** Sends a message at the end of this turn, in order. */
  send(message: Sent): void {
    // A tick comes when no promise has anything left to do.
    if (this.#turn.push(message) === 1) process.nextTick(() => this.flush());
  }

  /** Sends what waits for the end of the turn. */
  flush(): void {
    const turn = this.#turn;
    this.#turn = [];
    for (const message of turn) this.#publish(message);
  }

  #publish({ subject, body, reply, headers, failed }: Sent): void {
    try {
      const bytes = Buffer.from(headers === undefined ? body : headers + body);
      const options: PublishOptions = reply === undefined ? {} : { reply };
      if (headers !== undefined) options.headers = encoded(bytes.subarray(0, headers.length));
      const data = headers === undefined ? bytes : bytes.subarray(headers.length);
      this.#connection.publish(subject, data, options);
    } catch (error) {
      failed?.(error as Error);
    }
  }
}

/** Headers that are bytes already. The library checks and copies each of its own, which costs more than sending them. */
function encoded(bytes: Uint8Array): MsgHdrs {
  return { encode: () => bytes } as unknown as MsgHdrs;
}
