// The crash test on JetStream: workers are killed and paused while the server is killed and started again, and
// while the servers of a cluster die one at a time, whoever leads among them.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect as connectNats, type NatsConnection } from "@nats-io/transport-node";
import { connect } from "millrace";
import { expect, it, onTestFinished } from "vitest";
import type { NatsCluster, NatsServer } from "../../scripts/nats-server.js";
import type { Random } from "../simulation/random.js";
import { freshPrefix, ownNats, ownNatsCluster } from "../support/nats.js";
import { startChild } from "./children.js";
import { contract, noWork } from "./contract.js";
import { runCrash } from "./crash.js";
import { type HandlerLine, ledgerFile, readLedger } from "./lines.js";
import { pass } from "./time.js";

const serverKills = 3;

it("loses nothing and exceeds nothing while workers and the server are killed", {
  timeout: 180_000,
}, async () => {
  const [workers, jobs] = [3, 600];
  const server = await ownNats({ syncAlways: true });
  const folder = await freshFolder();
  const { engine, fleet, acknowledged } = await runCrash({
    url: `${server.url}?projection=file:${join(folder, "view.db")}`,
    folder,
    workers,
    creators: 1,
    jobs,
    excused: ["StoreUnavailable", "StoreBusy"],
    trouble: (fleet, random) =>
      Promise.all([fleet.trouble(random.fork()), killServer(server, random.fork())]),
  });
  expect(acknowledged).toBeGreaterThan(jobs / 4);
  expect(fleet.killed).toHaveLength(3 * workers);
  expect(fleet.pauses).toBe(4 * workers);
  await engine.close();
});

it("loses nothing while the leaders of a cluster step down, and its servers are killed one after the other", {
  timeout: 180_000,
}, async () => {
  // Many creates meet a cluster without a leader; so many are tried that enough of them are acknowledged.
  const [workers, jobs] = [2, 800];
  const cluster = await ownNatsCluster({ syncAlways: true });
  const folder = await freshFolder();
  const { engine, fleet, acknowledged } = await runCrash({
    url: `${cluster.url}?replicas=3&projection=file:${join(folder, "view.db")}`,
    folder,
    workers,
    creators: 1,
    jobs,
    excused: ["StoreUnavailable", "StoreBusy"],
    trouble: async (fleet, random) => {
      await Promise.all([fleet.trouble(random.fork()), killServers(cluster, random.fork())]);
    },
  });
  expect(acknowledged).toBeGreaterThan(100);
  expect(fleet.killed).toHaveLength(3 * workers);
  await engine.close();
});

it("refuses the outcome of a worker that was stopped past its lease and then goes on", {
  timeout: 90_000,
}, async () => {
  const { storeUrl } = await freshPrefix();
  const folder = await freshFolder();
  const url = `${storeUrl}&projection=file:${join(folder, "view.db")}`;
  const service = await connect(contract, { url, keeper: { ttlMs: 2_000, tickMs: 250 } });
  onTestFinished(() => service.stop());
  const slow = { ...noWork, workMs: 300, isDeaf: true };
  const job = await service.jobs.requeues.create(slow).orThrow();
  const { child, said } = startChild("./worker.ts", [url, folder, "stopped"]);
  await said("ready");
  const entries = () => readLedger<HandlerLine>(ledgerFile.handlers(folder));
  await until(() => entries().some(({ line }) => line === "entered"));
  child.kill("SIGSTOP");
  service.jobs.requeues.handle(async () => ({}));
  await service.start();
  await job.wait().orThrow();
  child.kill("SIGCONT");
  await until(() => entries().some(({ line }) => line === "left"));
  const names = async () => (await job.events().orThrow()).map(({ name }) => name);
  await until(async () => (await names()).includes("staleCompletionIgnored"));
  // On a busy machine a start may come too late for its worker, which then releases it.
  const happened = (await names()).filter((name) => name !== "heartbeat");
  expect(happened.filter((name) => name === "completed")).toHaveLength(1);
  expect(happened.slice(-5)).toEqual([
    "started",
    "retry",
    "started",
    "completed",
    "staleCompletionIgnored",
  ]);
  expect(await service.reads.key({ type: "requeues", key: "red" }).orThrow()).toMatchObject({
    active: [],
    takeovers: 1,
  });
});

/** Looks again and again whether something has come true. */
async function until(isTrue: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isTrue())) await pass(20);
}

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
  // Who steps down lives on, and so do connections to it: only what was under way there is lost.
  for (const stream of ["MILLRACE_JOBS", "KV_MILLRACE_RECORDS", "MILLRACE_JOBS"]) {
    await pass(random.whole(200, 600));
    await stepDown(cluster, stream);
  }
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

/** Has the server that leads a stream leave that to another. */
function stepDown(cluster: NatsCluster, stream: string): Promise<void> {
  return asking(cluster, async (connection) => {
    const subject = `$JS.API.STREAM.LEADER.STEPDOWN.${stream}`;
    // While another is chosen, nobody can step down.
    await until(async () => {
      const answer = await connection.request(subject, "", { timeout: 5_000 }).catch(() => null);
      return answer?.json<{ readonly success?: boolean }>().success === true;
    });
  });
}

/** The name of the server that leads the log. */
function leaderOf(cluster: NatsCluster): Promise<string> {
  return asking(cluster, async (connection) => {
    const { streams } = await jetstreamManager(connection);
    for (;;) {
      // Nobody answers while another is chosen.
      const found = await streams.info("MILLRACE_JOBS").catch(() => null);
      if (found?.cluster?.leader) return found.cluster.leader;
    }
  });
}

/** Asks a cluster something, over a connection of its own. */
async function asking<Answer>(
  { url }: NatsCluster,
  ask: (connection: NatsConnection) => Promise<Answer>,
): Promise<Answer> {
  const connection = await connectNats({ servers: url.replace("nats://", "").split(",") });
  try {
    return await ask(connection);
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
