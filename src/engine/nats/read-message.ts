/**
 * Messages as a server gives them from a stream: their place, their headers, and whether they are anybody's word.
 */
import type { Incoming } from "./incoming.js";
import type { StoredMessage } from "./port.js";
import { HeaderLines, HeaderName, hasHeader } from "./raw-headers.js";

/** What the reply subject of a message tells of its place. */
export interface MessagePlace {
  readonly delivered: number;
  readonly seq: number;
  readonly consumerSeq: number;
  readonly pending: number;
}

/** How many tokens a reply subject has that names no domain, and where its numbers begin then and otherwise. */
const shortReply = 9;
const shortFrom = 4;
const longFrom = 6;

/** Reads the reply subject of a message. Every message has one, and so it is read digit by digit. */
export function placeOf({ bytes, replyAt, replyEnd }: Incoming): MessagePlace {
  let tokens = 1;
  for (let at = replyAt; at < replyEnd; at++) if (bytes[at] === dotCode) tokens += 1;
  const place = { delivered: 0, seq: 0, consumerSeq: 0, pending: 0 };
  let token = tokens === shortReply ? -shortFrom : -longFrom;
  for (let at = replyAt; at < replyEnd; at++) {
    const code = bytes[at] ?? 0;
    const digit = code - zeroCode;
    if (code === dotCode) token += 1;
    else if (token === 0) place.delivered = place.delivered * 10 + digit;
    else if (token === 1) place.seq = place.seq * 10 + digit;
    else if (token === 2) place.consumerSeq = place.consumerSeq * 10 + digit;
    else if (token === 4) place.pending = place.pending * 10 + digit;
  }
  return place;
}

const dotCode = ".".charCodeAt(0);
const zeroCode = "0".charCodeAt(0);

/**
 * The headers that a server adds to what it gives from a stream. Whoever wrote the message may have left its headers open,
 * so that the first that is added is no line of its own; never all of them.
 */
const answerHeaders = ["Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"] as const;
const answerNames = answerHeaders.map((name) => new HeaderName(name));

/** A message that was read. Of a header that is there more than once, one counts. */
class ReadMessage implements StoredMessage {
  readonly subject: string;
  readonly seq: number;
  readonly body: string;
  readonly #headers: HeaderLines;
  readonly #counts: "first" | "last";

  constructor(
    subject: string,
    seq: number,
    body: string,
    headers: HeaderLines,
    counts: "first" | "last",
  ) {
    this.subject = subject;
    this.seq = seq;
    this.body = body;
    this.#headers = headers;
    this.#counts = counts;
  }

  header(name: string): string | undefined {
    return this.#headers[this.#counts](name);
  }
}

/** The message that a direct get gave. */
export function directMessage(message: Incoming): StoredMessage {
  const headers = new HeaderLines(message.headers);
  const isAnswer = answerHeaders.some((name) => headers.count(name) > 1);
  const subject = headers.last("Nats-Subject") ?? "";
  const seq = Number(headers.last("Nats-Sequence") ?? 0);
  return new ReadMessage(subject, seq, isAnswer ? "" : message.text, headers, "last");
}

/** A message that a consumer sent, as the engine sees it. */
export function storedMessage(message: Incoming, seq: number): StoredMessage {
  const headers = new HeaderLines(message.headers);
  return new ReadMessage(message.subject, seq, deliveredText(message), headers, "first");
}

/**
 * The text of a message that a consumer sent. A server sends its answers wherever a user wants them, also where that user
 * may not publish; one that was stored is nobody's word and is read as empty.
 */
export function deliveredText(message: Incoming): string {
  return isAnswer(message) ? "" : message.text;
}

/** Whether a message is what a server has answered, stored under a subject where somebody wanted it. */
export function isAnswer(message: Incoming): boolean {
  return hasHeader(message, answerNames);
}
