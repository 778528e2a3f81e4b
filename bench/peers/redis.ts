// Starts a Redis server of our own for a peer that needs one: on a free loopback port, with its data
// in the run's temporary folder, and stopped with the run.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants } from "node:fs";
import { type AddressInfo, connect, createServer } from "node:net";
import { delimiter, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Workspace } from "../workspace.js";

const startAttemptsMax = 100;
const startAttemptPauseMs = 50;

/** Where a running server listens. */
export interface RedisAddress {
  readonly host: string;
  readonly port: number;
}

/** When a server syncs its file: before every answer, or every second. */
export type RedisSync = "always" | "everysec";

/** How the servers are set up, for the table's notes. */
export function redisSettings(sync: RedisSync): string {
  return `appendonly yes, appendfsync ${sync}`;
}

/** The path of `redis-server`, or `null` when none is on the PATH. */
export function findRedisServer(): string | null {
  const folders = (process.env.PATH ?? "").split(delimiter);
  const paths = folders.map((folder) => join(folder, "redis-server"));
  return paths.find(isExecutable) ?? null;
}

/** Starts a server that lives until the workspace closes. */
export async function startRedis(
  binary: string,
  workspace: Workspace,
  sync: RedisSync,
): Promise<RedisAddress> {
  const address = { host: "127.0.0.1", port: await freePort() };
  const options = {
    bind: address.host,
    port: String(address.port),
    dir: workspace.keptFolder(),
    appendonly: "yes",
    appendfsync: sync,
    save: "",
  };
  const words = Object.entries(options).flatMap(([name, value]) => [`--${name}`, value]);
  const server = spawn(binary, words, { stdio: "ignore" });
  workspace.undoAtEnd(() => stopServer(server));
  await answering(server, address);
  return address;
}

async function stopServer(server: ChildProcess): Promise<void> {
  if (server.exitCode !== null || server.signalCode !== null || server.pid === undefined) return;
  const exited = once(server, "exit");
  server.kill("SIGKILL");
  await exited;
}

async function answering(server: ChildProcess, address: RedisAddress): Promise<void> {
  const failed = once(server, "error").then(([error]) => Promise.reject(error as Error));
  for (let attempt = 0; attempt < startAttemptsMax; attempt += 1) {
    if (await Promise.race([accepts(address), failed])) return;
    if (server.exitCode !== null) break;
    await sleep(startAttemptPauseMs);
  }
  throw new Error(`redis-server does not answer on port ${address.port}`);
}

async function accepts({ host, port }: RedisAddress): Promise<boolean> {
  const socket = connect(port, host);
  try {
    await once(socket, "connect");
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
