// A real PostgreSQL server for tests, benchmarks and play: on a free loopback port, with its data in
// a temporary folder, also for root. It ends with the process that started it, however that ends.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chown, mkdtemp, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { postgresBinaries, type ServerUser, serverUser } from "./postgres-binaries.js";

/** Below the ports that systems give to outgoing connections, so that no client takes a stopped server's port. */
const ports = { first: 20_000, count: 12_000 } as const;
const portAttemptsMax = 100;

/** After a kill, backends of the old server may live on for a moment and hold its memory. */
const startAttemptsMax = 100;
const startPauseMs = 50;
const logCharactersMax = 10_000;

const password = "millrace";
const ready = "database system is ready to accept connections";

/** Durable as in production, and nothing of it outside of the temporary folder. */
const settings = [
  "listen_addresses=127.0.0.1",
  "unix_socket_directories=",
  "max_connections=200",
  "fsync=on",
  "synchronous_commit=on",
] as const;

/**
 * Reads the server's process id, again after each start and `0` after each end. When its input
 * ends, by `stop` or with the process that started it, it ends the server and removes its folder.
 */
const guardScript = `
server=0
while read -r line; do server=$line; done
if [ "$server" != 0 ]; then
  kill -QUIT "$server" 2>/dev/null
  rounds=0
  while kill -0 "$server" 2>/dev/null && [ "$rounds" -lt 200 ]; do rounds=$((rounds + 1)); sleep 0.05; done
fi
rm -rf "$1" 2>/dev/null || { sleep 1; rm -rf "$1"; }
`;

/** A server of one's own, which may be killed and started again. */
export class PostgresServer {
  readonly #binaries: string;
  readonly #folder: string;
  readonly #guard: ChildProcess;
  readonly #port: number;
  #process: ChildProcess | undefined;
  #stopped: Promise<void> | undefined;

  /** @internal Use `startPostgres`. */
  constructor(place: { binaries: string; folder: string; guard: ChildProcess; port: number }) {
    this.#binaries = place.binaries;
    this.#folder = place.folder;
    this.#guard = place.guard;
    this.#port = place.port;
  }

  /** The superuser's URL of the database `postgres`. */
  get url(): string {
    return `postgres://postgres:${password}@127.0.0.1:${this.#port}/postgres`;
  }

  /** The process id of the postmaster; undefined while none runs. */
  get pid(): number | undefined {
    return this.#process?.pid;
  }

  /** Ends the server by a signal and waits until it has ended; its data stays. SIGKILL is a crash. */
  async kill(signal: NodeJS.Signals): Promise<void> {
    const server = this.#process;
    if (server === undefined) return;
    const ended = once(server, "exit");
    // Whoever waits for the end must not end before.
    server.ref();
    server.kill(signal);
    await ended;
  }

  /** Starts the server again, on the same port and data, after ending it (quickly but cleanly) if it runs. */
  async restart(): Promise<void> {
    await this.kill("SIGINT");
    await this.start();
  }

  /** Starts the server if none runs. */
  async start(): Promise<void> {
    let log = "";
    for (let attempt = 0; attempt < startAttemptsMax; attempt += 1) {
      if (this.#process !== undefined) return;
      log = await this.#attempt();
      if (this.#process === undefined) await delay(startPauseMs);
    }
    if (this.#process === undefined) throw new Error(`PostgreSQL did not start.\n${log}`);
  }

  /** Ends the server and removes its data. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    const ended = once(this.#guard, "exit");
    this.#guard.ref();
    this.#guard.stdin?.end();
    await ended;
  }

  /** Gives what the server said until it was ready or gave up. */
  async #attempt(): Promise<string> {
    const server = spawn(
      join(this.#binaries, "bin", "postgres"),
      ["-D", join(this.#folder, "data"), "-p", String(this.#port)],
      { ...serverUser(), cwd: this.#folder, stdio: ["ignore", "ignore", "pipe"], detached: true },
    );
    this.#process = server;
    this.#tellGuard(server.pid ?? 0);
    server.once("exit", () => {
      this.#process = undefined;
      this.#tellGuard(0);
    });
    let log = "";
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.once("exit", () => resolve());
      server.stderr.on("data", (chunk) => {
        log = `${log}${chunk}`.slice(-logCharactersMax);
        if (log.includes(ready)) resolve();
      });
    });
    server.unref();
    // A pipe to a child is a socket, which may keep the process alive as well.
    if ("unref" in server.stderr && typeof server.stderr.unref === "function")
      server.stderr.unref();
    return log;
  }

  #tellGuard(pid: number): void {
    if (this.#guard.stdin?.writable) this.#guard.stdin.write(`${pid}\n`);
  }
}

/** Makes and starts a server; whoever asks stops it. */
export async function startPostgres(): Promise<PostgresServer> {
  const folder = await mkdtemp(join(tmpdir(), "millrace-postgres-"));
  const guard = startGuard(folder);
  try {
    const user = serverUser();
    if ("uid" in user) await chown(folder, Number(user.uid), Number(user.gid));
    const binaries = await postgresBinaries(folder);
    await makeCluster(binaries, folder, user);
    const server = new PostgresServer({ binaries, folder, guard, port: await freePort() });
    await server.start();
    return server;
  } catch (error) {
    guard.stdin?.end();
    throw error;
  }
}

function startGuard(folder: string): ChildProcess {
  const guard = spawn("sh", ["-c", guardScript, "sh", folder], {
    stdio: ["pipe", "ignore", "ignore"],
    detached: true,
  });
  guard.unref();
  // Nobody writes to a guard that has gone.
  guard.stdin.on("error", () => undefined);
  if ("unref" in guard.stdin && typeof guard.stdin.unref === "function") guard.stdin.unref();
  return guard;
}

/** The folder is new and thrown away, so that its first files need no sync. */
async function makeCluster(binaries: string, folder: string, user: ServerUser): Promise<void> {
  const passwordFile = join(folder, "password");
  await writeFile(passwordFile, `${password}\n`);
  if ("uid" in user) await chown(passwordFile, Number(user.uid), Number(user.gid));
  const initdb = spawn(
    join(binaries, "bin", "initdb"),
    [
      `--pgdata=${join(folder, "data")}`,
      "--no-sync",
      "--no-instructions",
      "--username=postgres",
      `--pwfile=${passwordFile}`,
      "--auth=scram-sha-256",
      "--encoding=UTF8",
      "--locale=C",
      "--locale-provider=builtin",
      "--builtin-locale=C.UTF-8",
      ...settings.flatMap((setting) => ["-c", setting]),
    ],
    { ...user, cwd: folder, stdio: ["ignore", "ignore", "pipe"] },
  );
  let log = "";
  initdb.stderr.on("data", (chunk) => {
    log = `${log}${chunk}`.slice(-logCharactersMax);
  });
  const [code] = await once(initdb, "exit");
  if (code !== 0) throw new Error(`initdb failed.\n${log}`);
}

async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < portAttemptsMax; attempt += 1) {
    const port = ports.first + Math.floor(Math.random() * ports.count);
    if (await isFree(port)) return port;
  }
  throw new Error("No free port was found for PostgreSQL.");
}

async function isFree(port: number): Promise<boolean> {
  const probe = createServer();
  try {
    await new Promise<void>((resolve, reject) => {
      probe.once("error", reject);
      probe.listen(port, "127.0.0.1", resolve);
    });
    await new Promise((resolve) => probe.close(resolve));
    return true;
  } catch {
    return false;
  }
}
