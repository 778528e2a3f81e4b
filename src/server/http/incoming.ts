/**
 * A request as the app sees it, and an answer as it gives it: as little as a socket needs and a `Request` can give, so
 * that both ways in cost no more than they have to.
 */
import { createHash } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { Readable } from "node:stream";
import type { PeerCertificate, TLSSocket } from "node:tls";
import { badArgument } from "./refusal.js";

/** What is known of who is at the other end. */
export interface Peer {
  /** The address that the connection came from. */
  readonly address: string;
  /** The name in the client certificate that was verified. */
  readonly certificateName?: string;
  /** Whom that certificate was given to, which a renewed one tells as well. */
  readonly certificateHolder?: string;
}

/** A request. */
export interface Incoming {
  readonly method: string;
  /** The path, and what comes after a question mark. */
  readonly path: string;
  readonly search: string;
  readonly peer: Peer;
  /** A header by its name in small letters; `null` where there is none. */
  header(name: string): string | null;
  /** Reads the body; gives `null` for one that is larger than allowed. */
  text(bytesMax: number): Promise<string | null>;
  /** Aborted when the caller has gone. */
  readonly signal: AbortSignal;
}

/** Headers as names and values in turn, which is how they are sent; nobody looks one up. */
export type HeaderList = readonly string[];

/** An answer. */
export interface Outgoing {
  readonly status: number;
  readonly headers: HeaderList;
  readonly content: string | ReadableStream<Uint8Array> | null;
}

/** A request that came as a `Request` of this process. */
export function incomingOf(request: Request, peer: Peer): Incoming {
  const { pathname, search } = new URL(request.url);
  return {
    method: request.method,
    path: pathname,
    search,
    peer,
    header: (name) => request.headers.get(name),
    text: async (bytesMax) => {
      const bytes = await request.arrayBuffer();
      return bytes.byteLength > bytesMax ? null : Buffer.from(bytes).toString("utf8");
    },
    signal: request.signal,
  };
}

/** A `Response` of an answer. */
export function responseOf({ status, headers, content }: Outgoing): Response {
  return new Response(content, { status, headers: pairsOf(headers) });
}

/** Headers as pairs. */
export function pairsOf(headers: HeaderList): [name: string, value: string][] {
  const names = headers.filter((_, index) => index % 2 === 0);
  return names.map((name, index) => [name, headers[index * 2 + 1] ?? ""]);
}

/** A request that came over a socket. */
export class SocketRequest implements Incoming {
  readonly method: string;
  readonly path: string;
  readonly search: string;
  readonly #message: IncomingMessage;
  readonly #response: ServerResponse;
  #gone: AbortController | undefined;

  constructor(message: IncomingMessage, response: ServerResponse) {
    const { method = "GET", url = "/" } = message;
    const mark = url.indexOf("?");
    this.method = method;
    this.path = mark < 0 ? url : url.slice(0, mark);
    this.search = mark < 0 ? "" : url.slice(mark);
    this.#message = message;
    this.#response = response;
  }

  get peer(): Peer {
    return peerOf(this.#message);
  }

  /** Made when somebody asks for it, which most requests do not. */
  get signal(): AbortSignal {
    if (this.#gone === undefined) {
      const gone = new AbortController();
      this.#gone = gone;
      this.#response.once("close", () => gone.abort());
      if (this.#response.closed) gone.abort();
    }
    return this.#gone.signal;
  }

  header(name: string): string | null {
    const value = this.#message.headers[name];
    return value === undefined ? null : Array.isArray(value) ? value.join(", ") : value;
  }

  text(bytesMax: number): Promise<string | null> {
    const message = this.#message;
    if (Number(message.headers["content-length"] ?? 0) > bytesMax) return Promise.resolve(null);
    return new Promise((resolve, reject) => {
      const chunks: Buffer[] = [];
      let size = 0;
      message.on("data", (chunk: Buffer) => {
        size += chunk.byteLength;
        if (size <= bytesMax) chunks.push(chunk);
        else resolve(null);
      });
      message.on("end", () => {
        const [only] = chunks;
        const whole = chunks.length === 1 && only ? only : Buffer.concat(chunks);
        resolve(whole.toString("utf8"));
      });
      message.on("error", () => {
        const text = "The connection ended before the whole body was there.";
        reject(badArgument("body_incomplete", text));
      });
    });
  }
}

/** Sends an answer over a socket. */
export function send(response: ServerResponse, { status, headers, content }: Outgoing): void {
  if (typeof content === "string") {
    const length = Buffer.byteLength(content);
    response.writeHead(status, [...headers, "Content-Length", String(length)]);
    // Text of as many bytes as characters is the same in both, and Latin-1 is written in less time.
    response.end(content, length === content.length ? "latin1" : "utf8");
    return;
  }
  response.writeHead(status, [...headers]);
  if (content === null) {
    response.end();
    return;
  }
  // A stream may have nothing to say for long, and its reader is to know that it has begun.
  response.flushHeaders();
  // The reader's pace is the stream's: what it has not taken is not made.
  const source = Readable.fromWeb(content as Parameters<typeof Readable.fromWeb>[0]);
  source.on("error", () => response.destroy());
  response.on("close", () => source.destroy());
  source.pipe(response);
}

function peerOf({ socket }: IncomingMessage): Peer {
  const address = socket.remoteAddress ?? "unknown";
  const certificate = (socket as Partial<TLSSocket>).getPeerCertificate?.();
  // Without a certificate, Node gives an object without members.
  if (certificate?.subject === undefined) return { address };
  const subject = certificate.subject.CN;
  const name = Array.isArray(subject) ? subject[0] : subject;
  const certificateHolder = holderOf(certificate);
  return { address, certificateHolder, ...(name && { certificateName: nameOf(name) }) };
}

/** How much of a hash tells one holder from another. */
const holderHexLength = 24;

/** Whom a certificate was given to: its subject with its other names, or itself where it has neither. */
function holderOf({ subject, subjectaltname, fingerprint256 }: PeerCertificate): string {
  const isNamed = Object.keys(subject).length > 0 || subjectaltname !== undefined;
  const names = isNamed ? JSON.stringify([subject, subjectaltname ?? ""]) : fingerprint256;
  const hash = createHash("sha256").update(names).digest("hex");
  return `certificate-${hash.slice(0, holderHexLength)}`;
}

/** A name that fits into an actor. */
function nameOf(text: string): string {
  return text.replaceAll(/[^A-Za-z0-9._@-]/g, "-").slice(0, 64);
}
