// A server's process for tests, benchmarks and play: on free loopback ports, with its data in a
// temporary folder. It ends with the process that started it, however that ends.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";

/** Under which user a server's processes run; empty for the user that asks. */
export type ServerUser = { readonly uid: number; readonly gid: number } | Record<string, never>;

/** Below the ports that systems give to outgoing connections, so that no client takes a stopped server's port. */
const ports = { first: 20_000, count: 12_000 } as const;
const portAttemptsMax = 100;

/** After a kill, what the old server left may live on for a moment and be in the way. */
const startAttemptsMax = 100;
const startPauseMs = 50;

/** How long to wait between two looks at a server that starts. */
const readyPauseMs = 10;

/** How much of what a server says is kept. */
export const logCharactersMax = 10_000;

/**
 * Reads the server's process id, again after each start and `0` after each end. When its input
 * ends, by `stop` or with the process that started it, it ends the server and removes its folder.
 */
const guardScript = `
server=0
while read -r line; do server=$line; done
if [ "$server" != 0 ]; then
  kill -"$2" "$server" 2>/dev/null
  kill -CONT "$server" 2>/dev/null
  rounds=0
  while kill -0 "$server" 2>/dev/null && [ "$rounds" -lt 200 ]; do rounds=$((rounds + 1)); sleep 0.05; done
fi
rm -rf "$1" 2>/dev/null || { sleep 1; rm -rf "$1"; }
`;

/** What is to run, and how to tell that it does. */
export interface ServerPlan {
  /** What people call the server. */
  readonly name: string;
  readonly command: string;
  readonly parameters: readonly string[];
  readonly user: ServerUser;
  /** Whether the server answers, judged by asking it or by what it has said so far. */
  isReady(log: string): boolean | Promise<boolean>;
}

/** A temporary folder and the guard that removes it, together with the server that runs in it. */
export interface ServerPlace {
  readonly folder: string;
  readonly guard: ChildProcess;
}

/** Makes the folder of a server that ends by the given signal when nobody needs it any more. */
export async function makePlace(name: string, endSignal: "QUIT" | "KILL"): Promise<ServerPlace> {
  const folder = await mkdtemp(join(tmpdir(), `millrace-${name}-`));
  const guard = spawn("sh", ["-c", guardScript, "sh", folder, endSignal], {
    stdio: ["pipe", "ignore", "ignore"],
    detached: true,
  });
  guard.unref();
  // Nobody writes to a guard that has gone.
  guard.stdin.on("error", () => undefined);
  unref(guard.stdin);
  return { folder, guard };
}

/** A server of one's own, which may be killed and started again. */
export class ServerProcess {
  readonly #place: ServerPlace;
  readonly #plan: ServerPlan;
  #process: ChildProcess | undefined;
  #stopped: Promise<void> | undefined;

  constructor(place: ServerPlace, plan: ServerPlan) {
    this.#place = place;
    this.#plan = plan;
  }

  /** The process id of the server; undefined while none runs. */
  get pid(): number | undefined {
    return this.#process?.pid;
  }

  /** Sends a signal that the server outlives, for instance SIGSTOP, SIGCONT or SIGHUP. */
  signal(signal: NodeJS.Signals): void {
    this.#process?.kill(signal);
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

  /** Starts the server again, on the same ports and data, after ending it (quickly but cleanly) if it runs. */
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
    if (this.#process === undefined) throw new Error(`${this.#plan.name} did not start.\n${log}`);
  }

  /** Ends the server and removes its data. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    const { guard } = this.#place;
    const ended = once(guard, "exit");
    guard.ref();
    guard.stdin?.end();
    await ended;
  }

  /** Gives what the server said until it was ready or gave up. */
  async #attempt(): Promise<string> {
    const server = spawn(this.#plan.command, this.#plan.parameters, {
      ...this.#plan.user,
      cwd: this.#place.folder,
      stdio: ["ignore", "ignore", "pipe"],
      detached: true,
    });
    this.#process = server;
    this.#tellGuard(server.pid ?? 0);
    let failure: Error | undefined;
    server.once("error", (error) => {
      failure = error;
      this.#process = undefined;
    });
    server.once("exit", () => {
      this.#process = undefined;
      this.#tellGuard(0);
    });
    let log = "";
    server.stderr.on("data", (chunk) => {
      log = `${log}${chunk}`.slice(-logCharactersMax);
    });
    while (this.#process === server && !(await this.#plan.isReady(log))) await delay(readyPauseMs);
    if (failure) throw failure;
    server.unref();
    unref(server.stderr);
    return log;
  }

  #tellGuard(pid: number): void {
    const { guard } = this.#place;
    if (guard.stdin?.writable) guard.stdin.write(`${pid}\n`);
  }
}

/** A pipe to a child is a socket, which may keep the process alive. */
function unref(pipe: object): void {
  if ("unref" in pipe && typeof pipe.unref === "function") pipe.unref();
}

/** Ports on the loopback address that nobody listens on now, each another one. */
export async function freePorts(count: number): Promise<readonly number[]> {
  const found = new Set<number>();
  for (let attempt = 0; attempt < portAttemptsMax && found.size < count; attempt += 1) {
    const port = ports.first + Math.floor(Math.random() * ports.count);
    if (await isFree(port)) found.add(port);
  }
  if (found.size < count) throw new Error("No free port was found for a server.");
  return [...found];
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
