/**
 * What comes in over a connection, message by message. Messages for those who listen are told where they lie; whatever
 * else comes, and whatever is not as servers write it, is left to the library.
 */
import { Incoming } from "./incoming.js";

/** Is told of a message, which is gone when it returns. */
export type Heard = (message: Incoming) => void;

/** What takes the bytes that come in. */
export interface Parser {
  parse(bytes: Buffer): void;
}

/** What the line of a message begins with, without and with headers, and what stands in it. */
const plainStart = Buffer.from("MSG ");
const headedStart = Buffer.from("HMSG ");
const space = " ".charCodeAt(0);
const newLine = "\n".charCodeAt(0);
const zero = "0".charCodeAt(0);

/** How many bytes end a message. */
const endLength = 2;

/** Takes what comes in before the library does. */
export class Framing implements Parser {
  readonly #library: Parser;
  readonly #listeners: ReadonlyMap<number, Heard>;
  readonly #message = new Incoming();
  /** What has come of something whose end has not, and how much is missing at least. */
  #begun: Buffer[] = [];
  #missing = 0;
  /** Something was not as expected: from then on the library reads everything, and says what it thinks of it. */
  #isOff = false;

  /** Listeners are known by the numbers of their subscriptions. */
  constructor(library: Parser, listeners: ReadonlyMap<number, Heard>) {
    this.#library = library;
    this.#listeners = listeners;
  }

  parse(chunk: Buffer): void {
    let bytes = chunk;
    if (this.#begun.length > 0) {
      this.#begun.push(chunk);
      this.#missing -= chunk.length;
      if (this.#missing > 0) return;
      bytes = Buffer.concat(this.#begun);
      this.#begun = [];
    }
    let at = 0;
    while (at < bytes.length && !this.#isOff) {
      const end = this.#take(bytes, at);
      if (end > bytes.length) {
        this.#begun.push(bytes.subarray(at));
        this.#missing = end - bytes.length;
        return;
      }
      at = end;
    }
    if (at < bytes.length) this.#library.parse(bytes.subarray(at));
  }

  /** Takes what begins at a place. Gives where it ends, which lies behind all bytes where some are missing. */
  #take(bytes: Buffer, at: number): number {
    const isHeaded = bytes[at] === headedStart[0];
    const start = isHeaded ? headedStart : plainStart;
    if (bytes[at] !== start[0]) return this.#leave(bytes, at);
    const subject = at + start.length;
    // In the line stand a subject, a number, perhaps where an answer goes, with headers their length, and the whole length.
    let first = 0;
    let second = 0;
    let third = 0;
    let last = 0;
    let spaces = 0;
    let end = subject;
    for (; ; end++) {
      if (end >= bytes.length) return end + 1;
      const code = bytes[end] as number;
      // Nearly all are characters of names.
      if (code > space) continue;
      if (code === newLine) break;
      if (code !== space) continue;
      spaces += 1;
      last = end;
      if (spaces === 1) first = end;
      else if (spaces === 2) second = end;
      else if (spaces === 3) third = end;
    }
    const replies = spaces - (isHeaded ? 3 : 2);
    const number = numberAt(bytes, first + 1, second);
    const length = numberAt(bytes, last + 1, end - 1);
    const hasReply = replies === 1;
    const headed = isHeaded ? numberAt(bytes, (hasReply ? third : second) + 1, last) : 0;
    const isWhole = number >= 0 && headed >= 0 && length >= headed;
    if (!isWhole || replies < 0 || replies > 1 || !startsWith(bytes, at, start)) {
      this.#isOff = true;
      return at;
    }
    const over = end + 1 + length + endLength;
    if (over > bytes.length) return over;
    const heard = this.#listeners.get(number);
    if (heard === undefined) {
      this.#library.parse(bytes.subarray(at, over));
      return over;
    }
    const message = this.#message;
    message.bytes = bytes;
    message.subjectAt = subject;
    message.subjectEnd = first;
    message.replyAt = second + 1;
    message.replyEnd = hasReply ? third : second + 1;
    message.headersAt = end + 1;
    message.dataAt = end + 1 + headed;
    message.dataEnd = end + 1 + length;
    heard(message);
    return over;
  }

  /** Leaves a line to the library that is no message. */
  #leave(bytes: Buffer, at: number): number {
    const end = bytes.indexOf(newLine, at);
    if (end < 0) return bytes.length + 1;
    this.#library.parse(bytes.subarray(at, end + 1));
    return end + 1;
  }
}

function startsWith(bytes: Buffer, at: number, start: Buffer): boolean {
  for (let index = 0; index < start.length; index++)
    if (bytes[at + index] !== start[index]) return false;
  return true;
}

/** The number between two places; -1 if there is none. */
function numberAt(bytes: Buffer, from: number, to: number): number {
  if (from >= to) return -1;
  let number = 0;
  for (let at = from; at < to; at++) {
    const digit = (bytes[at] ?? 0) - zero;
    if (digit < 0 || digit > 9) return -1;
    number = number * 10 + digit;
  }
  return number;
}
