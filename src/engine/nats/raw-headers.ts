/**
 * Reading single headers of a message. The library decodes all of them at once, which costs more than everything else
 * that is done with an event, and throws at what it does not like; here they are looked at where they lie. A line that
 * is none is passed over.
 */
import type { Incoming } from "./incoming.js";

/** The name of a header, as it stands in front of its value. */
export class HeaderName {
  readonly #bytes: Buffer;

  constructor(name: string) {
    this.#bytes = Buffer.from(lineOf(name));
  }

  /** Where the value begins if the header stands at a place, which is the end of the line before; -1 if it does not. */
  valueAt(bytes: Buffer, at: number): number {
    const name = this.#bytes;
    for (let index = 0; index < name.length; index++)
      if (bytes[at + index] !== name[index]) return -1;
    return at + name.length;
  }
}

/** What the headers of a message begin with that carry a status, and how long that is. */
const statusLine = /^NATS\/1\.0 +(\d{3})/;
const statusLengthMax = 20;

const returnCode = "\r".charCodeAt(0);

/** The status of a message; `undefined` where it has none, or headers that nobody can read. */
export function statusOf({ bytes, headersAt, dataAt }: Incoming): number | undefined {
  const end = Math.min(headersAt + statusLengthMax, dataAt);
  const code = statusLine.exec(bytes.toString("latin1", headersAt, end))?.[1];
  return code === undefined ? undefined : Number(code);
}

/** Whether a message has one of some headers. */
export function hasHeader(message: Incoming, names: readonly HeaderName[]): boolean {
  const { bytes, headersAt, dataAt } = message;
  for (let at = headersAt; at < dataAt; at++) {
    if (bytes[at] !== returnCode) continue;
    for (const name of names) {
      const value = name.valueAt(bytes, at);
      if (value >= 0 && value <= dataAt) return true;
    }
  }
  return false;
}

/** The first value of a header; `undefined` where there is none. */
export function firstHeader(message: Incoming, name: HeaderName): string | undefined {
  const { bytes, headersAt, dataAt } = message;
  for (let at = headersAt; at < dataAt; at++) {
    if (bytes[at] !== returnCode) continue;
    const value = name.valueAt(bytes, at);
    if (value < 0 || value > dataAt) continue;
    const end = bytes.indexOf(returnCode, value);
    return bytes.toString("latin1", value, end < 0 || end > dataAt ? dataAt : end).trim();
  }
  return undefined;
}

/** The headers of a message that is kept, as the text that they are. */
export class HeaderLines {
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  /** The first value of a header; `undefined` where there is none. */
  first(name: string): string | undefined {
    return this.#valueAt(this.#text.indexOf(lineOf(name)), name);
  }

  /** The last value of a header, which is what a server adds itself. */
  last(name: string): string | undefined {
    return this.#valueAt(this.#text.lastIndexOf(lineOf(name)), name);
  }

  /** How often a header is there. */
  count(name: string): number {
    return this.#text.split(lineOf(name)).length - 1;
  }

  #valueAt(place: number, name: string): string | undefined {
    if (place < 0) return undefined;
    const begin = place + lineOf(name).length;
    const end = this.#text.indexOf("\r\n", begin);
    return this.#text.slice(begin, end < 0 ? undefined : end).trim();
  }
}

/** What the line of a header begins with, and the end of the line before. */
function lineOf(name: string): string {
  return `\r\n${name}:`;
}
