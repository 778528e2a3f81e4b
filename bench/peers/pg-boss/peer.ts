// The peer pg-boss: a job queue on PostgreSQL. Version 10 is the last that runs on Node 20.
import PgBoss from "pg-boss";
import { verify } from "../../bench.js";
import { payloadOf, payloadsBetween } from "../../payload.js";
import { stagedRounds } from "../../rounds.js";
import type { Stage, StagedSystem } from "../../stage.js";
import type { Peer } from "../peer.js";
import { batchSize, pollingIntervalSeconds, queueName, workersPerProcess } from "./settings.js";

const countJobs = `
  SELECT count(*) FILTER (WHERE state < 'completed')::int AS unfinished,
    count(*) FILTER (WHERE state = 'completed')::int AS completed
  FROM pgboss.job WHERE name = '${queueName}'
`;

const pgBoss: StagedSystem = {
  name: "pg-boss",
  open: openStage,
  amounts: (sizes) => ({
    concurrentJobs: sizes.postgresPeerConcurrentJobs,
    sequentialJobs: sizes.postgresPeerSequentialJobs,
    pickupSamples: sizes.pollingPickupSamples,
  }),
};

/** pg-boss at its documented best. */
export const pgBossPeer: Peer = {
  system: "pg-boss",
  present: true,
  settings: `${workersPerProcess} workers per process, batches of ${batchSize}, polls every ${pollingIntervalSeconds} s when idle and at once after a full batch; keeps finished jobs, no history`,
  ...stagedRounds(pgBoss),
};

async function openStage(url: string): Promise<Stage> {
  const boss = new PgBoss({ connectionString: url, schedule: false, supervise: false });
  boss.on("error", (error) => {
    throw error;
  });
  await boss.start();
  await boss.createQueue(queueName);
  let created = 0;

  async function counts(): Promise<{ readonly unfinished: number; readonly completed: number }> {
    return (await boss.getDb().executeSql(countJobs, [])).rows[0];
  }

  return {
    url,
    create(number) {
      created += 1;
      return boss.send(queueName, payloadOf(number));
    },
    async createBatch(from, to) {
      created += to - from;
      await boss.insert(payloadsBetween(from, to).map((data) => ({ name: queueName, data })));
      return [];
    },
    unfinished: async () => (await counts()).unfinished,
    async verify(_, fate) {
      const { unfinished, completed } = await counts();
      const found = fate === "ended" ? completed : unfinished;
      verify(found === created, () => `pg-boss: ${found} of ${created} jobs are ${fate}`);
    },
    close: () => boss.stop({ wait: true }),
  };
}
