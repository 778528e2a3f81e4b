/**
 * Messages as they come in: where their parts lie among the bytes of many. Whatever is wanted of one later is taken out
 * of it at once.
 */
import type { Msg, MsgHdrs } from "@nats-io/transport-node";

/** A message that is heard. It is gone when whoever hears it returns. */
export class Incoming {
  bytes: Buffer = Buffer.alloc(0);
  subjectAt = 0;
  subjectEnd = 0;
  replyAt = 0;
  replyEnd = 0;
  headersAt = 0;
  /** Where the data begin, and where the headers end. */
  dataAt = 0;
  dataEnd = 0;

  get subject(): string {
    return this.bytes.toString("utf8", this.subjectAt, this.subjectEnd);
  }

  /** Where an answer goes; empty where none is wanted. */
  get reply(): string {
    return this.bytes.toString("utf8", this.replyAt, this.replyEnd);
  }

  /** The headers as they were sent. */
  get headers(): string {
    return this.bytes.toString("latin1", this.headersAt, this.dataAt);
  }

  get hasReply(): boolean {
    return this.replyAt < this.replyEnd;
  }

  get hasData(): boolean {
    return this.dataAt < this.dataEnd;
  }

  get data(): Uint8Array {
    return this.bytes.subarray(this.dataAt, this.dataEnd);
  }

  get text(): string {
    return this.bytes.toString("utf8", this.dataAt, this.dataEnd);
  }

  json<T>(): T {
    return JSON.parse(this.text);
  }

  /** The message by itself, for as long as anybody wants it. */
  kept(): Incoming {
    const kept = new Incoming();
    const from = this.subjectAt;
    kept.bytes = Buffer.from(this.bytes.subarray(from, this.dataEnd));
    kept.subjectEnd = this.subjectEnd - from;
    kept.replyAt = this.replyAt - from;
    kept.replyEnd = this.replyEnd - from;
    kept.headersAt = this.headersAt - from;
    kept.dataAt = this.dataAt - from;
    kept.dataEnd = this.dataEnd - from;
    return kept;
  }
}

/** A message of the library's. */
export function incomingOf(message: Msg): Incoming {
  const subject = Buffer.from(message.subject);
  const reply = Buffer.from(message.reply ?? "");
  const headers = Buffer.from(headerText(message), "latin1");
  const incoming = new Incoming();
  incoming.bytes = Buffer.concat([subject, reply, headers, message.data]);
  incoming.subjectEnd = subject.length;
  incoming.replyAt = subject.length;
  incoming.replyEnd = incoming.replyAt + reply.length;
  incoming.headersAt = incoming.replyEnd;
  incoming.dataAt = incoming.headersAt + headers.length;
  incoming.dataEnd = incoming.bytes.length;
  return incoming;
}

/** The headers of a message of the library's, which throws at what it does not like. */
function headerText(message: Msg): string {
  let headers: MsgHdrs | undefined;
  try {
    headers = message.headers;
  } catch {
    return "";
  }
  if (headers === undefined) return "";
  let text = headers.code > 0 ? `NATS/1.0 ${headers.code}\r\n` : "NATS/1.0\r\n";
  for (const [name, values] of headers) for (const value of values) text += `${name}: ${value}\r\n`;
  return `${text}\r\n`;
}
