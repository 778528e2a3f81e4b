// A worker of pg-boss with a handler that does nothing. After a full batch it takes the next one at once
// instead of waiting for the interval, as `notifyWorker` allows.
import PgBoss from "pg-boss";
import type { Payload } from "../../payload.js";
import type { HostOpener } from "../../worker/host.js";
import { batchSize, pollingIntervalSeconds, queueName, workersPerProcess } from "./settings.js";

/** Connects a worker. */
export const openHost: HostOpener = async (url, onEntry) => {
  const boss = new PgBoss({ connectionString: url, schedule: false });
  boss.on("error", (error) => {
    throw error;
  });
  await boss.start();
  return {
    async start() {
      for (let number = 0; number < workersPerProcess; number += 1) {
        const id: string = await boss.work<Payload>(
          queueName,
          { batchSize, pollingIntervalSeconds },
          async (jobs) => {
            for (const { data } of jobs) onEntry(data.number);
            if (jobs.length === batchSize) boss.notifyWorker(id);
          },
        );
      }
    },
    stop: () => boss.stop({ wait: true }),
  };
};
