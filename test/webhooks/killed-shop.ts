// A service that delivers webhooks to this machine, with a keeper that is soon replaced.
import { connect, defineJob, defineService } from "millrace";
import { z } from "zod";

const contract = defineService("shop", {
  mail: defineJob({ payload: z.object({}), leaseMs: 1_000 }),
});

export async function openShop(url: string) {
  const keeper = { ttlMs: 500, renewMs: 100, tickMs: 50 };
  const webhooks = { allowAddresses: ["127.0.0.0/8"] };
  const service = await connect(contract, { url, keeper, webhooks });
  service.jobs.mail.handle(() => null);
  return service;
}
