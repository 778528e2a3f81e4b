/**
 * Sending what is said in one turn together. The library writes to its socket after every step of a promise, and each
 * such write costs the process and the server more than the message in it. It also turns every message into bytes by
 * itself and keeps them apart until they are written; where it takes commands as they go over the wire, it is given
 * these, and each message is written among the bytes of its turn when it is sent.
 */
import type { MsgHdrs, NatsConnection, PublishOptions } from "@nats-io/transport-node";
import type { OutgoingMessage } from "./port.js";
import { digitsOf, Writing } from "./writing.js";

/** A message to be sent. Its headers are printable characters. */
export type Sent = Pick<OutgoingMessage, "subject" | "body"> & Partial<OutgoingMessage>;

/** What the library sends commands with, though its types do not tell. */
interface Protocol {
  readonly noMorePublishing?: boolean;
  sendCommand?(command: Uint8Array): void;
  flushPending?(): void;
}

type Commanding = Protocol & Required<Pick<Protocol, "sendCommand">>;

/** What no subject of a command holds: it would end there, or be longer than its text. */
const unusual = /[^\x21-\x7e]/;

const opening = Buffer.from("NATS/1.0\r\n");
const positionName = Buffer.from("Nats-Expected-Last-Subject-Sequence: ");
const filterName = Buffer.from("\r\nNats-Expected-Last-Subject-Sequence-Subject: ");
const lineEnd = "\r\n";

/** How many bytes are kept ready to be written to. */
const roomLength = 256 * 1024;

/** How many bytes are worth a write of their own. */
const earlyLength = 4 * 1024;

/** More than the first line of a command takes besides subjects. */
const lineLengthMax = 64;

/** Sends over a connection. */
export class Sender {
  readonly #connection: NatsConnection;
  readonly #writing = new Writing();
  #isDue = false;

  constructor(connection: NatsConnection) {
    this.#connection = connection;
  }

  /**
   * Sends a message at the end of this turn, in order. An answer goes to a subject, if to any, that may end with a
   * number, and more lines may follow the headers. Gives why it could not be sent, and `null` if it could.
   */
  send(message: Sent, reply = "", place = -1, more = ""): Error | null {
    const protocol = this.#protocol();
    const { subject, body } = message;
    const headed = headersLength(message, more);
    const bodyLength = Buffer.byteLength(body);
    const length = headed + bodyLength;
    if (protocol === null || !this.#takes(subject, reply, length))
      return this.#publish(message, place < 0 ? reply : reply + place, more);
    const writing = this.#writing;
    this.#reserve(protocol, lineLengthMax + subject.length + reply.length + length);
    writing.put(headed === 0 ? "PUB " : "HPUB ");
    writing.put(subject);
    writing.put(" ");
    if (reply !== "") {
      writing.put(reply);
      if (place >= 0) writing.putNumber(place);
      writing.put(" ");
    }
    if (headed > 0) {
      writing.putNumber(headed);
      writing.put(" ");
    }
    writing.putNumber(length);
    writing.put(lineEnd);
    if (headed > 0) putHeaders(writing, message, more);
    writing.putText(body, bodyLength);
    writing.put(lineEnd);
    if (this.#isDue) return null;
    this.#isDue = true;
    // A tick comes when no promise has anything left to do.
    process.nextTick(() => {
      this.#isDue = false;
      this.flush();
    });
    return null;
  }

  /** Sends what waits for the end of the turn if it is so long as to be worth a write of its own: the server has something to do meanwhile. */
  sendEarly(length = earlyLength): void {
    if (this.#writing.length < length) return;
    this.flush();
    // The library would write after the steps of all promises that are due by now.
    this.#protocol()?.flushPending?.();
  }

  /** Sends what waits for the end of the turn. */
  flush(): void {
    const written = this.#writing.take();
    if (written !== null) this.#protocol()?.sendCommand(written);
  }

  /** Sees to it that there is room for a message. */
  #reserve(protocol: Commanding, length: number): void {
    if (this.#writing.hasRoom(length)) return;
    const written = this.#writing.take();
    if (written !== null) protocol.sendCommand(written);
    this.#writing.makeRoom(Math.max(roomLength, length));
  }

  /** Where commands are sent, if the connection takes any now. */
  #protocol(): Commanding | null {
    const { protocol } = this.#connection as unknown as { readonly protocol?: Protocol };
    if (typeof protocol?.sendCommand !== "function") return null;
    if (this.#connection.isClosed() || protocol.noMorePublishing) return null;
    return protocol as Commanding;
  }

  /** Whether a message can go as a command; otherwise the library has to say what is wrong with it. */
  #takes(subject: string, reply: string, length: number): boolean {
    if (subject === "" || unusual.test(subject) || unusual.test(reply)) return false;
    return length <= (this.#connection.info?.max_payload ?? 0);
  }

  #publish(message: Sent, reply: string, more: string): Error | null {
    this.flush();
    try {
      const options: PublishOptions = reply === "" ? {} : { reply };
      const length = headersLength(message, more);
      if (length > 0) options.headers = encoded(message, more, length);
      this.#connection.publish(message.subject, message.body, options);
      return null;
    } catch (error) {
      return error as Error;
    }
  }
}

/** How many bytes the headers of a message take; 0 where it has none. */
function headersLength({ headers, expect }: Sent, more: string): number {
  let length = more.length;
  for (const name in headers)
    length += name.length + (headers[name]?.length ?? 0) + ": \r\n".length;
  if (expect !== undefined) {
    length += positionName.length + digitsOf(expect.seq);
    length += filterName.length + expect.filter.length + lineEnd.length;
  }
  return length === 0 ? 0 : opening.length + length + lineEnd.length;
}

function putHeaders(writing: Writing, { headers, expect }: Sent, more: string): void {
  writing.putBytes(opening);
  for (const name in headers) {
    writing.put(name);
    writing.put(": ");
    writing.put(headers[name] ?? "");
    writing.put(lineEnd);
  }
  if (expect !== undefined) {
    writing.putBytes(positionName);
    writing.putNumber(expect.seq);
    writing.putBytes(filterName);
    writing.put(expect.filter);
    writing.put(lineEnd);
  }
  writing.put(more);
  writing.put(lineEnd);
}

/** Headers that are bytes already. The library checks and copies each of its own, which costs more than sending them. */
function encoded(message: Sent, more: string, length: number): MsgHdrs {
  const writing = new Writing();
  writing.makeRoom(length);
  putHeaders(writing, message, more);
  const bytes = writing.take();
  return { encode: () => bytes } as unknown as MsgHdrs;
}
