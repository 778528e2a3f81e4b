// Webhooks: a receiver is told how jobs end, checks the signature, and is told again until it says that it has understood.
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type CloudEvent, connect, defineJob, defineService } from "millrace";
import { Webhook } from "standardwebhooks";
import { z } from "zod";

const shop = defineService("shop", {
  charge: defineJob({ payload: z.object({ orderId: z.string() }) }),
});

// This receiver is on this machine, which has to be allowed.
const webhooks = { allowAddresses: ["127.0.0.0/8"] };
const service = await connect(shop, { url: "memory:", webhooks, keeper: { tickMs: 50 } });
service.jobs.charge.handle(() => ({ paid: true }));

let secret = "";
let requests = 0;
let onUnderstood = () => {};
const understood = new Promise<void>((resolve) => {
  onUnderstood = resolve;
});
const receiver = createServer(async (request, response) => {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const headers = request.headers as Record<string, string>;
  // Throws for a request that somebody else has signed, or that is old.
  const event = new Webhook(secret).verify(Buffer.concat(chunks), headers) as CloudEvent;
  requests += 1;
  console.log(`request ${requests}: ${event.type}, ${event.data.state}`);
  response.writeHead(requests === 1 ? 503 : 204).end();
  if (requests === 2) onUnderstood();
});
await once(receiver.listen(0, "127.0.0.1"), "listening");
const { port } = receiver.address() as AddressInfo;

const made = await service.webhooks
  .create({ url: `http://127.0.0.1:${port}/`, types: ["charge"], events: ["completed", "dead"] })
  .orThrow();
secret = made.secret;
await service.start();
await service.jobs.charge.create({ orderId: "o-1" }).orThrow();
await understood;
await service.stop();

receiver.close();
const refused = await service.webhooks.create({ url: "http://169.254.169.254/" });
if (refused.isErr()) console.log(refused.error._tag);
