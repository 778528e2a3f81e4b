/**
 * The webhooks of a service: who is told of its jobs' events, and what became of the telling. The keeper that leads the
 * service delivers.
 */
import { Result } from "better-result";
import { type CloudEvent, changeNames, cloudEvent, testEvent } from "../../core/cloud-event.js";
import { delayMaxMs } from "../../core/retry.js";
import { StoreBusy, type StoreError } from "../../engine/errors.js";
import { recordId } from "../../engine/record.js";
import { type AsyncResult, attempt, refusal } from "../async-result.js";
import {
  type AuditAction,
  type AuditEvent,
  type AuditedChange,
  leaveAuditEvent,
} from "../audit.js";
import type { Client } from "../client.js";
import { DeliveryNotFound, InvalidOption, WebhookNotFound } from "../errors.js";
import { optionsProblem, rangeProblem, timeMs } from "../option-checks.js";
import { given } from "../reads.js";
import { AddressRules } from "./addresses.js";
import { Deliverer, type DeliveryAnswer } from "./deliverer.js";
import { secretPrefix, type WebhookChange, type WebhookInput, webhookProblem } from "./options.js";
import {
  findProgress,
  findWebhook,
  listWebhooks,
  newWebhook,
  type PlacedWebhook,
  progressWrite,
  type StoredWebhook,
  signingSecrets,
  type WebhookDelivery,
  webhooksMax,
  webhookWrite,
} from "./stored-webhook.js";

/** How often a webhook is written when others write it at the same time. */
const writesMax = 20;

/** How long a secret that was replaced goes on signing, and how many of them may. */
const overlapDefaultMs = 24 * 60 * 60 * 1_000;
const rotateChecks = { overlapMs: (value: unknown) => rangeProblem(value, 0, delayMaxMs) };
const secretsMax = 4;

const idBytes = 10;
const secretBytes = 32;

/** A webhook as it was when it was read; its secrets are told only when they are made. */
export interface Webhook extends Omit<StoredWebhook, "format" | "secrets"> {
  readonly service: string;
  /** Until when requests are signed with the secret before the present one, too. */
  readonly previousSecretUntil?: number;
}

/** A webhook with the secret that was made for it, or given. */
export interface WebhookWithSecret {
  readonly webhook: Webhook;
  readonly secret: string;
}

type Found<Value> = AsyncResult<Value, WebhookNotFound | StoreError>;

/** The webhooks of a service. */
export class Webhooks {
  readonly #client: Client;
  readonly #rules: AddressRules;

  constructor(client: Client) {
    this.#client = client;
    this.#rules = new AddressRules(client.runtime.webhooks?.allowAddresses);
  }

  /**
   * Makes a webhook, which tells of everything from now on. Its secret is told here and never again.
   *
   * @example
   * const { webhook, secret } = await service.webhooks
   *   .create({ url: "https://example.com/hooks", events: ["completed", "failed", "dead"] })
   *   .orThrow();
   */
  create(input: WebhookInput): AsyncResult<WebhookWithSecret, InvalidOption | StoreError> {
    const problem = webhookProblem(input, "create", this.#rules);
    if (problem !== null) return refusal(problem);
    return attempt<WebhookWithSecret, InvalidOption>(async () => {
      const { runtime } = this.#client;
      const { engine, ids, service } = runtime;
      if ((await listWebhooks(runtime)).length >= webhooksMax) return Result.err(tooMany());
      const { secret = freshSecret(ids), events = changeNames, enabled = true, ...rest } = input;
      const now = engine.now();
      const webhook = newWebhook({
        includePayloads: false,
        ...rest,
        events,
        id: ids.randomHex(idBytes),
        secrets: [{ secret }],
        enabled,
        ...(enabled ? null : { disabled: { at: now, reason: "caller" } }),
        createdAt: now,
      });
      const progress = { cursor: await engine.head(), readUntil: now, deliveries: [] };
      await engine.swap([progressWrite(service, webhook.id, progress, 0)]);
      await engine.swap([webhookWrite(service, webhook, 0)]);
      await this.#leave("webhook.create", webhook.id, { events: [...events], enabled });
      return Result.ok({ webhook: this.#view(webhook), secret });
    });
  }

  /** All webhooks. */
  list(): AsyncResult<readonly Webhook[], StoreError> {
    return attempt(async () => {
      const placed = await listWebhooks(this.#client.runtime);
      return Result.ok(placed.map(({ webhook }) => this.#view(webhook)));
    });
  }

  /** One webhook. */
  get(id: string): Found<Webhook> {
    return this.#with(id, async ({ webhook }) => Result.ok(this.#view(webhook)));
  }

  /**
   * Changes a webhook. One that is enabled again goes on from where it was, with as much time for its receiver to take the
   * next event as ever; events of jobs that were removed meanwhile are left out.
   */
  update(
    id: string,
    change: WebhookChange,
  ): AsyncResult<Webhook, InvalidOption | WebhookNotFound | StoreError> {
    const problem = webhookProblem(change, "update", this.#rules);
    if (problem !== null) return refusal(problem);
    const now = this.#client.runtime.engine.now();
    const { types, ...rest } = change;
    return this.#with(id, async ({ webhook: { enabled } }) => {
      // Nobody else writes the progress of a webhook that is not sent.
      if (change.enabled && !enabled) await this.#forgetFailures(id);
      return this.#change(id, auditedUpdate(change), ({ disabled, types: before, ...webhook }) => {
        const wanted = types === undefined ? before : types;
        const next = { ...webhook, ...rest, ...(wanted && { types: wanted }) };
        if (next.enabled) return next;
        return { ...next, disabled: disabled ?? { at: now, reason: "caller" } };
      });
    });
  }

  /** Removes a webhook and what is known of its deliveries. */
  delete(id: string): Found<void> {
    return this.#with(id, async () => {
      const { service } = this.#client.runtime;
      for (const record of [recordId.webhook(service, id), recordId.cursor(service, id)])
        if (!(await this.#remove(record))) return Result.err(this.#busy(id));
      await this.#leave("webhook.delete", id);
      return Result.ok();
    });
  }

  /**
   * Gives a webhook a fresh secret. For the overlap (24 hours by default) requests are signed with the one before, too, so
   * that a receiver may change over at any time within it.
   */
  rotateSecret(
    id: string,
    options: { readonly overlapMs?: number } = {},
  ): AsyncResult<WebhookWithSecret, InvalidOption | WebhookNotFound | StoreError> {
    const problem = optionsProblem("a rotation", options, rotateChecks);
    if (problem !== null) return refusal(problem);
    const { overlapMs = overlapDefaultMs } = options;
    const { ids, engine } = this.#client.runtime;
    const secret = freshSecret(ids);
    const expiresAt = timeMs(engine.now() + overlapMs);
    return attempt<WebhookWithSecret, WebhookNotFound | StoreError>(async () => {
      const audited = { action: "webhook.rotateSecret", details: { overlapMs } } as const;
      const rotated = await this.#change(id, audited, (webhook) => {
        const older = webhook.secrets.map((each) => ({ expiresAt, ...each }));
        const valid = older.filter((each) => each.expiresAt > engine.now());
        return { ...webhook, secrets: [{ secret }, ...valid].slice(0, secretsMax) };
      });
      return rotated.isErr()
        ? Result.err(rotated.error)
        : Result.ok({ webhook: rotated.value, secret });
    });
  }

  /** What became of the last events that were sent, newest first; at most 50. */
  deliveries(id: string): Found<readonly WebhookDelivery[]> {
    return this.#with(id, async () => {
      const found = await findProgress(this.#client.runtime, id);
      return Result.ok(found?.progress.deliveries ?? []);
    });
  }

  /** Sends one of those events again, now and from this process, and gives what the receiver made of it. */
  redeliver(
    id: string,
    eventId: string,
  ): AsyncResult<DeliveryAnswer, DeliveryNotFound | WebhookNotFound | StoreError> {
    return this.#with<DeliveryAnswer, DeliveryNotFound>(id, async ({ webhook }) => {
      const { engine } = this.#client.runtime;
      const found = await findProgress(this.#client.runtime, id);
      const delivery = found?.progress.deliveries.find((each) => each.eventId === eventId);
      if (delivery === undefined) return Result.err(deliveryNotFound(eventId));
      const [loaded] = await engine.load([delivery.jobId], { history: true });
      const event = loaded?.events?.find((each) => each.id === eventId);
      if (event === undefined) return Result.err(deliveryNotFound(eventId));
      const answer = await this.#send(webhook, cloudEvent(event, webhook));
      const { delivered } = answer;
      await this.#leave("webhook.redeliver", id, { eventId, delivered });
      return Result.ok(answer);
    });
  }

  /** Sends an event of type `millrace.webhook.test`, now and from this process, and gives what the receiver made of it. */
  test(id: string): Found<DeliveryAnswer> {
    return this.#with(id, async ({ webhook }) => {
      const { engine, ids, service } = this.#client.runtime;
      const event = testEvent(service, id, ids.eventId(), engine.now());
      const answer = await this.#send(webhook, event);
      await this.#leave("webhook.test", id, { delivered: answer.delivered });
      return Result.ok(answer);
    });
  }

  async #send(webhook: StoredWebhook, event: CloudEvent): Promise<DeliveryAnswer> {
    const { clock, engine, webhooks } = this.#client.runtime;
    const deliverer = new Deliverer({ clock, ...webhooks });
    try {
      const secrets = signingSecrets(webhook, engine.now());
      return await deliverer.deliver({ url: webhook.url, secrets, event });
    } finally {
      deliverer.close();
    }
  }

  async #forgetFailures(id: string): Promise<void> {
    const { runtime } = this.#client;
    const found = await findProgress(runtime, id);
    if (found?.progress.failingSince === undefined) return;
    const { failingSince: _, ...progress } = found.progress;
    await runtime.engine.swap([progressWrite(runtime.service, id, progress, found.version)]);
  }

  #leave(action: AuditAction, target: string, details?: AuditEvent["details"]): Promise<void> {
    return leaveAuditEvent(this.#client.runtime, { action, target, ...(details && { details }) });
  }

  #change(
    id: string,
    audited: Pick<AuditedChange, "action" | "details">,
    change: (webhook: StoredWebhook) => StoredWebhook,
  ): Found<Webhook> {
    return this.#with(id, async (first) => {
      const { engine, service } = this.#client.runtime;
      let found: PlacedWebhook | null = first;
      for (let writes = 0; writes < writesMax && found !== null; writes++) {
        const webhook = change(found.webhook);
        const [outcome] = await engine.swap([webhookWrite(service, webhook, found.version)]);
        if (outcome?.swapped) {
          await leaveAuditEvent(this.#client.runtime, { ...audited, target: id });
          return Result.ok(this.#view(webhook));
        }
        found = await findWebhook(this.#client.runtime, id);
      }
      return found === null ? Result.err(notFound(id)) : Result.err(this.#busy(id));
    });
  }

  async #remove(record: string): Promise<boolean> {
    const { engine } = this.#client.runtime;
    for (let writes = 0; writes < writesMax; writes++) {
      const [found] = await engine.records([record]);
      if (!found) return true;
      const [outcome] = await engine.swap([{ id: record, expect: found.version, body: null }]);
      if (outcome?.swapped) return true;
    }
    return false;
  }

  #with<Value, Failure extends Error = never>(
    id: string,
    use: (found: PlacedWebhook) => Promise<Result<Value, Failure | WebhookNotFound | StoreError>>,
  ): AsyncResult<Value, Failure | WebhookNotFound | StoreError> {
    return attempt<Value, Failure | WebhookNotFound | StoreError>(async () => {
      const found = await findWebhook(this.#client.runtime, id);
      return found === null ? Result.err(notFound(id)) : use(found);
    });
  }

  #view({ format: _format, secrets, ...webhook }: StoredWebhook): Webhook {
    const { service, engine } = this.#client.runtime;
    const until = secrets[1]?.expiresAt ?? 0;
    return {
      service,
      ...webhook,
      ...(until > engine.now() ? { previousSecretUntil: until } : null),
    };
  }

  #busy(id: string): StoreBusy {
    const { url } = this.#client.runtime.engine;
    return new StoreBusy({ url, message: `The webhook ${id} kept changing; try again.` });
  }
}

/** What the audit trail says of an update: which fields it names, and not what they are now, or that it is a switch. */
function auditedUpdate(change: WebhookChange): Pick<AuditedChange, "action" | "details"> {
  const fields = Object.keys(given(change));
  if (change.enabled === undefined || fields.length > 1)
    return { action: "webhook.update", details: { fields } };
  return change.enabled
    ? { action: "webhook.enabled" }
    : { action: "webhook.disabled", details: { reason: "caller" } };
}

function freshSecret(ids: Client["runtime"]["ids"]): string {
  return secretPrefix + Buffer.from(ids.randomHex(secretBytes), "hex").toString("base64");
}

function tooMany(): InvalidOption {
  const message = `A service has at most ${webhooksMax} webhooks; delete one that nobody needs.`;
  return new InvalidOption({ field: "url", message });
}

function notFound(id: string): WebhookNotFound {
  return new WebhookNotFound({ id, message: `There is no webhook ${id}.` });
}

function deliveryNotFound(eventId: string): DeliveryNotFound {
  const message = `The event ${eventId} is not among the last deliveries of the webhook, or its job was removed.`;
  return new DeliveryNotFound({ eventId, message });
}
