/**
 * Who may come in: the caller of a request by its token or its client certificate, and, where nobody is asked who
 * they are, only requests that no web page of another origin can have made.
 */
import type { AuthMode } from "./backend.js";
import { type Caller, may } from "./caller.js";
import type { Incoming } from "./incoming.js";
import { refused } from "./refusal.js";
import type { Need } from "./route.js";
import type { Tokens } from "./tokens.js";

/** The holder of a certificate that cannot be read any more, because its connection has gone. */
const nobody = "certificate-unknown";

/** Who makes a request that needs no proof; `null` where there is one to look at, or one that is missing. */
export function knownCaller(request: Incoming, auth: AuthMode): Caller | null {
  if (auth !== "none" || request.header("authorization") !== null) return null;
  return localCaller(request);
}

/** Finds out who makes a request. */
export async function callerOf(request: Incoming, auth: AuthMode, tokens: Tokens): Promise<Caller> {
  const text = bearer(request.header("authorization"));
  if (text !== null) {
    const token = await tokens.find(text);
    if (token === null)
      throw unauthenticated(
        "token_invalid",
        "The token is not known, was revoked, or has expired.",
      );
    const { id, name, capabilities, agent, expiresAt } = token;
    return {
      ...{ id: `token:${id}`, holder: id, actor: `admin:${name}`, capabilities },
      ...(agent === undefined ? null : { agent }),
      ...(expiresAt === undefined ? null : { expiresAt }),
    };
  }
  switch (auth) {
    case "none":
      return localCaller(request);
    case "mtls": {
      const { certificateName: name = "certificate", certificateHolder: holder = nobody } =
        request.peer;
      return { id: `certificate:${name}`, actor: `admin:${name}`, capabilities: "all", holder };
    }
    case "token":
      throw unauthenticated("token_missing", "Send a token: Authorization: Bearer mr_….");
  }
}

function localCaller({ peer }: Incoming): Caller {
  return { id: `address:${peer.address}`, actor: "admin:local", capabilities: "all" };
}

function bearer(header: string | null): string | null {
  if (header === null) return null;
  const [, text] = /^Bearer +(\S+)$/i.exec(header) ?? [];
  if (text !== undefined) return text;
  throw unauthenticated("authorization_invalid", "The Authorization header must be: Bearer mr_….");
}

function unauthenticated(reason: string, message: string) {
  return refused("unauthenticated", { reason, message });
}

/** Refuses a caller that may not do what the route does. */
export function checkNeed(caller: Caller, need: Need): void {
  if (need === "nothing" || need === "work" || may(caller, need)) return;
  const message = `This needs the capability ${need}, which the token does not have.`;
  throw refused("permission_denied", {
    reason: "capability_missing",
    message,
    details: { capability: need },
  });
}

/** The names under which a server on loopback is reached, port aside. */
const loopbackNames = ["localhost", "127.0.0.1", "[::1]"];

/**
 * Keeps out what web pages of other origins may have sent, where a browser would prove its user by itself: on loopback,
 * where nobody is asked, and with client certificates.
 */
export class OriginGuard {
  readonly #hosts: ReadonlySet<string> | null;

  /** `hosts` are the only values of the Host header that are served; any is where there are none. */
  constructor(hosts: readonly string[] | null) {
    this.#hosts = hosts && new Set(hosts.map((host) => host.toLowerCase()));
  }

  /** The guard of a server on loopback; `hosts` are further names, such as the one that a proxy serves under. */
  static ofLoopback(port: number, hosts: readonly string[] = []): OriginGuard {
    const own = loopbackNames.flatMap((name) => [
      `${name}:${port}`,
      ...(port === 80 ? [name] : []),
    ]);
    return new OriginGuard([...own, ...hosts]);
  }

  /**
   * Refuses a request that a web page of another origin may have made: one for a host that is not ours, and a change
   * or a stream that the browser says comes from elsewhere.
   */
  check(request: Incoming, need: Need): void {
    const host = request.header("host")?.toLowerCase();
    if (host === undefined || this.#hosts?.has(host) === false) {
      const message = `The host ${host ?? "(none)"} is not one of this server's; start it with --allow-host, or with tokens.`;
      throw refused("permission_denied", { reason: "host_not_allowed", field: "host", message });
    }
    if (need === "nothing" || need === "admin.read") return;
    const origin = request.header("origin");
    const site = request.header("sec-fetch-site");
    const isOwn = origin === null || this.#isOwn(origin, host);
    if (isOwn && (site === null || site === "same-origin" || site === "none")) return;
    const message =
      "Requests of web pages of another origin are refused where the server asks for no token.";
    throw refused("permission_denied", { reason: "origin_not_allowed", field: "origin", message });
  }

  #isOwn(origin: string, host: string): boolean {
    const [, given] = /^https?:\/\/(.+)$/i.exec(origin) ?? [];
    if (given === undefined) return false;
    return this.#hosts === null
      ? given.toLowerCase() === host
      : this.#hosts.has(given.toLowerCase());
  }
}
