/**
 * Sending what is said in one turn together. The library writes to its socket after every step of a promise, and each
 * such write costs the process and the server more than the message in it. It also turns every message into bytes by
 * itself, which costs more than writing all of a turn at once; where it takes commands as they go over the wire, it is
 * given these.
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
  /** Is told why the message could not be sent, and which one it was. Without it nobody asks. */
  readonly failed?: (error: Error, index: number) => void;
  readonly index?: number;
}

/** What the library sends commands with, though its types do not tell. */
interface Protocol {
  readonly noMorePublishing?: boolean;
  sendCommand?(command: Uint8Array): void;
}

/** How much text is turned into bytes at once. */
const chunkLengthMax = 256 * 1024;

/** What no subject holds: it would end there. */
const blank = /\s/;

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
    const protocol = this.#protocol();
    if (protocol === null) {
      for (const message of turn) this.#publish(message);
      return;
    }
    let text = "";
    for (const message of turn) {
      const command = this.#command(message);
      if (command !== null) text += command;
      if (command !== null && text.length < chunkLengthMax) continue;
      if (text !== "") protocol.sendCommand(Buffer.from(text));
      text = "";
      if (command === null) this.#publish(message);
    }
    if (text !== "") protocol.sendCommand(Buffer.from(text));
  }

  /** Where commands are sent, if the connection takes any now. */
  #protocol(): Required<Pick<Protocol, "sendCommand">> | null {
    const { protocol } = this.#connection as unknown as { readonly protocol?: Protocol };
    if (typeof protocol?.sendCommand !== "function") return null;
    if (this.#connection.isClosed() || protocol.noMorePublishing) return null;
    return protocol as Required<Pick<Protocol, "sendCommand">>;
  }

  /** A message as it goes over the wire; `null` where the library has to say what is wrong with it. */
  #command({ subject, body, reply, headers }: Sent): string | null {
    if (subject === "" || blank.test(subject)) return null;
    if (reply !== undefined && blank.test(reply)) return null;
    const length = Buffer.byteLength(body) + (headers?.length ?? 0);
    if (length > (this.#connection.info?.max_payload ?? 0)) return null;
    const to = reply === undefined ? subject : `${subject} ${reply}`;
    if (headers === undefined) return `PUB ${to} ${length}\r\n${body}\r\n`;
    return `HPUB ${to} ${headers.length} ${length}\r\n${headers}${body}\r\n`;
  }

  #publish({ subject, body, reply, headers, failed, index = 0 }: Sent): void {
    try {
      const bytes = Buffer.from(headers === undefined ? body : headers + body);
      const options: PublishOptions = reply === undefined ? {} : { reply };
      if (headers !== undefined) options.headers = encoded(bytes.subarray(0, headers.length));
      const data = headers === undefined ? bytes : bytes.subarray(headers.length);
      this.#connection.publish(subject, data, options);
    } catch (error) {
      failed?.(error as Error, index);
    }
  }
}

/** Headers that are bytes already. The library checks and copies each of its own, which costs more than sending them. */
function encoded(bytes: Uint8Array): MsgHdrs {
  return { encode: () => bytes } as unknown as MsgHdrs;
}
