// A real PostgreSQL server for tests, benchmarks and play, also for root.
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { appendFile, chown, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type PostgresBinaries, postgresBinaries, serverUser } from "./postgres-binaries.js";
import {
  freePorts,
  logCharactersMax,
  makePlace,
  ServerProcess,
  type ServerUser,
} from "./server-process.js";

const password = "millrace";
const ready = /database system is ready to accept (read.only )?connections/;

/** Durable as in production, and nothing of it outside of the temporary folder. */
const settings = [
  "listen_addresses='127.0.0.1'",
  "unix_socket_directories=''",
  "max_connections=200",
  "fsync=on",
  "synchronous_commit=on",
] as const;

/** Versions from 17 on need nothing of the system to know what a letter is. */
const builtinLocale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"] as const;

/** A server of one's own, which may be killed and started again. */
export class PostgresServer extends ServerProcess {
  /** The superuser's URL of the database `postgres`. */
  readonly url: string;
  /** The folder of its data. */
  readonly data: string;

  /** @internal Use `startPostgres`. */
  constructor(port: number, ...process: ConstructorParameters<typeof ServerProcess>) {
    super(...process);
    this.url = `postgres://postgres:${password}@127.0.0.1:${port}/postgres`;
    this.data = dataIn(process[0].folder);
  }
}

/** Makes and starts a server; whoever asks stops it. */
export function startPostgres(): Promise<PostgresServer> {
  return startWith(makeCluster);
}

/** Makes and starts a standby of a server, which is down while it is copied; whoever asks stops it. */
export function startStandby(primary: PostgresServer): Promise<PostgresServer> {
  const { hostname, port } = new URL(primary.url);
  const conninfo = `host=${hostname} port=${port} user=postgres password=${password}`;
  return startWith(async (_, folder) => {
    await primary.kill("SIGINT");
    const copied = spawnSync("cp", ["-a", primary.data, dataIn(folder)], { encoding: "utf8" });
    await primary.start();
    if (copied.status !== 0) throw new Error(`The server could not be copied.\n${copied.stderr}`);
    await appendFile(join(dataIn(folder), "postgresql.conf"), `primary_conninfo='${conninfo}'\n`);
    await writeFile(join(dataIn(folder), "standby.signal"), "");
  });
}

function dataIn(folder: string): string {
  return join(folder, "data");
}

async function startWith(fill: typeof makeCluster): Promise<PostgresServer> {
  const place = await makePlace("postgres", "QUIT");
  try {
    const { folder } = place;
    const user = serverUser();
    if ("uid" in user) await chown(folder, Number(user.uid), Number(user.gid));
    const binaries = await postgresBinaries(folder);
    await fill(binaries, folder, user);
    const [port = 0] = await freePorts(1);
    const server = new PostgresServer(port, place, {
      name: "PostgreSQL",
      command: join(binaries.folder, "postgres"),
      parameters: ["-D", dataIn(folder), "-p", String(port)],
      user,
      isReady: (log) => ready.test(log),
    });
    await server.start();
    return server;
  } catch (error) {
    place.guard.stdin?.end();
    throw error;
  }
}

/** The folder is new and thrown away, so that its first files need no sync. */
async function makeCluster(
  binaries: PostgresBinaries,
  folder: string,
  user: ServerUser,
): Promise<void> {
  const passwordFile = join(folder, "password");
  await writeFile(passwordFile, `${password}\n`);
  if ("uid" in user) await chown(passwordFile, Number(user.uid), Number(user.gid));
  const initdb = spawn(
    join(binaries.folder, "initdb"),
    [
      `--pgdata=${dataIn(folder)}`,
      "--no-sync",
      "--username=postgres",
      `--pwfile=${passwordFile}`,
      "--auth=scram-sha-256",
      "--encoding=UTF8",
      "--locale=C",
      ...(binaries.version >= 17 ? builtinLocale : []),
    ],
    { ...user, cwd: folder, stdio: ["ignore", "ignore", "pipe"] },
  );
  let log = "";
  initdb.stderr.on("data", (chunk) => {
    log = `${log}${chunk}`.slice(-logCharactersMax);
  });
  const [code] = await once(initdb, "exit");
  if (code !== 0) throw new Error(`initdb failed.\n${log}`);
  await appendFile(join(dataIn(folder), "postgresql.conf"), `${settings.join("\n")}\n`);
}
