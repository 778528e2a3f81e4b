// The customers: they create jobs of every type while the example runs.
import { setTimeout as pause } from "node:timers/promises";
import { createManyMax, type JobRef, type NewJob, type Service } from "millrace";
import type { ShopJobs } from "./contract.js";

const tickMs = 100;
const branches = ["north", "south", "east", "west"];

/** When the one long export is begun and cancelled, in ticks. */
const exportTick = 5;
const cancelTick = 25;

/** Creates jobs for some seconds. Ends early when the signal is aborted. */
export class Customers {
  readonly #jobs: Service<ShopJobs>["jobs"];
  readonly #receipts: number;
  readonly #ticks: number;
  #receiptsSent = 0;
  #export: JobRef | null = null;

  constructor(
    service: Service<ShopJobs>,
    wish: { readonly receipts: number; readonly seconds: number },
  ) {
    this.#jobs = service.jobs;
    this.#receipts = wish.receipts;
    this.#ticks = Math.ceil((wish.seconds * 1_000) / tickMs);
  }

  /** Keeps coming until the time is up. */
  async shopUntilDone(signal: AbortSignal): Promise<void> {
    const startedAt = performance.now();
    for (let tick = 1; tick <= this.#ticks && !signal.aborted; tick++) {
      await this.#sendReceipts(Math.round((this.#receipts * tick) / this.#ticks), signal);
      await this.#shop(tick);
      const leftMs = startedAt + tick * tickMs - performance.now();
      if (leftMs > 0) await pause(leftMs, undefined, { signal }).catch(() => {});
    }
  }

  /** Creates receipts in bulk until so many are on their way. */
  async #sendReceipts(target: number, signal: AbortSignal): Promise<void> {
    while (this.#receiptsSent < target && !signal.aborted) {
      const count = Math.min(target - this.#receiptsSent, createManyMax);
      const receipts = Array.from({ length: count }, () => this.#receipt(this.#receiptsSent++));
      await this.#jobs.sendReceipt.createMany(receipts).orThrow();
    }
  }

  #receipt(index: number): NewJob<{ orderId: string; to: string }> {
    const payload = { orderId: `order-${index}`, to: `customer-${index}@shop.example` };
    return index % 25 === 0 ? { payload, priority: 10, tags: ["vip"] } : { payload };
  }

  async #shop(tick: number): Promise<void> {
    const orderId = `order-${tick}`;
    const branch = branches[tick % branches.length] ?? "north";
    await this.#jobs.syncStock.submit({ branch }).orThrow();
    const bankFailures = tick % 4 === 0 ? 2 : tick % 3 === 0 ? 1 : 0;
    await this.#jobs.chargeCard.create({ orderId, cents: 1_999, bankFailures }).orThrow();
    if (tick % 3 === 0) {
      await this.#jobs.renderInvoice.create({ orderId, pages: 4 + (tick % 7) }).orThrow();
    }
    if (tick % 5 === 0) {
      const to = `customer-${tick}@shop.example`;
      await this.#jobs.remindCustomer.create({ to }, { delayMs: 500 + tick * 20 }).orThrow();
    }
    if (tick % 40 === 10) await this.#jobs.callCourier.create({ orderId }).orThrow();
    if (tick % 40 === 15) {
      await this.#jobs.quoteShipping.create({ orderId }, { delayMs: 60_000 }).orThrow();
    }
    await this.#exportAndThinkBetter(tick);
  }

  async #exportAndThinkBetter(tick: number): Promise<void> {
    if (tick === exportTick) {
      this.#export = await this.#jobs.exportCatalogue.create({ products: 200 }).orThrow();
    }
    if (tick === Math.min(cancelTick, this.#ticks))
      await this.#export?.cancel("The catalogue has changed.").orThrow();
  }
}
