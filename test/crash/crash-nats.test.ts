// The crash test on JetStream: workers are killed and paused while the server is killed and started again, and
// while the servers of a cluster die one at a time, whoever leads among them.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect as connectNats } from "@nats-io/transport-node";
import { expect, it, onTestFinished } from "vitest";
import type { NatsCluster, NatsServer } from "../../scripts/nats-server.js";
import type { Random } from "../simulation/random.js";
import { ownNats, ownNatsCluster } from "../support/nats.js";
import { runCrash } from "./crash.js";
import { pass } from "./time.js";

const serverKills = 3;

it("loses nothing and exceeds nothing while workers and the server are killed", {
  timeout: 180_000,
}, async () => {
  const [workers, jobs] = [3, 900];
  const server = await ownNats({ syncAlways: true });
  const folder = await freshFolder();
  const { engine, fleet, acknowledged } = await runCrash({
    url: `${server.url}?projection=file:${join(folder, "view.db")}`,
    folder,
    workers,
    creators: 1,
    jobs,
    isStoreInTrouble: true,
    trouble: (fleet, random) =>
      Promise.all([fleet.trouble(random.fork()), killServer(server, random.fork())]),
  });
  expect(acknowledged).toBeGreaterThan(jobs / 4);
  expect(fleet.killed).toHaveLength(3 * workers);
  expect(fleet.pauses).toBe(4 * workers);
  await engine.close();
});

it("loses nothing while the servers of a cluster are killed one after the other", {
  timeout: 180_000,
}, async () => {
  const [workers, jobs] = [2, 500];
  const cluster = await ownNatsCluster({ syncAlways: true });
  const folder = await freshFolder();
  const { engine, fleet, acknowledged } = await runCrash({
    url: `${cluster.url}?replicas=3&projection=file:${join(folder, "view.db")}`,
    folder,
    workers,
    creators: 1,
    jobs,
    isStoreInTrouble: true,
    trouble: async (fleet, random) => {
      await Promise.all([fleet.trouble(random.fork()), killServers(cluster, random.fork())]);
    },
  });
  expect(acknowledged).toBeGreaterThan(jobs / 4);
  expect(fleet.killed).toHaveLength(3 * workers);
  await engine.close();
});

/** Kills the server under load, a few times, and starts it again soon or after leases have run out. */
async function killServer(server: NatsServer, random: Random): Promise<void> {
  for (let kill = 0; kill < serverKills; kill++) {
    await pass(random.whole(1_500, 3_000));
    await server.kill("SIGKILL");
    await pass(random.whole(0, 2_500));
    await server.restart();
  }
}

/** Kills the server that leads the log, then each of the others; two of three are always there. */
async function killServers(cluster: NatsCluster, random: Random): Promise<void> {
  const leader = cluster.named(await leaderOf(cluster));
  const others = cluster.servers.filter((server) => server !== leader);
  for (const server of [leader, ...others]) {
    await pass(random.whole(500, 1_500));
    await server.kill("SIGKILL");
    await pass(random.whole(0, 1_500));
    await server.restart();
    await cluster.ready();
  }
}

/** The name of the server that leads the log. */
async function leaderOf({ url }: NatsCluster): Promise<string> {
  const connection = await connectNats({ servers: url.replace("nats://", "").split(",") });
  try {
    const { streams } = await jetstreamManager(connection);
    return (await streams.info("MILLRACE_JOBS")).cluster?.leader ?? "";
  } finally {
    await connection.close();
  }
}

/** A folder for ledgers and the read model, gone after the test. */
async function freshFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "millrace-crash-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}
