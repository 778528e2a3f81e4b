/**
 * `millrace webhook`: who is told of the events of a service's jobs.
 */
import type { Command } from "commander";
import { ask, path } from "../api.js";
import { define, group, option, type Run } from "../define.js";
import { Failure } from "../failure.js";
import type { Session } from "../session.js";
import type { Column } from "../table.js";
import { durationMs, list } from "../values.js";
import { ago } from "../words.js";

interface WebhookAnswer {
  readonly id: string;
  readonly url: string;
  readonly types?: readonly string[];
  readonly events: readonly string[];
  readonly enabled: boolean;
  readonly disabled?: { readonly at: string; readonly reason: string };
  readonly createdAt: string;
}

interface WithSecret {
  readonly webhook: WebhookAnswer;
  readonly secret: string;
}

interface DeliveryAnswer {
  readonly eventId: string;
  readonly jobId: string;
  readonly event: string;
  readonly at: string;
  readonly tries: number;
  readonly outcome: string;
  readonly status?: number;
  readonly error?: string;
}

const columns: readonly Column<WebhookAnswer>[] = [
  { title: "id", value: ({ id }) => id },
  { title: "url", value: ({ url }) => url, cuts: true },
  { title: "types", value: ({ types }) => types?.join(", ") ?? "all", cuts: true },
  {
    title: "state",
    value: ({ enabled, disabled }) => (enabled ? "on" : `off (${disabled?.reason ?? "caller"})`),
    paint: (text, { enabled }, colors) => (enabled ? text : colors.yellow(text)),
  },
  { title: "created", value: ({ createdAt }) => ago(createdAt) },
];

const deliveryColumns: readonly Column<DeliveryAnswer>[] = [
  { title: "event", value: ({ eventId }) => eventId },
  { title: "job", value: ({ jobId }) => jobId },
  { title: "name", value: ({ event }) => event },
  { title: "when", value: ({ at }) => ago(at) },
  { title: "tries", value: ({ tries }) => tries },
  { title: "outcome", value: ({ outcome }) => outcome },
  { title: "answer", value: ({ status, error }) => error ?? status, cuts: true },
];

interface HookOptions {
  readonly type?: readonly string[];
  readonly event?: readonly string[];
  readonly description?: string;
  readonly includePayloads?: boolean;
}

interface SetOptions extends HookOptions {
  readonly url?: string;
  readonly enable?: boolean;
  readonly disable?: boolean;
  readonly allTypes?: boolean;
}

const hookOptions = () => [
  option("--type <types>", "only of these job types (repeatable)", list),
  option("--event <names>", "only these events (repeatable)", list),
  option("--description <text>", "what it is for"),
  option("--include-payloads", "send payloads and results, too"),
];

/** Adds the commands. */
export function addWebhook(program: Command, run: Run): void {
  const webhook = group(program, "webhook", "webhooks: create, list, test, deliveries");
  define<HookOptions>(webhook, run, {
    words: "create <service> <url>",
    says: "tell a receiver of events; the secret that signs them is printed once and never again",
    examples: ["millrace webhook create shop https://example.com/hooks --event completed,dead"],
    options: hookOptions(),
    run: async (session, { args: [service = "", url = ""], options }) => {
      const body = { service, url, ...bodyOf(options) };
      const api = await session.api();
      printSecret(session, await ask<WithSecret>(api, "POST", "/v1/webhooks", { body }));
    },
  });
  define(webhook, run, {
    words: "list <service>",
    says: "list the webhooks of a service",
    examples: ["millrace webhook list shop"],
    run: async (session, { args: [service = ""] }) => {
      const route = path`/v1/webhooks/${service}`;
      const api = await session.api();
      session.output.list(await ask<{ entries: WebhookAnswer[] }>(api, "GET", route), columns);
    },
  });
  define(webhook, run, {
    words: "get <service> <id>",
    says: "show a webhook",
    examples: ["millrace webhook get shop 5f0c…"],
    run: (session, { args }) => request(session, "GET", args),
  });
  defineChanges(webhook, run);
  defineDeliveries(webhook, run);
}

function defineChanges(webhook: Command, run: Run): void {
  define<SetOptions>(webhook, run, {
    words: "set <service> <id>",
    says: "change a webhook, or switch it on and off",
    examples: [
      "millrace webhook set shop 5f0c… --enable",
      "millrace webhook set shop 5f0c… --all-types",
    ],
    options: [
      option("--url <url>", "another receiver"),
      option("--enable", "send again, from where it was"),
      option("--disable", "send no more"),
      option("--all-types", "of all job types again"),
      ...hookOptions(),
    ],
    run: async (session, { args, options }) => {
      const { url, enable, disable, allTypes } = options;
      if (enable && disable)
        throw new Failure("usage", "--enable and --disable exclude each other.");
      if (allTypes && options.type)
        throw new Failure("usage", "--all-types and --type exclude each other.");
      const enabled = enable ? true : disable ? false : undefined;
      const all = allTypes ? { types: null } : null;
      await request(session, "PATCH", args, { url, enabled, ...bodyOf(options), ...all });
    },
  });
  define<{ overlap?: number }>(webhook, run, {
    words: "rotate-secret <service> <id>",
    says: "make a fresh secret; the one before signs, too, for the overlap",
    examples: ["millrace webhook rotate-secret shop 5f0c… --overlap 1h"],
    options: [option("--overlap <duration>", "how long both sign (default 24h)", durationMs)],
    run: async (session, { args, options: { overlap: overlapMs } }) => {
      const route = `${routeOf(args)}/rotate-secret`;
      const api = await session.api();
      printSecret(session, await ask<WithSecret>(api, "POST", route, { body: { overlapMs } }));
    },
  });
  define(webhook, run, {
    words: "delete <service> <id>",
    says: "remove a webhook",
    examples: ["millrace webhook delete shop 5f0c… --yes"],
    destroys: true,
    run: async (session, { args }) => {
      await session.confirm(`Remove the webhook ${args[1] ?? ""}?`);
      await ask(await session.api(), "DELETE", routeOf(args));
      session.output.document({ deleted: args[1] }, () => `${args[1] ?? ""} deleted`);
    },
  });
}

function defineDeliveries(webhook: Command, run: Run): void {
  define(webhook, run, {
    words: "deliveries <service> <id>",
    says: "show what became of the last events that were sent",
    examples: ["millrace webhook deliveries shop 5f0c…"],
    run: async (session, { args }) => {
      const route = `${routeOf(args)}/deliveries`;
      const api = await session.api();
      const answer = await ask<{ entries: DeliveryAnswer[] }>(api, "GET", route);
      session.output.list(answer, deliveryColumns);
    },
  });
  define(webhook, run, {
    words: "redeliver <service> <id> <event>",
    says: "send one of those events again, now",
    examples: ["millrace webhook redeliver shop 5f0c… 01HZX…"],
    run: (session, { args }) =>
      deliver(session, `${routeOf(args)}${path`/deliveries/${args[2] ?? ""}/redeliver`}`),
  });
  define(webhook, run, {
    words: "test <service> <id>",
    says: "send a test event, now",
    examples: ["millrace webhook test shop 5f0c…"],
    run: (session, { args }) => deliver(session, `${routeOf(args)}/test`),
  });
}

/** Sends an event and says what the receiver made of it; that it refused is a failure. */
async function deliver(session: Session, route: string): Promise<void> {
  const answer = await ask<{ delivered: boolean; status?: number; error?: string }>(
    await session.api(),
    "POST",
    route,
    { body: {}, signal: session.signal },
  );
  const { delivered, status, error } = answer;
  const words = delivered ? `delivered (${status ?? ""})` : `not delivered: ${error ?? status}`;
  session.output.document(answer, () => words);
  if (!delivered) throw new Failure("failure", "The receiver did not take the event.");
}

function bodyOf({ type: types, event: events, description, includePayloads }: HookOptions): object {
  return { types, events, description, includePayloads };
}

async function request(
  session: Session,
  method: string,
  args: readonly string[],
  body?: object,
): Promise<void> {
  const options = body === undefined ? {} : { body };
  print(session, await ask<WebhookAnswer>(await session.api(), method, routeOf(args), options));
}

function print({ output }: Session, webhook: WebhookAnswer): void {
  output.document(webhook, () => output.table([webhook], columns));
}

function printSecret({ output }: Session, made: WithSecret): void {
  output.document(made, () => made.secret);
  if (output.format === "text")
    output.note(`Webhook ${made.webhook.id}. Keep the secret; it is not shown again.`);
}

function routeOf([service = "", id = ""]: readonly string[]): string {
  return path`/v1/webhooks/${service}/${id}`;
}
