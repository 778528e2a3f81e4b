// A place for tests of webhooks: a store in memory, a clock that the test moves, and real receivers.

import { onTestFinished } from "vitest";
import { z } from "zod";
import { createClient } from "#millrace/client/client.js";
import type { WebhookInput } from "#millrace/client/webhooks/options.js";
import { Webhooks } from "#millrace/client/webhooks/webhooks.js";
import { defineJob, defineService } from "#millrace/contract/define.js";
import { createKeeper, type Keeper, type KeeperTimings } from "#millrace/keeper/keeper.js";
import { Workshop } from "../worker/workshop.js";
import { Receiver } from "./receiver.js";

const contract = defineService("shop", {
  mail: defineJob({ payload: z.object({}), concurrency: 100 }),
  sms: defineJob({ payload: z.object({}) }),
  ping: defineJob({ payload: z.object({}), retention: { completed: 0 } }),
});

/** A keeper that looks around rarely, so that a long time costs a test little. */
export const patient: KeeperTimings = { ttlMs: 36e5, renewMs: 18e5, tickMs: 6e5, pruneMs: 36e5 };

/** How far the clock is moved at a time while something real is waited for. */
const stepMs = 100;

export class Shop {
  readonly workshop = new Workshop(contract);
  readonly webhooks: Webhooks;
  readonly #settings = { webhooks: { allowAddresses: ["127.0.0.0/8"] } };

  constructor() {
    const runtime = { ...this.workshop.runtime("api"), ...this.#settings };
    this.webhooks = new Webhooks(createClient(runtime, contract));
  }

  get clock() {
    return this.workshop.clock;
  }

  /** A keeper that leads, and is stopped with the test. */
  async keeper(instance = "k1", timings: KeeperTimings = {}): Promise<Keeper> {
    const runtime = { ...this.workshop.runtime(instance), ...this.#settings };
    const keeper = createKeeper({ runtime, contract, ...timings });
    onTestFinished(() => keeper.stop());
    await keeper.start();
    await this.clock.advance(0);
    return keeper;
  }

  /** A webhook to a receiver. Give another receiver, or make one here. */
  async subscribe(input: Partial<WebhookInput> = {}, to?: Receiver) {
    const receiver = to ?? (await Receiver.open());
    const made = await this.webhooks.create({ url: receiver.url, ...input }).orThrow();
    return { receiver, id: made.webhook.id, secret: made.secret };
  }

  /** Lets time pass, a little at a time, until something that needs the real world has come about. */
  async until<Value>(happened: Promise<Value>): Promise<Value> {
    let waits = true;
    const over = happened.finally(() => {
      waits = false;
    });
    while (waits) {
      await this.clock.advance(stepMs);
      await new Promise(setImmediate);
    }
    return over;
  }

  /** Lets real messages arrive while time stands still. */
  async settle(): Promise<void> {
    for (let turn = 0; turn < 100; turn++) await this.clock.advance(0);
  }
}
