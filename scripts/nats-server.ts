// A real nats-server with JetStream for tests, benchmarks and play, alone or as a cluster on loopback.
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { natsBinary } from "./nats-binaries.js";
import { freePorts, makePlace, ServerProcess } from "./server-process.js";

/** A cluster has to elect a leader before it answers; that takes seconds on a busy machine. */
const clusterReadyMs = 60_000;
const clusterPauseMs = 20;

/** What a server is to be like. */
export interface NatsOptions {
  /** Whether each message is on disk before it is acknowledged; otherwise the server's default, within two minutes. */
  readonly syncAlways?: boolean;
  /** How much the server may store in files; otherwise what the disk has. */
  readonly storeBytesMax?: number;
  /** How many questions of the JetStream API may wait before the server drops all of them; otherwise 10,000. */
  readonly questionsMax?: number;
  /** The JetStream domain that the server is in. */
  readonly domain?: string;
  /** More text for the configuration file, for instance users and their permissions. */
  readonly config?: string;
}

interface Ports {
  readonly client: number;
  readonly monitor: number;
}

/** A server of one's own, which may be killed and started again. */
export class NatsServer extends ServerProcess {
  /** Its name, by which a cluster knows it. */
  readonly name: string;
  /** The port for clients. */
  readonly port: number;
  readonly #monitor: number;

  /** @internal Use `startNats` or `startNatsCluster`. */
  constructor(name: string, ports: Ports, ...process: ConstructorParameters<typeof ServerProcess>) {
    super(...process);
    this.name = name;
    this.port = ports.client;
    this.#monitor = ports.monitor;
  }

  /** The URL without a user. */
  get url(): string {
    return `nats://127.0.0.1:${this.port}`;
  }

  /** What the server's monitoring says, for instance at `jsz`; undefined when it says nothing now. */
  async monitor(path: string): Promise<Record<string, unknown> | undefined> {
    return askMonitor(this.#monitor, path);
  }
}

/** Servers that know each other; with three of them, each may die. */
export class NatsCluster {
  readonly servers: readonly NatsServer[];

  /** @internal Use `startNatsCluster`. */
  constructor(servers: readonly NatsServer[]) {
    this.servers = servers;
  }

  /** The URL of all servers, without a user. */
  get url(): string {
    return `nats://${this.servers.map(({ port }) => `127.0.0.1:${port}`).join(",")}`;
  }

  /** The server of a name, as a stream's information names its leader. */
  named(name: string): NatsServer {
    const server = this.servers.find((candidate) => candidate.name === name);
    if (!server) throw new Error(`The cluster has no server ${name}.`);
    return server;
  }

  /** Waits until every server that runs is well and knows who leads; copies may still be catching up. */
  async ready(): Promise<void> {
    const signal = AbortSignal.timeout(clusterReadyMs);
    for (;;) {
      const running = this.servers.filter(({ pid }) => pid !== undefined);
      const well = await Promise.all(running.map((server) => this.#isWell(server)));
      if (well.every(Boolean)) return;
      if (signal.aborted) throw new Error("The NATS cluster is not ready.");
      await delay(clusterPauseMs);
    }
  }

  async #isWell(server: NatsServer): Promise<boolean> {
    const [health, jetstream] = await Promise.all([
      server.monitor("healthz"),
      server.monitor("jsz"),
    ]);
    const meta = jetstream?.meta_cluster as { leader?: string; cluster_size?: number } | undefined;
    return (
      health?.status === "ok" &&
      meta?.cluster_size === this.servers.length &&
      (meta.leader ?? "") !== ""
    );
  }

  /** Ends all servers and removes their data. */
  async stop(): Promise<void> {
    await Promise.all(this.servers.map((server) => server.stop()));
  }
}

/** Makes and starts a server; whoever asks stops it. */
export async function startNats(options: NatsOptions = {}): Promise<NatsServer> {
  const [client = 0, monitor = 0] = await freePorts(2);
  return startServer("millrace", { client, monitor }, options);
}

/** Makes and starts servers that form a cluster; whoever asks stops it. */
export async function startNatsCluster(
  size: number,
  options: NatsOptions = {},
): Promise<NatsCluster> {
  const free = await freePorts(3 * size);
  const members = Array.from({ length: size }, (_, index) => ({
    name: `server-${index + 1}`,
    ports: { client: free[3 * index] ?? 0, monitor: free[3 * index + 1] ?? 0 },
    route: free[3 * index + 2] ?? 0,
  }));
  const routes = members.map(({ route }) => `"nats://127.0.0.1:${route}"`).join(", ");
  const started = await Promise.allSettled(
    members.map(({ name, ports, route }) => {
      const config = `cluster { name: millrace, listen: "127.0.0.1:${route}", routes: [${routes}] }\n${options.config ?? ""}`;
      return startServer(name, ports, { ...options, config });
    }),
  );
  const servers = started.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  const cluster = new NatsCluster(servers);
  try {
    for (const each of started) if (each.status === "rejected") throw each.reason;
    await cluster.ready();
    return cluster;
  } catch (error) {
    await cluster.stop();
    throw error;
  }
}

async function startServer(name: string, ports: Ports, options: NatsOptions): Promise<NatsServer> {
  const command = await natsBinary();
  const place = await makePlace("nats", "KILL");
  try {
    const file = join(place.folder, "nats.conf");
    await writeFile(file, configText(name, ports, join(place.folder, "data"), options));
    const server = new NatsServer(name, ports, place, {
      name: "nats-server",
      command,
      parameters: ["--config", file],
      user: {},
      isReady: async () =>
        (await askMonitor(ports.monitor, "healthz?js-enabled-only=true"))?.status === "ok",
    });
    await server.start();
    return server;
  } catch (error) {
    place.guard.stdin?.end();
    throw error;
  }
}

function configText(name: string, ports: Ports, data: string, options: NatsOptions): string {
  const store = [`store_dir: ${JSON.stringify(data)}`];
  if (options.syncAlways) store.push("sync_interval: always");
  if (options.domain !== undefined) store.push(`domain: ${options.domain}`);
  if (options.questionsMax !== undefined)
    store.push(`request_queue_limit: ${options.questionsMax}`);
  if (options.storeBytesMax !== undefined) store.push(`max_file_store: ${options.storeBytesMax}`);
  return `server_name: ${name}
listen: "127.0.0.1:${ports.client}"
http: "127.0.0.1:${ports.monitor}"
jetstream {
  ${store.join("\n  ")}
}
${options.config ?? ""}
`;
}

async function askMonitor(
  port: number,
  path: string,
): Promise<Record<string, unknown> | undefined> {
  try {
    const answer = await fetch(`http://127.0.0.1:${port}/${path}`);
    return (await answer.json()) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}
