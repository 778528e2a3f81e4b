/**
 * What comes over a socket and is no request: bytes that are not HTTP, headers that are too large, and what takes too
 * long to come in. It is refused in the one envelope of errors, and then the connection ends.
 */
import { type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import type { App } from "./app.js";
import { type Outgoing, pairsOf } from "./incoming.js";
import { badArgument, type Refused, refused } from "./refusal.js";

/** How long a refused caller may take to hear it: a connection that is cut while it sends may lose the refusal. */
const lingerMs = 1_000;

/** The refusal of a request that does not say which host it is for. */
export const hostMissing: Refused = badArgument("host_missing", "Send a Host header.", "host");

/** Whether a request must name its host, and does not. */
export function isWithoutHost({ headers, httpVersion }: IncomingMessage): boolean {
  return headers.host === undefined && httpVersion === "1.1";
}

/** Refuses what a server cannot read, and what asks it to become a tunnel. */
export function refuseUnreadable(server: Server, app: App): void {
  /** The newest answer of each connection; those before it go first. */
  const newest = new WeakMap<Duplex, ServerResponse>();
  const sentAway = new WeakSet<Duplex>();
  const refuse = (socket: Duplex, refusal: Refused, ends: "at once" | "when heard") => {
    sentAway.add(socket);
    const destroy = () => socket.destroy();
    socket.end(wireText(app.refuse(refusal)), () => {
      if (ends === "at once") destroy();
    });
    const linger = setTimeout(destroy, lingerMs);
    socket.once("close", () => clearTimeout(linger));
  };
  const note = (_: IncomingMessage, response: ServerResponse) => {
    if (response.socket) newest.set(response.socket, response);
  };
  // A request that expects something we do not know is served, and comes as the second of these.
  server.prependListener("request", note);
  server.prependListener("checkExpectation", note);
  server.on("clientError", ({ code = "" }: NodeJS.ErrnoException, socket: Duplex) => {
    // Whatever else comes from a caller that was refused is not looked at.
    if (sentAway.has(socket)) return;
    const refusal = refusalOf(code);
    if (refusal === null || !socket.writable || isAnswered(newest.get(socket))) socket.destroy();
    // The rest of what is late would still be taken for a request; what is no HTTP has no more to say.
    else refuse(socket, refusal, code.startsWith("HPE_") ? "when heard" : "at once");
  });
  server.on("connect", (_, socket: Duplex) => {
    socket.on("error", () => socket.destroy());
    const parts = { status: 405, reason: "method_not_allowed", message: "This is no proxy." };
    refuse(socket, refused("invalid_argument", parts), "at once");
  });
}

/** Whether a refusal would be taken for the answer to another request, or would be the second answer to one. */
function isAnswered(response: ServerResponse | undefined): boolean {
  if (response === undefined) return false;
  const { writableFinished, headersSent, req } = response;
  return writableFinished ? !req.complete : headersSent || req.complete;
}

/** Why something cannot be read; `null` where the connection itself has failed, and nobody hears an answer. */
function refusalOf(code: string): Refused | null {
  switch (code) {
    case "HPE_HEADER_OVERFLOW": {
      const message = "The headers are larger than 16 KiB.";
      const parts = { status: 431, reason: "headers_too_large", field: "headers", message };
      return refused("invalid_argument", parts);
    }
    case "HPE_CHUNK_EXTENSIONS_OVERFLOW": {
      const message = "The extensions of the body's chunks are too large.";
      return refused("payload_too_large", { reason: "body_too_large", field: "body", message });
    }
    case "ERR_HTTP_REQUEST_TIMEOUT": {
      const message = "The request took too long to come in.";
      return refused("invalid_argument", { status: 408, reason: "request_timeout", message });
    }
    default:
      return code.startsWith("HPE_") ? badArgument("not_http", "This is not HTTP/1.1.") : null;
  }
}

/** An answer as it goes over a connection that ends with it. */
function wireText({ status, headers, content }: Outgoing): string {
  const body = typeof content === "string" ? content : "";
  const all = pairsOf([...headers, "Content-Length", String(Buffer.byteLength(body))]);
  const lines = all.map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}\r\n${lines.join("")}\r\n${body}`;
}
