// A worker of graphile-worker with a handler that does nothing, set up as its documentation recommends
// for throughput (https://worker.graphile.org/docs/performance).
import { Logger, run } from "graphile-worker";
import type { Payload } from "../../payload.js";
import type { HostOpener } from "../../worker/host.js";
import { quietPool } from "./pool.js";
import { batchDelayMs, concurrentJobs, localQueueSize, taskName } from "./settings.js";

const silent = new Logger(() => () => {});

/** Connects a worker. */
export const openHost: HostOpener = async (url, onEntry) => {
  const pool = quietPool(url, concurrentJobs + 2);
  await pool.query("SELECT 1");
  let runner: Awaited<ReturnType<typeof run>> | undefined;
  return {
    async start() {
      runner = await run({
        pgPool: pool,
        noHandleSignals: true,
        logger: silent,
        taskList: { [taskName]: (payload) => onEntry((payload as Payload).number) },
        preset: {
          worker: {
            concurrentJobs,
            localQueue: { size: localQueueSize },
            completeJobBatchDelay: batchDelayMs,
            failJobBatchDelay: batchDelayMs,
          },
        },
      });
    },
    async stop() {
      await runner?.stop();
      await pool.end();
    },
  };
};
