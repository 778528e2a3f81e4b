/**
 * The options of a webhook, and the checks that refuse one that cannot be used.
 */
import { eventNames } from "../../core/cloud-event.js";
import type { EventName } from "../../core/event.js";
import { nameProblem } from "../../core/names.js";
import type { InvalidOption } from "../errors.js";
import {
  isObject,
  type OptionCheck,
  type OptionChecks,
  optionsProblem,
  stringProblem,
  yesOrNoProblem,
} from "../option-checks.js";
import type { AddressRules } from "./addresses.js";

/** What a webhook is made of. */
export interface WebhookInput {
  /** Where events are sent, by `https:` or `http:`. */
  readonly url: string;
  readonly description?: string;
  /** The job types that it tells of; all of them by default. */
  readonly types?: readonly string[];
  /** The events that it tells of; by default all that change a job, which progress, logs and heartbeats do not. */
  readonly events?: readonly EventName[];
  /** Whether payloads, results, emitted data and log lines are sent, too; false by default. */
  readonly includePayloads?: boolean;
  /** Whether it is sent; true by default. */
  readonly enabled?: boolean;
  /** What signs the requests: `whsec_` and 24 to 64 bytes in base64; a fresh one by default. */
  readonly secret?: string;
}

/** What can be changed of a webhook. */
export interface WebhookChange extends Partial<Omit<WebhookInput, "secret" | "types">> {
  /** The job types that it tells of from now on; `null` for all of them. */
  readonly types?: readonly string[] | null;
}

const urlLengthMax = 2_000;
const descriptionLengthMax = 500;
const typesMax = 100;
const secretBytesMin = 24;
const secretBytesMax = 64;

/** How secrets begin, as Standard Webhooks has it. */
export const secretPrefix = "whsec_";

const webhookChecks: { readonly [Name in keyof WebhookInput]-?: OptionCheck } = {
  url: urlProblem,
  description: (value) =>
    typeof value === "string" && value.length > descriptionLengthMax
      ? `It is longer than ${descriptionLengthMax} characters.`
      : stringProblem(value),
  types: typesProblem,
  events: eventsProblem,
  includePayloads: yesOrNoProblem,
  enabled: yesOrNoProblem,
  secret: secretProblem,
};

const { secret: _secret, ...sharedChecks } = webhookChecks;

const changeChecks: { readonly [Name in keyof WebhookChange]-?: OptionCheck } = {
  ...sharedChecks,
  types: (types) => (types === null ? null : typesProblem(types)),
};

/** The names of all options of a webhook. */
export const webhookFields: readonly string[] = Object.keys(webhookChecks);

/** What is wrong with a new webhook, or with a change of one, or `null` when nothing is. */
export function webhookProblem(
  options: WebhookInput | WebhookChange,
  call: "create" | "update",
  rules: AddressRules,
): InvalidOption | null {
  const checks: OptionChecks = call === "create" ? webhookChecks : changeChecks;
  const given = call === "create" && isObject(options) ? { url: null, ...options } : options;
  return optionsProblem(`webhooks.${call}`, given, {
    ...checks,
    url: (url) =>
      urlProblem(url) ?? rules.hostProblem(new URL(String(url)).hostname)?.message ?? null,
  });
}

function urlProblem(value: unknown): string | null {
  const remedy = 'give the receiver\'s own address, such as "https://example.com/hooks".';
  if (typeof value !== "string" || value.length > urlLengthMax || !URL.canParse(value))
    return `It is not a URL of at most ${urlLengthMax} characters; ${remedy}`;
  const { protocol, username, password } = new URL(value);
  if (protocol !== "https:" && protocol !== "http:") return `It is not https: or http:; ${remedy}`;
  return username === "" && password === ""
    ? null
    : "It holds a user name or a password; requests are signed, so leave them out.";
}

function typesProblem(types: unknown): string | null {
  if (!Array.isArray(types) || types.length === 0 || types.length > typesMax)
    return `It must be a list of 1 to ${typesMax} job types; leave it out for all of them.`;
  for (const type of types) {
    const problem = nameProblem("type", type);
    if (problem !== null) return problem;
  }
  return null;
}

function eventsProblem(events: unknown): string | null {
  const known: readonly unknown[] = eventNames;
  const good =
    Array.isArray(events) && events.length > 0 && events.every((name) => known.includes(name));
  return good ? null : `It must be a list of events; use some of ${known.join(", ")}.`;
}

function secretProblem(secret: unknown): string | null {
  const text = typeof secret === "string" ? secret : "";
  const [, base64 = ""] = /^whsec_([A-Za-z0-9+/]+={0,2})$/.exec(text) ?? [];
  const bytes = Buffer.from(base64, "base64").length;
  return bytes >= secretBytesMin && bytes <= secretBytesMax
    ? null
    : `It must be "${secretPrefix}" and ${secretBytesMin} to ${secretBytesMax} bytes in base64; leave it out for a fresh one.`;
}
