// Sends a webhook to each URL that it is given, whose names all lead to this machine, and prints what came of it:
// `tls-child.ts URL…`. A process of its own, because Node reads the authorities that it trusts when it starts.
import { Deliverer } from "#millrace/client/webhooks/deliverer.js";
import { testEvent } from "#millrace/core/cloud-event.js";
import { systemClock } from "#millrace/engine/clock.js";

const deliverer = new Deliverer({
  clock: systemClock,
  allowAddresses: ["127.0.0.0/8"],
  lookup: (_host, _options, callback) => callback(null, [{ address: "127.0.0.1", family: 4 }]),
});
const secrets = [`whsec_${Buffer.alloc(32, 1).toString("base64")}`];
for (const url of process.argv.slice(2)) {
  const event = testEvent("shop", "w-1", "e-1", systemClock.now());
  const { delivered, error } = await deliverer.deliver({ url, secrets, event });
  console.log(delivered ? "delivered" : error);
}
deliverer.close();
