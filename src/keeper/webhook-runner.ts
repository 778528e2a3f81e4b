/**
 * The sending of one webhook: it follows the feed from where it was, sends what it tells of, and remembers how far it has
 * come. Events of one job are sent one after the other; those of different jobs do not wait for each other. Whatever was
 * sent and not yet remembered when a process ends is sent again by the next.
 */
import { leaveAuditEvent } from "../client/audit.js";
import type { Runtime } from "../client/runtime.js";
import type { Deliverer, DeliveryAnswer } from "../client/webhooks/deliverer.js";
import {
  type DisabledReason,
  deliveriesMax,
  findWebhook,
  progressWrite,
  type StoredWebhook,
  signingSecrets,
  type WebhookDelivery,
  type WebhookProgress,
  wants,
  webhookWrite,
} from "../client/webhooks/stored-webhook.js";
import { cloudEvent } from "../core/cloud-event.js";
import type { JobEvent } from "../core/event.js";
import type { FeedItem } from "../engine/engine.js";
import { InvalidCursor } from "../engine/errors.js";
import { followFeed } from "./follow-feed.js";
import { type HeldEvent, WebhookLine } from "./webhook-line.js";

/** How long one event may fail before its webhook is disabled. */
export const failingMaxMs = 3 * 24 * 60 * 60 * 1_000;

/** How often it is written down how far it has come, at most. */
const rememberMs = 1_000;

/** How often it is written down how far it has come in silence. */
const silentRememberMs = 60_000;

/** How long the feed has to be silent before everything from before that is known to be read. */
const silenceMs = 5_000;

/** Events may come into the feed this much later than their own time says. */
const latenessMs = 60_000;

/** The status of a receiver that wants no more. */
const goneStatus = 410;

/** What a runner is made of. */
export interface WebhookRunnerOptions {
  readonly runtime: Runtime;
  readonly deliverer: Deliverer;
  readonly webhook: StoredWebhook;
  readonly progress: WebhookProgress;
  /** The version of the record of its progress. */
  readonly version: number;
  readonly mayGoOn: () => boolean;
}

/** Sends one webhook, until it is stopped or disabled, or another process leads. */
export class WebhookRunner {
  readonly #options: WebhookRunnerOptions;
  readonly #stop = new AbortController();
  readonly #line: WebhookLine;
  #readUntil: number;
  #heardAt: number;
  #deliveries: readonly WebhookDelivery[];
  #version: number;
  #isHeldUp = false;
  #isDirty = false;
  /** Up to when it was written down to have read. */
  #storedUntil: number;
  #hasRoom = () => {};
  #callOffSend: (() => void) | undefined;
  #callOffRemember: (() => void) | undefined;
  #remembering: Promise<void> = Promise.resolve();
  #following: Promise<void> = Promise.resolve();
  readonly #sends = new Set<Promise<void>>();

  constructor(options: WebhookRunnerOptions) {
    const { progress, version, runtime } = options;
    this.#options = options;
    this.#line = new WebhookLine(progress.cursor, progress.failingSince);
    this.#readUntil = progress.readUntil;
    this.#storedUntil = progress.readUntil;
    this.#deliveries = progress.deliveries;
    this.#version = version;
    this.#heardAt = runtime.clock.monotonic();
  }

  /** Whether it was stopped, or has stopped by itself, because another process leads or the webhook was disabled. */
  get isOver(): boolean {
    return this.#stop.signal.aborted;
  }

  /** No event from before this time is still to be read. */
  get readUntil(): number {
    const { clock, engine } = this.#options.runtime;
    const { first } = this.#line;
    if (first !== undefined) return Math.max(this.#readUntil, first.at - latenessMs);
    const isSilent = clock.monotonic() - this.#heardAt >= silenceMs;
    return isSilent ? engine.now() - silenceMs - latenessMs : this.#readUntil;
  }

  /** Writes down how far it has come in silence, for those who only know its record and forget nothing that is not read. */
  tellSilence(): void {
    if (this.readUntil >= this.#storedUntil + silentRememberMs) this.#rememberSoon();
  }

  /** Begins to follow the feed. */
  start(): void {
    this.#following = followFeed({
      runtime: this.#options.runtime,
      signal: this.#stop.signal,
      from: async () => this.#line.cursor,
      take: (item) => this.#take(item),
      onFault: (error) => this.#lost(error),
    });
  }

  /** Breaks off what is under way and writes down how far it has come. */
  async stop(): Promise<void> {
    this.#stop.abort();
    this.#hasRoom();
    this.#callOffSend?.();
    this.#callOffRemember?.();
    await this.#following;
    await Promise.all(this.#sends);
    await this.#remember();
  }

  /** While the feed cannot be read, its silence says nothing. */
  #lost(error: unknown): void {
    const { runtime, webhook } = this.#options;
    this.#heardAt = runtime.clock.monotonic();
    const message = "A webhook lost the feed; it is read again.";
    runtime.logger.warn({ error, webhook: webhook.id }, message);
    // A store that was restored elsewhere has the place in its record: whoever leads begins there.
    if (InvalidCursor.is(error)) this.#stop.abort();
  }

  async #take(item: FeedItem): Promise<void> {
    const { runtime, webhook } = this.#options;
    this.#heardAt = runtime.clock.monotonic();
    if (!wants(webhook, runtime.service, item.event)) {
      this.#line.pass(item.cursor);
      if (this.#line.first === undefined) this.#reached(item.event);
      return;
    }
    while (this.#line.isFull && !this.isOver) {
      this.#tellHeldUp();
      await new Promise<void>((resolve) => {
        this.#hasRoom = resolve;
      });
    }
    this.#line.take(item);
    this.#sendSome();
  }

  /** Later events wait for one that its receiver does not take, which somebody should know. */
  #tellHeldUp(): void {
    const { runtime, webhook } = this.#options;
    const { first } = this.#line;
    if (this.#isHeldUp || this.#line.failingSince === undefined || first === undefined) return;
    this.#isHeldUp = true;
    const fields = { webhook: webhook.id, eventId: first.id, jobId: first.jobId };
    runtime.logger.warn(
      fields,
      "A webhook is held up by an event that its receiver does not take.",
    );
  }

  /** Sends whatever may be sent now, and comes back when the next may. */
  #sendSome(): void {
    this.#callOffSend?.();
    if (!this.#options.mayGoOn()) this.#stop.abort();
    if (this.isOver) return;
    const { clock } = this.#options.runtime;
    const now = clock.monotonic();
    const { events, comeBackAt } = this.#line.sendable(now);
    for (const held of events) {
      const sending = this.#send(held).finally(() => this.#sends.delete(sending));
      this.#sends.add(sending);
    }
    if (comeBackAt !== null)
      this.#callOffSend = clock.after(comeBackAt - now, () => this.#sendSome());
  }

  async #send(held: HeldEvent): Promise<void> {
    const { runtime, deliverer, webhook } = this.#options;
    const { clock, engine, ids } = runtime;
    const { signal } = this.#stop;
    const secrets = signingSecrets(webhook, engine.now());
    const event = cloudEvent(held.event, webhook);
    const answer = await deliverer.deliver({ url: webhook.url, secrets, event, signal });
    if (signal.aborted && !answer.delivered) return;
    if (answer.delivered) this.#line.succeeded(held);
    else this.#line.failed(held, clock.monotonic(), engine.now(), ids.random());
    this.#note(held, answer);
    if (answer.status === goneStatus) await this.#disable("gone");
    else if (this.#hasFailedForLong()) await this.#disable("failing");
    this.#reached(held.event);
    this.#hasRoom();
    this.#sendSome();
  }

  #hasFailedForLong(): boolean {
    const since = this.#line.failingSince;
    return since !== undefined && this.#options.runtime.engine.now() - since >= failingMaxMs;
  }

  /** Remembers what became of an event, in place of what was known of it before. */
  #note({ event, tries }: HeldEvent, answer: DeliveryAnswer): void {
    const { delivered, ...rest } = answer;
    const delivery: WebhookDelivery = {
      eventId: event.id,
      jobId: event.jobId,
      event: event.name,
      at: this.#options.runtime.engine.now(),
      tries,
      outcome: delivered ? "delivered" : "failed",
      ...rest,
    };
    const others = this.#deliveries.filter(({ eventId }) => eventId !== event.id);
    this.#deliveries = [delivery, ...others].slice(0, deliveriesMax);
    this.#rememberSoon();
  }

  /** Everything up to an event is read, unless one before it is not done with. */
  #reached({ at }: JobEvent): void {
    if (this.#line.first === undefined)
      this.#readUntil = Math.max(this.#readUntil, at - latenessMs);
    this.#rememberSoon();
  }

  #rememberSoon(): void {
    this.#isDirty = true;
    if (this.isOver || this.#callOffRemember !== undefined) return;
    this.#callOffRemember = this.#options.runtime.clock.after(rememberMs, () => {
      this.#callOffRemember = undefined;
      void this.#remember();
    });
  }

  #remember(): Promise<void> {
    this.#remembering = this.#remembering.then(() => this.#write());
    return this.#remembering;
  }

  async #write(): Promise<void> {
    if (!this.#isDirty) return;
    const { runtime, webhook } = this.#options;
    const { engine, service, logger } = runtime;
    this.#isDirty = false;
    const { cursor, failingSince } = this.#line;
    const progress = {
      cursor,
      readUntil: this.readUntil,
      deliveries: this.#deliveries,
      ...(failingSince === undefined ? null : { failingSince }),
    };
    try {
      const write = progressWrite(service, webhook.id, progress, this.#version);
      const [outcome] = await engine.swap([write]);
      if (outcome?.swapped) {
        this.#version = outcome.version;
        this.#storedUntil = progress.readUntil;
      }
      // Another process sends it, too, or it was removed: whoever leads looks again.
      else this.#stop.abort();
    } catch (error) {
      logger.warn({ error, webhook: webhook.id }, "A webhook could not be written down.");
      this.#rememberSoon();
    }
  }

  async #disable(reason: DisabledReason): Promise<void> {
    const { runtime, webhook } = this.#options;
    const { engine, service, logger } = runtime;
    this.#stop.abort();
    try {
      const found = await findWebhook(runtime, webhook.id);
      if (found === null || !found.webhook.enabled) return;
      const disabled = { at: engine.now(), reason };
      const next = { ...found.webhook, enabled: false, disabled };
      const [outcome] = await engine.swap([webhookWrite(service, next, found.version)]);
      // Somebody has changed it meanwhile: whoever sends it next finds out anew.
      if (!outcome?.swapped) return;
      const message = "A webhook was disabled, because its receiver does not take what it is sent.";
      logger.error({ webhook: webhook.id, url: webhook.url, reason }, message);
      const keeper = { ...runtime, actor: `keeper:${runtime.instance}` } as const;
      const change = {
        action: "webhook.disabled",
        target: webhook.id,
        details: { reason },
      } as const;
      await leaveAuditEvent(keeper, change);
    } catch (error) {
      logger.warn({ error, webhook: webhook.id }, "A webhook could not be disabled.");
    }
  }
}
