// Several processes on one file: one creates jobs, two carry them out, and any of them may die.
import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { connect, defineJob, defineService } from "millrace";
import { z } from "zod";

const resizer = defineService("resizer", {
  // At most three at once, over all processes.
  resize: defineJob({ payload: z.object({ image: z.number() }), maxActive: 3, concurrency: 2 }),
});

const [role = "parent", url = ""] = process.argv.slice(2);

if (role === "worker") {
  const service = await connect(resizer, { url });
  service.jobs.resize.handle(async ({ signal }) => {
    await new Promise((resolve) => setTimeout(resolve, 20));
    signal.throwIfAborted();
  });
  await service.start();
  await service.wait(); // Until SIGTERM, which lets running jobs finish.
} else {
  const folder = mkdtempSync(join(tmpdir(), "millrace-several-"));
  const storeUrl = `file:${join(folder, "jobs.db")}`;
  // This process only creates and reads, so that it never calls start().
  const service = await connect(resizer, { url: storeUrl });
  const images = Array.from({ length: 40 }, (_, image) => ({ payload: { image } }));
  const created = await service.jobs.resize.createMany(images).orThrow();

  const program = fileURLToPath(import.meta.url);
  const workers = [1, 2].map(() => fork(program, ["worker", storeUrl]));
  for (const outcome of created) if (outcome.isOk()) await outcome.value.wait();
  for (const worker of workers) worker.kill("SIGTERM");
  await Promise.all(workers.map((worker) => once(worker, "exit")));

  for (const { type, state, count } of await service.reads.counts().orThrow()) {
    console.log(`${type}: ${count} ${state}`);
  }
  await service.stop();
  rmSync(folder, { recursive: true, force: true });
}
