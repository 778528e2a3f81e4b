// A real PgBouncer in transaction mode in front of a PostgreSQL server, for tests. The binary is the one
// that PGBOUNCER_BIN names, one on the PATH, or Debian's, which is unpacked in the cache folder.
import { execFile } from "node:child_process";
import { chown, cp, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { debianProgram } from "./debian-packages.js";
import { serverUser } from "./postgres-binaries.js";
import { freePorts, makePlace, ServerProcess } from "./server-process.js";

const run = promisify(execFile);

/** Fewer connections to the server than a test has clients, so that these take turns on them. */
export const serverConnectionsMax = 8;
const clientConnectionsMax = 1_000;

/** A PgBouncer of one's own. */
export class PgBouncer extends ServerProcess {
  /** The URL of the server behind, by way of this PgBouncer. */
  readonly url: string;

  /** @internal Use `startPgBouncer`. */
  constructor(url: string, ...process: ConstructorParameters<typeof ServerProcess>) {
    super(...process);
    this.url = url;
  }
}

/** Starts a PgBouncer in front of the server of a URL, which names user and password; whoever asks stops it. */
export async function startPgBouncer(serverUrl: string): Promise<PgBouncer> {
  const place = await makePlace("pgbouncer", "KILL");
  try {
    const { folder } = place;
    const user = serverUser();
    const command = await pgbouncerCommand(folder);
    const [port = 0] = await freePorts(1);
    const through = new URL(serverUrl);
    through.port = String(port);
    const configuration = join(folder, "pgbouncer.ini");
    await writeFile(configuration, configurationOf(new URL(serverUrl), port, folder));
    await writeFile(join(folder, "users"), usersOf(new URL(serverUrl)));
    if ("uid" in user) await chown(folder, Number(user.uid), Number(user.gid));
    const bouncer = new PgBouncer(through.href, place, {
      name: "PgBouncer",
      command: "env",
      parameters: [...command, configuration],
      user,
      isReady: (log) => log.includes("process up"),
    });
    await bouncer.start();
    return bouncer;
  } catch (error) {
    place.guard.stdin?.end();
    throw error;
  }
}

function configurationOf(server: URL, port: number, folder: string): string {
  return `[databases]
* = host=${server.hostname} port=${server.port || 5432}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = ${join(folder, "users")}
pool_mode = transaction
default_pool_size = ${serverConnectionsMax}
max_client_conn = ${clientConnectionsMax}
`;
}

/** The password stands there as it is, because PgBouncer has to know it to ask the server behind. */
function usersOf(server: URL): string {
  return `"${decodeURIComponent(server.username)}" "${decodeURIComponent(server.password)}"\n`;
}

/** The words for `env` that run PgBouncer. It refuses to run as root, whose cache other users may not see. */
async function pgbouncerCommand(folder: string): Promise<readonly string[]> {
  const given = process.env.PGBOUNCER_BIN;
  if (given !== undefined && given !== "") return [given];
  try {
    await run("pgbouncer", ["--version"]);
    return ["pgbouncer"];
  } catch {
    // There is none on the PATH.
  }
  try {
    const { root, libraryPath } = await debianProgram("pgbouncer");
    const copy = join(folder, "program");
    await cp(root, copy, { recursive: true, verbatimSymlinks: true });
    return [
      `LD_LIBRARY_PATH=${libraryPath.replaceAll(root, copy)}`,
      join(copy, "usr", "sbin", "pgbouncer"),
    ];
  } catch (cause) {
    throw new Error("No pgbouncer was found. Install it, or name one in PGBOUNCER_BIN.", { cause });
  }
}
