// What the shop does with its jobs. Nothing real happens: every handler only takes its time.
import { setTimeout as pause } from "node:timers/promises";
import type { Handlers } from "millrace";
import type { ShopJobs } from "./contract.js";

const pageMs = 150;
const productMs = 20;

/** The handlers of the shop. Each hands its signal on, so that it stops when it is told to. */
export const handlers: Handlers<ShopJobs> = {
  sendReceipt: async ({ payload, signal }) => {
    await pause(2, undefined, { signal });
    return { messageId: `message-${payload.orderId}` };
  },

  renderInvoice: async ({ payload, progress, signal }) => {
    for (let page = 1; page <= payload.pages; page++) {
      await progress({ step: `page ${page}`, current: page - 1, total: payload.pages });
      await pause(pageMs, undefined, { signal });
    }
    return { file: `${payload.orderId}.pdf` };
  },

  chargeCard: async ({ payload, tries, signal, log }) => {
    await pause(60, undefined, { signal });
    if (tries <= payload.bankFailures) throw new Error("The bank did not answer.");
    await log(`Charged ${payload.cents} cents.`);
    return { transactionId: `transaction-${payload.orderId}` };
  },

  syncStock: async ({ progress, signal }) => {
    for (let shelf = 1; shelf <= 4; shelf++) {
      await progress({ step: `shelf ${shelf}`, current: shelf - 1, total: 4 });
      await pause(120, undefined, { signal });
    }
  },

  remindCustomer: async ({ signal }) => {
    await pause(5, undefined, { signal });
  },

  callCourier: async ({ signal }) => {
    await pause(40, undefined, { signal });
    throw new Error("The courier's line is dead.");
  },

  exportCatalogue: async ({ payload, progress, signal }) => {
    for (let product = 0; product < payload.products; product++) {
      if (product % 10 === 0) await progress({ current: product, total: payload.products });
      await pause(productMs, undefined, { signal });
    }
  },

  quoteShipping: async ({ signal }) => {
    await pause(5, undefined, { signal });
  },
};
