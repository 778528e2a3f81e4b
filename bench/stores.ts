// Empty stores of the run's engine: a file in a fresh folder, a fresh database on a PostgreSQL server, or a
// fresh prefix on a NATS server; the run starts the server itself, and all systems share it.
import { join } from "node:path";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { Client } from "pg";
import { startNats } from "../scripts/nats-server.js";
import { startPostgres } from "../scripts/postgres-server.js";
import type { Bench } from "./bench.js";
import type { Stage, StagedSystem } from "./stage.js";
import type { Workspace } from "./workspace.js";

/** Does something on an empty store of the run's engine, which is removed afterwards. */
export async function inFreshStore<Value>(
  bench: Bench,
  work: (url: string) => Promise<Value>,
): Promise<Value> {
  switch (bench.engine) {
    case "memory":
      return work("memory:");
    case "file":
      return bench.workspace.inFreshFolder((folder) => work(`file:${join(folder, "jobs.db")}`));
    case "postgres": {
      const { url, drop } = await freshDatabase(bench.workspace);
      try {
        return await work(url);
      } finally {
        await drop();
      }
    }
    case "nats":
    case "nats-always": {
      const { url, remove } = await freshPrefix(bench);
      try {
        return await work(url);
      } finally {
        await remove();
      }
    }
  }
}

/** Makes an empty store that stays until the run ends. */
export async function keptStore({
  engine,
  workspace,
}: Pick<Bench, "engine" | "workspace">): Promise<string> {
  switch (engine) {
    case "memory":
      return "memory:";
    case "file":
      return `file:${join(workspace.keptFolder(), "jobs.db")}`;
    case "postgres":
      return (await freshDatabase(workspace)).url;
    case "nats":
    case "nats-always":
      return (await freshPrefix({ engine, workspace })).url;
  }
}

/** Does something with a system on an empty store. */
export function withStage<Job, Value>(
  bench: Bench,
  system: StagedSystem<Job>,
  work: (stage: Stage<Job>) => Promise<Value>,
): Promise<Value> {
  return inFreshStore(bench, (url) => openedStage(system, url, work));
}

/** Does something with a system on a store. */
export async function openedStage<Job, Value>(
  system: StagedSystem<Job>,
  url: string,
  work: (stage: Stage<Job>) => Promise<Value>,
): Promise<Value> {
  const stage = await system.open(url);
  try {
    return await work(stage);
  } finally {
    await stage.close();
  }
}

/**
 * Brings a store to the state in which a database is that has run for a while: a fresh one knows nothing of
 * its tables yet, and plans badly. Not timed, and done for all systems alike.
 */
export async function settleStore({ engine }: Bench, url: string): Promise<void> {
  if (engine === "postgres") await execute(url, "VACUUM (ANALYZE)");
}

/** Opens a transaction with a snapshot, as somebody who forgets to end it does. Gives the way to end it. */
export async function holdTransaction(url: string): Promise<() => Promise<void>> {
  const client = new Client({ connectionString: url });
  await client.connect();
  await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
  await client.query("SELECT pg_current_xact_id()");
  return () => client.end();
}

const servers = new WeakMap<Workspace, Promise<string>>();
let databases = 0;

/** The URL of the run's server, which is started when the first asks. */
function serverUrl(workspace: Workspace): Promise<string> {
  const known = servers.get(workspace);
  if (known) return known;
  const starting = startPostgres().then((server) => {
    workspace.undoAtEnd(() => server.stop());
    return server.url;
  });
  servers.set(workspace, starting);
  return starting;
}

const natsServers = new WeakMap<Workspace, Promise<string>>();

/** The URL of the run's NATS server, which is started when the first asks. */
function natsUrl({ workspace, engine }: Pick<Bench, "engine" | "workspace">): Promise<string> {
  const known = natsServers.get(workspace);
  if (known) return known;
  const starting = startNats({ syncAlways: engine === "nats-always" }).then((server) => {
    workspace.undoAtEnd(() => server.stop());
    return server.url;
  });
  natsServers.set(workspace, starting);
  return starting;
}

/** An empty deployment, and a projection in a folder of its own. */
async function freshPrefix(bench: Pick<Bench, "engine" | "workspace">) {
  const server = await natsUrl(bench);
  databases += 1;
  const prefix = `bench${databases}`;
  const projection = `file:${join(bench.workspace.keptFolder(), "projection.db")}`;
  return {
    url: `${server}?prefix=${prefix}&projection=${encodeURIComponent(projection)}`,
    remove: () => removeStreams(server, prefix),
  };
}

async function removeStreams(server: string, prefix: string): Promise<void> {
  const connection = await connect({ servers: server });
  const { streams } = await jetstreamManager(connection);
  for await (const name of streams.names())
    if (new RegExp(`^(KV_)?${prefix}_`, "i").test(name)) await streams.delete(name);
  await connection.close();
}

/** An empty database. What others left to be written to disk is written before, so that nobody pays for it. */
async function freshDatabase(workspace: Workspace) {
  const server = await serverUrl(workspace);
  databases += 1;
  const name = `bench_${databases}`;
  await execute(server, `CREATE DATABASE ${name}`, "CHECKPOINT");
  const url = new URL(server);
  url.pathname = `/${name}`;
  return { url: url.href, drop: () => execute(server, `DROP DATABASE ${name} WITH (FORCE)`) };
}

async function execute(url: string, ...statements: readonly string[]): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    for (const statement of statements) await client.query(statement);
  } finally {
    await client.end();
  }
}
