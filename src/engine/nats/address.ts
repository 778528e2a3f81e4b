/**
 * What a `nats://` URL says: which servers there are and who asks, and in its query what is Millrace's own.
 */
import { StoreUnavailable } from "../errors.js";

/** Who asks a server. */
export type Credentials =
  | { readonly kind: "none" }
  | { readonly kind: "user"; readonly user: string; readonly password: string }
  | { readonly kind: "token"; readonly token: string }
  /** A file that holds a user's JWT and seed, as `nsc` writes it. */
  | { readonly kind: "creds"; readonly path: string };

/** How connections are encrypted, where a URL says so. */
export interface TlsFiles {
  readonly caFile?: string;
  readonly certFile?: string;
  readonly keyFile?: string;
}

/** A URL taken apart. */
export interface Address {
  /** Each as `host:port`. */
  readonly servers: readonly string[];
  /** How errors and logs name the store: without user, password and settings. */
  readonly where: string;
  readonly credentials: Credentials;
  /** Present when the connection has to be encrypted; otherwise it is where the server offers that. */
  readonly tls?: TlsFiles;
  /** What all names of streams, buckets and subjects of the deployment begin with. */
  readonly prefix: string;
  /** How many servers hold a copy; without it as many as is sensible. */
  readonly replicas?: number;
  /** The JetStream domain that the streams lie in. */
  readonly domain?: string;
  /** The service that the user may see, where that is not all of them. */
  readonly service?: string;
  /** What inboxes begin with, for users who may listen only there. */
  readonly inbox?: string;
  /** The URL of the store that the read model lies in. */
  readonly projection?: string;
}

const prefixDefault = "millrace";
const portDefault = 4222;
const portMax = 65_535;
const serversMax = 32;
const replicasMax = 5;

/** What the query of a URL may hold. */
const settingNames = [
  "prefix",
  "replicas",
  "domain",
  "service",
  "inbox",
  "projection",
  "creds",
  "tlsCa",
  "tlsCert",
  "tlsKey",
] as const;

type Settings = { readonly [Name in (typeof settingNames)[number]]?: string };

const example = "nats://user:password@host:4222,host2:4222?prefix=millrace&replicas=3";

/**
 * Takes a URL apart. `tls://` demands encryption. A user without a password is a token; `?creds=` names a file instead.
 * Throws `StoreUnavailable`, which names the part that cannot be used.
 */
export function addressOf(given: string): Address {
  const parts = /^(nats|tls):\/\/(?:([^@/?#]*)@)?([^@/?#]*)\/?(?:\?([^#]*))?$/i.exec(given);
  if (!parts) throw unreadable();
  const [, scheme = "", user, hosts = "", query = ""] = parts;
  const servers = serversOf(hosts);
  const where = `nats://${servers.join(",")}`;
  const refuse: Refuse = (message) => new StoreUnavailable({ url: where, message });
  const settings = settingsOf(query, refuse);
  const tls = tlsOf(scheme.toLowerCase() === "tls", settings);
  const replicas = replicasOf(settings.replicas, refuse);
  const { domain, service, inbox, projection } = settings;
  if (domain !== undefined && !/^[A-Za-z0-9_-]{1,64}$/.test(domain))
    throw refuse(
      `The domain "${domain}" in the URL cannot be used; it has letters, digits, "_" and "-".`,
    );
  if (inbox !== undefined && !/^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,7}$/.test(inbox))
    throw refuse(
      `The inbox "${inbox}" in the URL cannot be used; it is the beginning of a subject, such as _INBOX_shop, without wildcards.`,
    );
  return {
    servers,
    where,
    credentials: credentialsOf(user, settings, refuse),
    prefix: prefixOf(settings.prefix ?? prefixDefault, refuse),
    ...(tls && { tls }),
    ...(replicas !== undefined && { replicas }),
    ...(domain !== undefined && { domain }),
    ...(service !== undefined && { service }),
    ...(inbox !== undefined && { inbox }),
    ...(projection !== undefined && { projection }),
  };
}

type Refuse = (message: string) => StoreUnavailable;

function unreadable(): StoreUnavailable {
  const message = `The URL of the NATS store cannot be read; it looks like ${example}.`;
  return new StoreUnavailable({ url: "nats:", message });
}

function serversOf(hosts: string): readonly string[] {
  const servers = hosts.split(",").map(serverOf);
  if (servers.length > serversMax) throw unreadable();
  return servers;
}

function serverOf(given: string): string {
  const [, host, port = String(portDefault)] =
    /^(\[[0-9a-f:.]+\]|[^:[\]\s]+)(?::(\d{1,5}))?$/i.exec(given) ?? [];
  if (host === undefined || Number(port) < 1 || Number(port) > portMax) throw unreadable();
  return `${host}:${port}`;
}

function settingsOf(query: string, refuse: Refuse): Settings {
  const known: readonly string[] = settingNames;
  const settings: Record<string, string> = {};
  for (const [name, value] of new URLSearchParams(query)) {
    if (!known.includes(name))
      throw refuse(`"${name}" in the URL is not known; a NATS store takes ${known.join(", ")}.`);
    if (name in settings) throw refuse(`${name} stands twice in the URL; give it once.`);
    if (value === "")
      throw refuse(`${name} in the URL is empty; give it a value, or leave it out.`);
    settings[name] = value;
  }
  return settings;
}

/** Streams have their names in capitals, so that prefixes are told apart by lower case alone. */
function prefixOf(prefix: string, refuse: Refuse): string {
  if (/^[a-z0-9][a-z0-9_-]{0,63}$/.test(prefix)) return prefix;
  throw refuse(
    `The prefix "${prefix}" in the URL cannot be used; choose lower case letters, digits, "_" and "-", at most 64, not beginning with "_" or "-".`,
  );
}

function replicasOf(given: string | undefined, refuse: Refuse): number | undefined {
  if (given === undefined) return undefined;
  const replicas = Number(given);
  if (Number.isInteger(replicas) && replicas >= 1 && replicas <= replicasMax) return replicas;
  throw refuse(`replicas in the URL must be a whole number from 1 to ${replicasMax}.`);
}

function credentialsOf(user: string | undefined, { creds }: Settings, refuse: Refuse): Credentials {
  if (user !== undefined && creds !== undefined)
    throw refuse("The URL names a user and creds; give one of them.");
  if (creds !== undefined) return { kind: "creds", path: creds };
  if (user === undefined || user === "") return { kind: "none" };
  const [first = "", ...rest] = user.split(":").map((part) => decoded(part, refuse));
  if (rest.length === 0) return { kind: "token", token: first };
  return { kind: "user", user: first, password: rest.join(":") };
}

function decoded(part: string, refuse: Refuse): string {
  try {
    return decodeURIComponent(part);
  } catch {
    throw refuse('The user or password in the URL cannot be read; write "%" as "%25".');
  }
}

function tlsOf(isDemanded: boolean, settings: Settings): TlsFiles | undefined {
  const { tlsCa: caFile, tlsCert: certFile, tlsKey: keyFile } = settings;
  if (!isDemanded && caFile === undefined && certFile === undefined && keyFile === undefined)
    return undefined;
  return {
    ...(caFile !== undefined && { caFile }),
    ...(certFile !== undefined && { certFile }),
    ...(keyFile !== undefined && { keyFile }),
  };
}
