// Keyed jobs: one at a time for each shop, over all processes, and none that would do the same work twice.
import { connect, defineJob, defineService } from "millrace";
import { z } from "zod";

const stock = defineService("stock", {
  sync: defineJob({
    payload: z.object({ shop: z.string() }),
    // The key of a job: a constant, and a value out of its payload.
    keyConcurrency: { key: ["stock", "/shop"], maxActive: 1 },
    // One more may wait behind the one that runs. A further one is answered with the one that waits.
    queue: { maxQueuedPerKey: 1, whenFull: "coalesce" },
  }),
});

const service = await connect(stock, { url: "memory:" });
const running = new Map<string, number>();
let most = 0;
let openShops = () => {};
const shopsAreOpen = new Promise<void>((resolve) => {
  openShops = resolve;
});
service.jobs.sync.handle(async ({ payload }) => {
  running.set(payload.shop, (running.get(payload.shop) ?? 0) + 1);
  most = Math.max(most, ...running.values());
  await shopsAreOpen;
  running.set(payload.shop, (running.get(payload.shop) ?? 0) - 1);
});
await service.start();

for (const shop of ["north", "north", "north", "south"]) {
  const { outcome } = await service.jobs.sync.submit({ shop }).orThrow();
  console.log(`${shop}: ${outcome}`);
}

// `create` is for those who want a new job or none: a full key is a typed error.
const created = await service.jobs.sync.create({ shop: "north" });
if (created.isErr()) console.log(`north: ${created.error._tag}`);

for (const { key, active, queuedCount } of (await service.reads.keys().orThrow()).entries) {
  console.log(`${key}: ${active.length} active, ${queuedCount} queued`);
}

openShops();
for (const { id } of (await service.reads.jobs().orThrow()).entries) await service.ref(id).wait();
console.log(`at most ${most} at a time for a shop`);
await service.stop();
