/**
 * The webhooks of a service, while this process leads it: one runner for each, so that a receiver that is slow or broken
 * holds up no other. The log is not forgotten before every one of them has read it.
 */
import type { Runtime } from "../client/runtime.js";
import { Deliverer } from "../client/webhooks/deliverer.js";
import {
  findProgress,
  listWebhooks,
  type PlacedWebhook,
  type StoredWebhook,
} from "../client/webhooks/stored-webhook.js";
import { WebhookRunner } from "./webhook-runner.js";

/** How many times as long it waits between looks while there are no webhooks at all, because most services have none. */
const idleShare = 10;

/** A runner, and the version of the webhook that it was made for. */
interface Running {
  readonly runner: WebhookRunner;
  readonly version: number;
}

/** Runs the webhooks of a service. */
export class WebhookDuty {
  readonly #runtime: Runtime;
  readonly #mayGoOn: () => boolean;
  readonly #running = new Map<string, Running>();
  readonly #idleMs: number;
  #deliverer: Deliverer | null = null;
  #isStopped = false;
  /** When there were no webhooks, on the store's clock and on the monotonic one. */
  #idle: { readonly at: number; readonly until: number } | null = null;

  /** It is called every `lookMs`. */
  constructor(runtime: Runtime, lookMs: number, mayGoOn: () => boolean) {
    this.#runtime = runtime;
    this.#idleMs = lookMs * idleShare;
    this.#mayGoOn = mayGoOn;
  }

  /**
   * Looks which webhooks there are, and runs them while this process leads. Gives the time from before which every event
   * has been read that anybody is to read, so that nothing later may be forgotten. Where there were no webhooks that time
   * may be a while ago, unless it is asked for exactly.
   */
  async tend(isExact: boolean): Promise<number> {
    const { engine, clock } = this.#runtime;
    // A webhook tells of nothing that was before it.
    if (!isExact && this.#idle !== null && clock.monotonic() < this.#idle.until)
      return this.#idle.at;
    const now = engine.now();
    const placed = await listWebhooks(this.#runtime);
    this.#idle = placed.length > 0 ? null : { at: now, until: clock.monotonic() + this.#idleMs };
    const enabled = placed.filter(({ webhook }) => webhook.enabled);
    await this.#stopOthers(enabled);
    let readUntil = now;
    for (const each of enabled) {
      readUntil = Math.min(readUntil, await this.#readUntil(each));
    }
    return readUntil;
  }

  /** Stops all of them. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#stopOthers([]);
    this.#deliverer?.close();
  }

  async #readUntil(placed: PlacedWebhook): Promise<number> {
    const { webhook, version } = placed;
    const running = this.#running.get(webhook.id);
    if (running !== undefined) {
      running.runner.tellSilence();
      return running.runner.readUntil;
    }
    const found = await findProgress(this.#runtime, webhook.id);
    // It was removed just now.
    if (found === null) return Number.POSITIVE_INFINITY;
    if (!this.#isStopped && this.#mayGoOn()) this.#run(webhook, version, found);
    return found.progress.readUntil;
  }

  #run(
    webhook: StoredWebhook,
    version: number,
    found: NonNullable<Awaited<ReturnType<typeof findProgress>>>,
  ): void {
    const { clock, webhooks } = this.#runtime;
    this.#deliverer ??= new Deliverer({ clock, ...webhooks });
    const runner = new WebhookRunner({
      runtime: this.#runtime,
      deliverer: this.#deliverer,
      webhook,
      progress: found.progress,
      version: found.version,
      mayGoOn: this.#mayGoOn,
    });
    this.#running.set(webhook.id, { runner, version });
    runner.start();
  }

  /** Stops those that are not to run any more, that have changed, or that have stopped by themselves. */
  async #stopOthers(enabled: readonly PlacedWebhook[]): Promise<void> {
    const versions = new Map(enabled.map(({ webhook, version }) => [webhook.id, version]));
    const leads = this.#mayGoOn();
    const stopping = [...this.#running].map(async ([id, { runner, version }]) => {
      if (leads && !runner.isOver && versions.get(id) === version) return;
      this.#running.delete(id);
      await runner.stop();
    });
    await Promise.all(stopping);
  }
}
