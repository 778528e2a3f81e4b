/**
 * The sending of one webhook: it follows the feed from where it was, sends what it tells of, and remembers how far it has
 * come. Events of one job are sent one after the other; those of different jobs do not wait for each other. Whatever was
 * sent and not yet remembered when a process ends is sent again by the next.
 */
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
import { retryDelayMs } from "../core/retry.js";
import type { FeedItem } from "../engine/engine.js";

/** How many requests of one webhook are under way at once. */
const sendingMax = 8;

/** How many events are held beyond the first that could not be delivered yet. They are sent again after a failover. */
const heldMax = 1_000;

/** How long it waits after each failure in a row; the last repeats. */
const backoff = [1_000, 5_000, 30_000, 120_000, 600_000, 1_800_000, 3_600_000] as const;

/** How often one event is tried whose receiver takes others meanwhile. */
const triesMax = 8;

/** After how long without any success a webhook is disabled. */
export const failingMaxMs = 3 * 24 * 60 * 60 * 1_000;

/** How often it is written down how far it has come, at most. */
const rememberMs = 1_000;

/** How long the feed has to be silent before everything from before that is known to be read. */
const silenceMs = 5_000;

/** Events may come into the feed this much later than their own time says. */
const latenessMs = 60_000;

/** How long it waits when the feed or the store fails. */
const faultMs = 1_000;

/** The status of a receiver that wants no more. */
const goneStatus = 410;

/** An event on its way, or one that need not be sent and only moves the place in the feed. */
interface Held {
  cursor: string;
  readonly event: JobEvent;
  state: "waiting" | "sending" | "done";
  tries: number;
  notBefore: number;
  firstFailedAt: number;
}

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
  readonly #held: Held[] = [];
  #cursor: string;
  #readUntil: number;
  #heardAt: number;
  #deliveries: readonly WebhookDelivery[];
  #failingSince: number | undefined;
  #succeededAt = Number.NEGATIVE_INFINITY;
  #failures = 0;
  #notBefore = 0;
  #sending = 0;
  #version: number;
  #isDirty = false;
  #hasRoom = () => {};
  #callOffSend: (() => void) | undefined;
  #callOffRemember: (() => void) | undefined;
  #remembering: Promise<void> = Promise.resolve();
  #work: Promise<unknown> = Promise.resolve();
  readonly #sends = new Set<Promise<void>>();

  constructor(options: WebhookRunnerOptions) {
    const { progress, version, runtime } = options;
    this.#options = options;
    this.#cursor = progress.cursor;
    this.#readUntil = progress.readUntil;
    this.#deliveries = progress.deliveries;
    this.#failingSince = progress.failingSince;
    // Whoever takes over a receiver that fails begins with one request, too.
    this.#failures = progress.failingSince === undefined ? 0 : 1;
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
    const first = this.#held.find(({ state }) => state !== "done");
    if (first !== undefined) return Math.max(this.#readUntil, first.event.at - latenessMs);
    const isSilent = clock.monotonic() - this.#heardAt >= silenceMs;
    return isSilent ? engine.now() - silenceMs - latenessMs : this.#readUntil;
  }

  /** Begins to follow the feed. */
  start(): void {
    this.#work = this.#follow();
  }

  /** Breaks off what is under way and writes down how far it has come. */
  async stop(): Promise<void> {
    this.#stop.abort();
    this.#hasRoom();
    this.#callOffSend?.();
    this.#callOffRemember?.();
    await this.#work;
    await Promise.all(this.#sends);
    await this.#remember();
  }

  async #follow(): Promise<void> {
    const { runtime, webhook } = this.#options;
    const { engine, clock, logger } = runtime;
    const { signal } = this.#stop;
    let place = this.#cursor;
    while (!signal.aborted) {
      try {
        for await (const item of engine.tail(place, signal)) {
          await this.#take(item);
          place = item.cursor;
        }
      } catch (error) {
        if (signal.aborted) return;
        logger.warn({ error, webhook: webhook.id }, "A webhook lost the feed; it is read again.");
      }
      this.#heardAt = clock.monotonic();
      if (!signal.aborted) await this.#pause(faultMs);
    }
  }

  async #take({ cursor, event }: FeedItem): Promise<void> {
    const { runtime, webhook } = this.#options;
    this.#heardAt = runtime.clock.monotonic();
    if (!wants(webhook, runtime.service, event)) {
      const last = this.#held.at(-1);
      // What need not be sent goes with what comes before it.
      if (last === undefined) this.#reached(cursor, event.at);
      else last.cursor = cursor;
      return;
    }
    while (this.#held.length >= heldMax && !this.isOver) {
      await new Promise<void>((resolve) => {
        this.#hasRoom = resolve;
      });
    }
    this.#held.push({
      cursor,
      event,
      state: "waiting",
      tries: 0,
      notBefore: 0,
      firstFailedAt: 0,
    });
    this.#sendSome();
  }

  /** Sends whatever may be sent now, and comes back when the next may. While the receiver fails, one at a time. */
  #sendSome(): void {
    this.#callOffSend?.();
    if (!this.#options.mayGoOn()) this.#stop.abort();
    const { clock } = this.#options.runtime;
    const now = clock.monotonic();
    let comeBackAt = Number.POSITIVE_INFINITY;
    const busy = new Set<string>();
    for (const held of this.#held) {
      const most = this.#failures === 0 ? sendingMax : 1;
      if (this.isOver || this.#sending >= most) return;
      if (held.state === "done") continue;
      const isFirst = !busy.has(held.event.jobId);
      busy.add(held.event.jobId);
      if (!isFirst || held.state === "sending") continue;
      const at = Math.max(held.notBefore, this.#notBefore);
      if (at > now) comeBackAt = Math.min(comeBackAt, at);
      else this.#send(held);
    }
    if (comeBackAt < Number.POSITIVE_INFINITY)
      this.#callOffSend = clock.after(comeBackAt - now, () => this.#sendSome());
  }

  #send(held: Held): void {
    held.state = "sending";
    this.#sending += 1;
    const sending = this.#sendOne(held).finally(() => this.#sends.delete(sending));
    this.#sends.add(sending);
  }

  async #sendOne(held: Held): Promise<void> {
    const { runtime, deliverer, webhook } = this.#options;
    const secrets = signingSecrets(webhook, runtime.engine.now());
    const event = cloudEvent(held.event, webhook);
    const { signal } = this.#stop;
    const answer = await deliverer.deliver({ url: webhook.url, secrets, event, signal });
    this.#sending -= 1;
    if (signal.aborted && !answer.delivered) return;
    held.tries += 1;
    if (answer.delivered) this.#succeeded(held);
    else this.#failed(held);
    this.#note(held, answer);
    if (answer.status === goneStatus) await this.#disable("gone");
    else if (this.#hasFailedForLong()) await this.#disable("failing");
    this.#moveOn();
    this.#sendSome();
  }

  #succeeded(held: Held): void {
    held.state = "done";
    this.#failures = 0;
    this.#notBefore = 0;
    this.#failingSince = undefined;
    this.#succeededAt = this.#options.runtime.clock.monotonic();
  }

  /** An event that fails while others succeed is given up in the end; one that fails like all others waits for better times. */
  #failed(held: Held): void {
    const { clock, engine, ids } = this.#options.runtime;
    const now = clock.monotonic();
    const waitMs = (tries: number) => retryDelayMs(backoff, tries, ids.random());
    if (held.tries === 1) held.firstFailedAt = now;
    const takesOthers = this.#succeededAt >= held.firstFailedAt;
    held.state = held.tries >= triesMax && takesOthers ? "done" : "waiting";
    held.notBefore = now + waitMs(held.tries);
    this.#failures += 1;
    this.#notBefore = now + waitMs(this.#failures);
    this.#failingSince ??= engine.now();
  }

  #hasFailedForLong(): boolean {
    const since = this.#failingSince;
    return since !== undefined && this.#options.runtime.engine.now() - since >= failingMaxMs;
  }

  /** Remembers what became of an event, in place of what was known of it before. */
  #note({ event, tries, state }: Held, answer: DeliveryAnswer): void {
    const { delivered, ...rest } = answer;
    const failed = state === "done" ? "given_up" : "failed";
    const delivery: WebhookDelivery = {
      eventId: event.id,
      jobId: event.jobId,
      event: event.name,
      at: this.#options.runtime.engine.now(),
      tries,
      outcome: delivered ? "delivered" : failed,
      ...rest,
    };
    const others = this.#deliveries.filter(({ eventId }) => eventId !== event.id);
    this.#deliveries = [delivery, ...others].slice(0, deliveriesMax);
    this.#rememberSoon();
  }

  /** Moves the place in the feed up to the first event that is not done with. */
  #moveOn(): void {
    const open = this.#held.findIndex(({ state }) => state !== "done");
    const done = this.#held.splice(0, open === -1 ? this.#held.length : open);
    const last = done.at(-1);
    if (last !== undefined) this.#reached(last.cursor, last.event.at);
    this.#hasRoom();
  }

  #reached(cursor: string, at: number): void {
    this.#cursor = cursor;
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
    const progress = {
      cursor: this.#cursor,
      readUntil: this.readUntil,
      deliveries: this.#deliveries,
      ...(this.#failingSince === undefined ? null : { failingSince: this.#failingSince }),
    };
    try {
      const write = progressWrite(service, webhook.id, progress, this.#version);
      const [outcome] = await engine.swap([write]);
      if (outcome?.swapped) this.#version = outcome.version;
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
    // Who enables it again begins anew.
    this.#failingSince = undefined;
    try {
      const found = await findWebhook(runtime, webhook.id);
      if (found === null || !found.webhook.enabled) return;
      const disabled = { at: engine.now(), reason };
      const next = { ...found.webhook, enabled: false, disabled };
      await engine.swap([webhookWrite(service, next, found.version)]);
      const message = "A webhook was disabled, because its receiver takes nothing any more.";
      logger.error({ webhook: webhook.id, url: webhook.url, reason }, message);
    } catch (error) {
      logger.warn({ error, webhook: webhook.id }, "A webhook could not be disabled.");
    }
  }

  #pause(delayMs: number): Promise<void> {
    return new Promise((resolve) => {
      const { signal } = this.#stop;
      const over = () => {
        callOff();
        signal.removeEventListener("abort", over);
        resolve();
      };
      const callOff = this.#options.runtime.clock.after(delayMs, over);
      signal.addEventListener("abort", over);
    });
  }
}
