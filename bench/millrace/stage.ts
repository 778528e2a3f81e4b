// Millrace as the benchmark sees it: a store with a connected service, and worker processes beside it.
import { payloadOf, payloadsBetween } from "../payload.js";
import type { Stage, StagedSystem } from "../stage.js";
import { type BenchService, openService } from "./contract.js";
import { unfinishedInStream } from "./stream.js";
import { type BenchJob, Verifier } from "./verify.js";
import { hostOn } from "./worker-host.js";

/** What the log of a job says that met no trouble. */
const histories = { waiting: ["created"], ended: ["created", "started", "completed"] } as const;

/** The system that the table is about. */
export const millrace: StagedSystem<BenchJob> = {
  name: "millrace",
  open: async (url) => stageOn(url, await openService(url)),
  amounts: (sizes) => ({
    concurrentJobs: sizes.createConcurrentJobs,
    sequentialJobs: sizes.createSequentialJobs,
    pickupSamples: sizes.pickupSamples,
  }),
};

function stageOn(url: string, service: BenchService): Stage<BenchJob> {
  const verifier = new Verifier(service);
  return {
    url,
    create: (number, type) => service.jobs[type].create(payloadOf(number)).orThrow(),
    async createBatch(from, to, type) {
      const batch = payloadsBetween(from, to).map((payload) => ({ payload }));
      const results = await service.jobs[type].createMany(batch).orThrow();
      return results.map((result) => result.unwrap());
    },
    async unfinished(type) {
      if (url.startsWith("nats:")) return unfinishedInStream(url, type);
      const states = ["pending", "blocked", "active", "retry"] as const;
      const counts = await service.reads.counts({ type, state: states }).orThrow();
      return counts.reduce((sum, { count }) => sum + count, 0);
    },
    verify: (jobs, fate) => verifier.verify(jobs, histories[fate]),
    close: () => service.stop(),
    ...(url === "memory:" ? { openHost: async (_, onEntry) => hostOn(service, onEntry) } : {}),
  };
}
