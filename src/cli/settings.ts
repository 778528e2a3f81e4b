/**
 * Every setting of the command line: how it is given as a flag, in the environment and in the configuration file, and
 * which of them counts. The table in docs/guides/configuration.md repeats this one, and a test compares them.
 */
import { readFileSync } from "node:fs";
import { Failure, messageOf } from "./failure.js";
import { durationMs, wholeNumber } from "./values.js";

/** One setting. A flag that takes no value has none in angle brackets. */
export interface Setting {
  readonly flag?: string;
  readonly variable?: string;
  /** Its name in the configuration file. */
  readonly key?: string;
  readonly default?: string;
  readonly says: string;
  /** Where it counts: everywhere, or in some commands only. */
  readonly commands: "all" | readonly ("server" | "dev" | "worker")[];
  readonly kind: "text" | "switch" | "number" | "duration";
}

const serving = ["server", "dev"] as const;
const working = ["worker", "dev"] as const;

/** All settings by name. */
export const settings = {
  url: {
    flag: "--url <url>",
    variable: "MILLRACE_URL",
    key: "url",
    default: "file:millrace.db",
    says: "the store to work on directly: file:…, postgres://…, nats://… or memory:",
    commands: "all",
    kind: "text",
  },
  server: {
    flag: "--server <url>",
    variable: "MILLRACE_SERVER",
    key: "server",
    says: "the server to ask, in place of a store",
    commands: "all",
    kind: "text",
  },
  token: {
    flag: "--token <secret>",
    variable: "MILLRACE_TOKEN",
    key: "token",
    says: "the token for the server; better given in the environment than as a flag",
    commands: "all",
    kind: "text",
  },
  ca: {
    flag: "--ca <file>",
    variable: "MILLRACE_CA",
    key: "ca",
    default: "the authorities that Node.js knows",
    says: "the authority of the server's certificate",
    commands: "all",
    kind: "text",
  },
  clientCert: {
    flag: "--client-cert <file>",
    variable: "MILLRACE_CLIENT_CERT",
    key: "clientCert",
    says: "the certificate to show to a server that asks for one; needs the key",
    commands: "all",
    kind: "text",
  },
  clientKey: {
    flag: "--client-key <file>",
    variable: "MILLRACE_CLIENT_KEY",
    key: "clientKey",
    says: "the key of that certificate",
    commands: "all",
    kind: "text",
  },
  context: {
    flag: "--context <name>",
    variable: "MILLRACE_CONTEXT",
    key: "context",
    default: "the one that `millrace context use` chose",
    says: "a named place, see `millrace context`",
    commands: "all",
    kind: "text",
  },
  config: {
    flag: "--config <file>",
    variable: "MILLRACE_CONFIG",
    default: "millrace.config.json, if it is there",
    says: "the configuration file",
    commands: "all",
    kind: "text",
  },
  color: {
    flag: "--no-color",
    variable: "NO_COLOR",
    default: "colours on a terminal",
    says: "no colours",
    commands: "all",
    kind: "switch",
  },
  projectionUrl: {
    variable: "MILLRACE_PROJECTION_URL",
    default: "file:millrace-projection.db",
    says: "where lists of a nats: store are kept, unless its URL says so",
    commands: "all",
    kind: "text",
  },
  bind: {
    flag: "--bind <host:port>",
    variable: "MILLRACE_BIND",
    key: "bind",
    default: "127.0.0.1:8080",
    says: "where the server listens; port 0 takes a free one",
    commands: serving,
    kind: "text",
  },
  tlsCert: {
    flag: "--tls-cert <file>",
    variable: "MILLRACE_TLS_CERT",
    key: "tlsCert",
    says: "the server's certificate; needs the key",
    commands: serving,
    kind: "text",
  },
  tlsKey: {
    flag: "--tls-key <file>",
    variable: "MILLRACE_TLS_KEY",
    key: "tlsKey",
    says: "the key of the server's certificate",
    commands: serving,
    kind: "text",
  },
  tlsClientCa: {
    flag: "--tls-client-ca <file>",
    variable: "MILLRACE_TLS_CLIENT_CA",
    key: "tlsClientCa",
    says: "clients must show a certificate of this authority",
    commands: serving,
    kind: "text",
  },
  auth: {
    flag: "--auth <mode>",
    variable: "MILLRACE_AUTH",
    key: "auth",
    default: "none on loopback, token elsewhere",
    says: "whether callers need tokens: none or token",
    commands: serving,
    kind: "text",
  },
  unsafeBind: {
    flag: "--unsafe-bind",
    variable: "MILLRACE_UNSAFE_BIND",
    key: "unsafeBind",
    says: "listen beyond loopback without tokens and TLS, behind a proxy that sees to both",
    commands: serving,
    kind: "switch",
  },
  allowCreateDefault: {
    flag: "--allow-create-default",
    variable: "MILLRACE_ALLOW_CREATE_DEFAULT",
    key: "allowCreateDefault",
    says: "let a queue named DEFAULT be created",
    commands: serving,
    kind: "switch",
  },
  allowHost: {
    flag: "--allow-host <names>",
    variable: "MILLRACE_ALLOW_HOST",
    key: "allowHost",
    says: "further values of the Host header that are served without a token (a comma list)",
    commands: serving,
    kind: "text",
  },
  readTimeoutMs: {
    flag: "--read-timeout <duration>",
    variable: "MILLRACE_READ_TIMEOUT",
    key: "readTimeout",
    default: "30s",
    says: "how long a request may take to come in",
    commands: serving,
    kind: "duration",
  },
  writeTimeoutMs: {
    flag: "--write-timeout <duration>",
    variable: "MILLRACE_WRITE_TIMEOUT",
    key: "writeTimeout",
    default: "30s",
    says: "how long a caller may take nothing of an answer that is on its way",
    commands: serving,
    kind: "duration",
  },
  maxBodyBytes: {
    flag: "--max-body <bytes>",
    variable: "MILLRACE_MAX_BODY",
    key: "maxBody",
    default: "524288",
    says: "how large the body of a request may be",
    commands: serving,
    kind: "number",
  },
  rateLimit: {
    flag: "--rate-limit <number>",
    variable: "MILLRACE_RATE_LIMIT",
    key: "rateLimit",
    default: "1000 with tokens, else none",
    says: "requests per second of one token or address",
    commands: serving,
    kind: "number",
  },
  maxStreams: {
    flag: "--max-streams <number>",
    variable: "MILLRACE_MAX_STREAMS",
    key: "maxStreams",
    default: "200",
    says: "how many event streams may be open at once",
    commands: serving,
    kind: "number",
  },
  webhookAddresses: {
    flag: "--webhook-addresses <networks>",
    variable: "MILLRACE_WEBHOOK_ADDRESSES",
    key: "webhookAddresses",
    says: "networks that webhooks may be sent to although they are not public, such as 10.1.0.0/16 (a comma list)",
    commands: serving,
    kind: "text",
  },
  logLevel: {
    flag: "--log-level <level>",
    variable: "MILLRACE_LOG_LEVEL",
    key: "logLevel",
    default: "info",
    says: "what is logged to stderr: debug, info, warn, error or silent",
    commands: ["server", "dev", "worker"],
    kind: "text",
  },
  instance: {
    flag: "--instance <name>",
    variable: "MILLRACE_INSTANCE",
    key: "instance",
    default: "made from host and process",
    says: "the name of this process among those of its service",
    commands: ["server", "dev", "worker"],
    kind: "text",
  },
  sign: {
    flag: "--sign <key>",
    variable: "MILLRACE_SIGN",
    key: "sign",
    says: "the private key that signs what this process creates: hexadecimal, or a file that holds it",
    commands: working,
    kind: "text",
  },
  verify: {
    flag: "--verify <keys>",
    variable: "MILLRACE_VERIFY",
    key: "verify",
    says: "the public keys of those whose jobs count (a comma list of hexadecimal keys or files)",
    commands: ["server", "dev", "worker"],
    kind: "text",
  },
  signaturesOptional: {
    flag: "--signatures-optional",
    variable: "MILLRACE_SIGNATURES_OPTIONAL",
    key: "signaturesOptional",
    says: "let jobs without a signature through",
    commands: ["server", "dev", "worker"],
    kind: "switch",
  },
  encryptionKeys: {
    flag: "--encryption-keys <keys>",
    variable: "MILLRACE_ENCRYPTION_KEYS",
    key: "encryptionKeys",
    says: "the keys of encrypted services, the one that encrypts first (a comma list of name=key; a key is hexadecimal, base64, or a file that holds it)",
    commands: "all",
    kind: "text",
  },
  auditRetentionMs: {
    flag: "--audit-retention <duration>",
    variable: "MILLRACE_AUDIT_RETENTION",
    key: "auditRetention",
    default: "90d",
    says: "how long the changes that are made here stay in the audit trail",
    commands: "all",
    kind: "duration",
  },
  concurrency: {
    flag: "--concurrency <number>",
    variable: "MILLRACE_CONCURRENCY",
    key: "concurrency",
    default: "the job types' own limits",
    says: "how many jobs of all types this process runs at once",
    commands: working,
    kind: "number",
  },
  graceMs: {
    flag: "--grace <duration>",
    variable: "MILLRACE_GRACE",
    key: "grace",
    default: "10s",
    says: "how long running jobs may take to stop",
    commands: working,
    kind: "duration",
  },
  acceptMigration: {
    flag: "--accept-migration <name>",
    variable: "MILLRACE_ACCEPT_MIGRATION",
    key: "acceptMigration",
    says: "the migration of the contract that may be stored at the start",
    commands: working,
    kind: "text",
  },
} as const satisfies Readonly<Record<string, Setting>>;

/** The name of a setting. */
export type SettingName = keyof typeof settings;

/** Where values come from, the most telling first. */
export const levels = ["flags", "environment", "file"] as const;

/** What each level says, by the name of the setting. */
export type Given = {
  readonly [Level in (typeof levels)[number]]: { readonly [Name in SettingName]?: string };
};

/** The file that is read when nobody names one. */
const fileDefault = "millrace.config.json";

/** The flag's name as the option parser spells it: `--tls-cert <file>` is `tlsCert`. */
function optionName(flag: string): string {
  const [word = ""] = flag.replace(/^--(?:no-)?/, "").split(" ");
  return word.replaceAll(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

/** Gathers what flags, environment and configuration file say. */
export function gather(
  options: Readonly<Record<string, unknown>>,
  environment: Readonly<Record<string, string | undefined>>,
): Given {
  const flags: Record<string, string> = {};
  const variables: Record<string, string> = {};
  for (const [name, setting] of Object.entries(settings) as [SettingName, Setting][]) {
    const option = setting.flag === undefined ? undefined : options[optionName(setting.flag)];
    if (typeof option === "string" || option === true) flags[name] = String(option);
    const variable = setting.variable === undefined ? undefined : environment[setting.variable];
    if (variable !== undefined && variable !== "") variables[name] = variable;
  }
  return { flags, environment: variables, file: readFile(flags.config ?? variables.config) };
}

/** Reads the configuration file. One that somebody names must be there. */
function readFile(named: string | undefined): Given["file"] {
  const path = named ?? fileDefault;
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if (named === undefined && (error as { code?: string }).code === "ENOENT") return {};
    throw new Failure("usage", `The configuration ${path} cannot be read: ${messageOf(error)}`);
  }
  return fileSettings(path, text);
}

function fileSettings(path: string, text: string): Given["file"] {
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch (error) {
    throw new Failure("usage", `${path} is not JSON: ${messageOf(error)}`);
  }
  if (typeof content !== "object" || content === null || Array.isArray(content))
    throw new Failure("usage", `${path} must hold a JSON object of settings.`);
  const byKey = new Map(
    (Object.entries(settings) as [SettingName, Setting][]).map(([name, { key }]) => [key, name]),
  );
  const found: Record<string, string> = {};
  for (const [key, value] of Object.entries(content)) {
    const name = byKey.get(key);
    if (name === undefined) {
      const known = [...byKey.keys()].filter((known) => known !== undefined).join(", ");
      throw new Failure("usage", `"${key}" in ${path} is not a setting; there are ${known}.`);
    }
    if (!["string", "number", "boolean"].includes(typeof value))
      throw new Failure("usage", `"${key}" in ${path} must be text, a number, true or false.`);
    if (value !== false) found[name] = String(value);
  }
  return found;
}

/** The value of a setting: that of the first level that has one. */
export function settingValue(given: Given, name: SettingName): string | undefined {
  for (const level of levels) if (given[level][name] !== undefined) return given[level][name];
  return undefined;
}

/** Whether a switch is on; `0`, `false`, `no` and `off` turn it off in the environment. */
export function isOn(given: Given, name: SettingName): boolean {
  const value = settingValue(given, name);
  return value !== undefined && !/^(?:0|false|no|off)$/i.test(value);
}

/** The value of a setting that is a number or a duration. */
export function numberValue(given: Given, name: SettingName): number | undefined {
  const text = settingValue(given, name);
  if (text === undefined) return undefined;
  const setting: Setting = settings[name];
  try {
    return setting.kind === "duration" ? durationMs(text) : wholeNumber(0)(text);
  } catch (error) {
    throw new Failure("usage", `${setting.key ?? name} is ${text}. ${messageOf(error)}`);
  }
}
