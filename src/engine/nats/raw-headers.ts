/**
 * Reading single headers of a message. The library decodes all of them at once, which costs more than everything else
 * that is done with an event, and throws at what it does not like; but the bytes lie in front of the data, and are
 * looked at there.
 */
import type { Msg, MsgHdrs } from "@nats-io/transport-node";

/** The headers of a message. A line that is none is passed over. */
export interface RawHeaders {
  /** Whether one of some headers is there. */
  hasAny(names: readonly string[]): boolean;
  /** The first value of a header; `undefined` where there is none. */
  first(name: string): string | undefined;
  /** The last value of a header, which is what a server adds itself. */
  last(name: string): string | undefined;
  /** How often a header is there. */
  count(name: string): number;
}

/** The library's messages tell how long they are with everything, though its types do not. */
interface SizedMsg extends Msg {
  size?(): number;
}

/** What headers begin with that carry no status. */
const opening = "NATS/1.0\r\n";

/** The headers of a message with the data that it gave. */
export function rawHeaders(message: Msg, data: Uint8Array): RawHeaders {
  const text = headerText(message, data);
  return text === null ? new DecodedHeaders(decoded(message)) : new HeaderLines(text);
}

/** The status of a message; `undefined` where it has none, or headers that nobody can read. */
export function statusOf(message: Msg): number | undefined {
  return decoded(message)?.code;
}

function decoded(message: Msg): MsgHdrs | undefined {
  try {
    return message.headers;
  } catch {
    return undefined;
  }
}

/** The headers as they were sent; `null` where they are not found in front of the data. */
function headerText(message: SizedMsg, data: Uint8Array): string | null {
  const { subject, reply = "" } = message;
  const size = message.size?.() ?? 0;
  // Where a subject has characters of more than a byte, this is wrong, and no headers begin there.
  const length = size - subject.length - reply.length - data.length;
  const start = data.byteOffset - length;
  if (length < opening.length || start < 0) return null;
  const text = bytesAround(data).toString("latin1", start, start + length);
  return text.startsWith(opening) ? text : null;
}

/** All bytes that data lies among. Many messages lie in one buffer, and a view of it costs more than reading a message. */
export function bytesAround({ buffer }: Uint8Array): Buffer {
  if (lastAround.buffer !== buffer) lastAround = Buffer.from(buffer);
  return lastAround;
}

let lastAround: Buffer = Buffer.alloc(0);

class HeaderLines implements RawHeaders {
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  hasAny(names: readonly string[]): boolean {
    for (const name of names) if (this.#text.includes(lineOf(name))) return true;
    return false;
  }

  first(name: string): string | undefined {
    return this.#valueAt(this.#text.indexOf(lineOf(name)), name);
  }

  last(name: string): string | undefined {
    return this.#valueAt(this.#text.lastIndexOf(lineOf(name)), name);
  }

  count(name: string): number {
    return this.#text.split(lineOf(name)).length - 1;
  }

  #valueAt(place: number, name: string): string | undefined {
    if (place < 0) return undefined;
    const begin = place + name.length + "\r\n:".length;
    const end = this.#text.indexOf("\r\n", begin);
    return this.#text.slice(begin, end < 0 ? undefined : end).trim();
  }
}

/** What the line of a header begins with. */
function lineOf(name: string): string {
  let line = lines.get(name);
  if (line === undefined) {
    line = `\r\n${name}:`;
    lines.set(name, line);
  }
  return line;
}

/** Only names that the code knows are asked for. */
const lines = new Map<string, string>();

class DecodedHeaders implements RawHeaders {
  readonly #headers: MsgHdrs | undefined;

  constructor(headers: MsgHdrs | undefined) {
    this.#headers = headers;
  }

  hasAny(names: readonly string[]): boolean {
    return names.some((name) => this.#headers?.has(name) === true);
  }

  first(name: string): string | undefined {
    return this.#headers?.has(name) ? this.#headers.get(name) : undefined;
  }

  last(name: string): string | undefined {
    return this.#headers?.has(name) ? this.#headers.last(name) : undefined;
  }

  count(name: string): number {
    return this.#headers?.values(name).length ?? 0;
  }
}
