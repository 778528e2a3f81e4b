// The peer graphile-worker: a job queue on PostgreSQL. It deletes a job that completes.
import { Logger, makeWorkerUtils } from "graphile-worker";
import { verify } from "../../bench.js";
import { payloadOf, payloadsBetween } from "../../payload.js";
import { stagedRounds } from "../../rounds.js";
import type { Stage, StagedSystem } from "../../stage.js";
import type { Peer } from "../peer.js";
import { quietPool } from "./pool.js";
import { batchDelayMs, concurrentJobs, localQueueSize, taskName } from "./settings.js";

/** As many connections as graphile-worker makes by itself. */
const connectionsMax = 10;

const silent = new Logger(() => () => {});
const countJobs = "SELECT count(*)::int AS count FROM graphile_worker.jobs";

const graphileWorker: StagedSystem = {
  name: "graphile-worker",
  open: openStage,
  amounts: (sizes) => ({
    concurrentJobs: sizes.postgresPeerConcurrentJobs,
    sequentialJobs: sizes.postgresPeerSequentialJobs,
    pickupSamples: sizes.pickupSamples,
  }),
};

/** graphile-worker at its documented best. */
export const graphileWorkerPeer: Peer = {
  system: "graphile-worker",
  present: true,
  settings: `local queue of ${localQueueSize}, ${concurrentJobs} concurrent jobs, completions batched (delay ${batchDelayMs}); deletes finished jobs, no history`,
  ...stagedRounds(graphileWorker),
};

async function openStage(url: string): Promise<Stage> {
  const pool = quietPool(url, connectionsMax);
  const workerUtils = await makeWorkerUtils({ pgPool: pool, logger: silent });
  await workerUtils.migrate();
  let created = 0;

  async function unfinished(): Promise<number> {
    const { rows } = await workerUtils.withPgClient((client) =>
      client.query<{ count: number }>(countJobs),
    );
    return rows[0]?.count ?? 0;
  }

  return {
    url,
    async create(number) {
      created += 1;
      await workerUtils.addJob(taskName, payloadOf(number));
    },
    async createBatch(from, to) {
      created += to - from;
      const payloads = payloadsBetween(from, to);
      return workerUtils.addJobs(payloads.map((payload) => ({ identifier: taskName, payload })));
    },
    unfinished,
    async verify(_, fate) {
      const [found, expected] = [await unfinished(), fate === "ended" ? 0 : created];
      verify(found === expected, () => `graphile-worker: ${found} jobs wait, not ${expected}`);
    },
    async close() {
      await workerUtils.release();
      await pool.end();
    },
  };
}
