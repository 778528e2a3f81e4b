/**
 * The listener: sockets, TLS and time-outs, and the rule that nothing but loopback is served without asking who comes.
 */
import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import {
  createServer as createHttpServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from "node:http";
import { createServer as createHttpsServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { createSecureContext } from "node:tls";
import { InvalidOption } from "../../client/errors.js";
import type { App } from "./app.js";
import type { AuthMode } from "./backend.js";
import { type Outgoing, SocketRequest, send } from "./incoming.js";
import { hostMissing, isWithoutHost, refuseUnreadable } from "./unreadable.js";

/** Where and how a server listens. */
export interface ListenOptions {
  /** `127.0.0.1:8080` by default; port 0 takes a free one. */
  readonly bind?: string;
  /** The files of certificate and key; both or none. */
  readonly tlsCert?: string;
  readonly tlsKey?: string;
  /** The file of authorities that client certificates are verified by; turns on mTLS. */
  readonly tlsClientCa?: string;
  /** Whether callers need tokens; by default they do wherever the server is not on loopback. */
  readonly auth?: "none" | "token";
  /** Allows a bind that is not loopback without tokens and TLS, or mTLS: something in front of it asks who comes. */
  readonly unsafeBind?: boolean;
  /** How long a request may take to come in. */
  readonly readTimeoutMs?: number;
  /** How long a caller may take nothing of an answer that is on its way. */
  readonly writeTimeoutMs?: number;
}

/** The default bind. */
const defaultBind = "127.0.0.1:8080";

const defaultTimeoutMs = 30_000;

/** What a bind comes to. */
export interface Binding {
  readonly host: string;
  readonly port: number;
  readonly isLoopback: boolean;
  readonly auth: AuthMode;
  readonly tls: { readonly cert: Buffer; readonly key: Buffer; readonly clientCa?: Buffer } | null;
}

/** Reads where to listen. Throws `InvalidOption` for what cannot be, or must not be without consent. */
export function bindingOf(options: ListenOptions): Binding {
  const { bind = defaultBind, tlsCert, tlsKey, tlsClientCa, unsafeBind = false } = options;
  const { host, port } = addressOf(bind);
  const isLoopback = isLoopbackHost(host);
  const tls = tlsOf(tlsCert, tlsKey, tlsClientCa);
  const isMutual = tls?.clientCa !== undefined;
  const auth = options.auth ?? (isMutual ? "mtls" : isLoopback || unsafeBind ? "none" : "token");
  const isSafe = isLoopback || isMutual || (auth === "token" && tls !== null);
  if (!isSafe && !unsafeBind) {
    const message = `${bind} is not loopback: give --tls-cert and --tls-key (callers then need tokens), also --tls-client-ca for mTLS, or --unsafe-bind if a proxy in front of the server asks who comes.`;
    throw new InvalidOption({ field: "bind", message });
  }
  return { host, port, isLoopback, auth, tls };
}

function addressOf(bind: string): { readonly host: string; readonly port: number } {
  const [, host, port] = /^(\[[0-9a-f:.]+\]|[^:[\]]*):(\d{1,5})$/i.exec(bind) ?? [];
  if (host === undefined || Number(port) > 65_535) {
    const message = `"${bind}" is not an address to listen on; give host:port, such as ${defaultBind} or [::1]:8080.`;
    throw new InvalidOption({ field: "bind", message });
  }
  return { host: host.replace(/^\[|\]$/g, "") || "0.0.0.0", port: Number(port) };
}

function isLoopbackHost(host: string): boolean {
  return host === "localhost" || host === "::1" || /^127(?:\.\d{1,3}){3}$/.test(host);
}

function tlsOf(cert?: string, key?: string, clientCa?: string): Binding["tls"] {
  if (cert === undefined && key === undefined && clientCa === undefined) return null;
  if (cert === undefined || key === undefined) {
    const field = cert === undefined ? "tlsCert" : "tlsKey";
    const message = "TLS needs a certificate and its key; give both --tls-cert and --tls-key.";
    throw new InvalidOption({ field, message });
  }
  const tls = {
    cert: readPem("tlsCert", cert),
    key: readPem("tlsKey", key),
    ...(clientCa === undefined ? null : { clientCa: readPem("tlsClientCa", clientCa) }),
  };
  tried("tlsCert", `${cert} is not a certificate`, () => new X509Certificate(tls.cert));
  tried("tlsKey", `${key} is not the key of ${cert}`, () => createSecureContext(tls));
  const { clientCa: authorities } = tls;
  if (authorities)
    tried(
      "tlsClientCa",
      `${clientCa} is not a certificate`,
      () => new X509Certificate(authorities),
    );
  return tls;
}

/** Refuses files that TLS cannot be made with, before the first connection shows it. */
function tried(field: string, problem: string, use: () => unknown): void {
  try {
    use();
  } catch (error) {
    const detail = error instanceof Error ? error.message : "it cannot be used";
    throw new InvalidOption({ field, message: `${problem}: ${detail}.` });
  }
}

function readPem(field: string, path: string): Buffer {
  let text: Buffer;
  try {
    text = readFileSync(path);
  } catch (error) {
    const detail = error instanceof Error ? error.message : "it cannot be read";
    throw new InvalidOption({ field, message: `${path} cannot be read: ${detail}.` });
  }
  if (text.includes("-----BEGIN ")) return text;
  throw new InvalidOption({ field, message: `${path} is not a PEM file.` });
}

/** A server that listens. */
export interface Listener {
  /** Where it is reached. */
  readonly url: string;
  readonly port: number;
  /** Takes no more connections, and waits for the answers that are on their way. Idempotent. */
  stop(): Promise<void>;
}

/** How often connections are looked at for requests that take too long to come in. */
const checkMs = 5_000;

/** How long a connection without a request stays open. */
const idleMs = 5_000;

/** How long answers that are on their way may take once the server stops. */
const drainMs = 10_000;

/** Listens, and hands requests to the app that `appFor` makes for the port. */
export async function listen(
  binding: Binding,
  options: Pick<ListenOptions, "readTimeoutMs" | "writeTimeoutMs">,
  appFor: (port: number) => App,
): Promise<Listener> {
  const { readTimeoutMs = defaultTimeoutMs, writeTimeoutMs = defaultTimeoutMs } = options;
  const limits = {
    headersTimeout: readTimeoutMs,
    requestTimeout: readTimeoutMs,
    keepAliveTimeout: Math.min(readTimeoutMs, idleMs),
    maxHeaderSize: 16_384,
    // A request without a host is refused in our words, and not in those of Node.
    requireHostHeader: false,
    connectionsCheckingInterval: Math.min(readTimeoutMs, checkMs),
  };
  const server = binding.tls
    ? createHttpsServer({
        ...limits,
        cert: binding.tls.cert,
        key: binding.tls.key,
        minVersion: "TLSv1.2",
        ...(binding.tls.clientCa && {
          ca: binding.tls.clientCa,
          requestCert: true,
          rejectUnauthorized: true,
        }),
      })
    : createHttpServer(limits);
  server.timeout = writeTimeoutMs;
  await started(server, binding);
  const { port } = server.address() as AddressInfo;
  const app = appFor(port);
  let stopping: Promise<void> | undefined;
  refuseUnreadable(server, app);
  // One for all answers, because every request would make another.
  const onClose = () => {
    if (stopping) server.closeIdleConnections();
  };
  const sent = (response: ServerResponse, answer: Outgoing) => {
    send(response, answer);
    // A connection whose answer goes on while the server stops would then wait for further requests.
    if (!response.writableFinished) response.on("close", onClose);
  };
  const serve = (message: IncomingMessage, response: ServerResponse) => {
    response.on("timeout", cutIfStuck);
    if (isWithoutHost(message)) return sent(response, app.refuse(hostMissing));
    app.handle(new SocketRequest(message, response)).then(
      (answer) => sent(response, answer),
      () => response.destroy(),
    );
  };
  server.on("request", serve);
  // Whatever else is expected of us than to go on, we may ignore.
  server.on("checkExpectation", serve);
  const host = binding.host.includes(":") ? `[${binding.host}]` : binding.host;
  const url = `${binding.tls ? "https" : "http"}://${host}:${port}`;
  return {
    url,
    port,
    stop: () => {
      stopping ??= stopped(server);
      return stopping;
    },
  };
}

/** Silence alone is no fault: long polls and streams wait for something to say. A caller that takes nothing is one. */
function cutIfStuck(socket: Socket): void {
  if (socket.writableLength > 0) socket.destroy();
}

function started(server: Server, { host, port }: Binding): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      const message =
        error.code === "EADDRINUSE"
          ? `${host}:${port} is taken by another program; give another --bind, such as ${host}:0 for a free port.`
          : `The server cannot listen on ${host}:${port}: ${error.message}.`;
      reject(new InvalidOption({ field: "bind", message }));
    });
    server.listen(port, host, resolve);
  });
}

async function stopped(server: Server): Promise<void> {
  const timer = setTimeout(() => server.closeAllConnections(), drainMs);
  await new Promise<void>((resolve) => {
    server.close(() => resolve());
    server.closeIdleConnections();
  });
  clearTimeout(timer);
}
