/**
 * What the doctor looks at on this machine: Node.js, drivers, and the filesystem of a store's file.
 */
import { accessSync, constants, existsSync } from "node:fs";
import { statfs } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname } from "node:path";
import { type Finding, failed, note, ok, warning } from "./finding.js";

const nodeNeeded = [20, 20] as const;

/** Node.js is new enough. */
export function nodeFinding(version = process.versions.node): Finding {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const isEnough = major > nodeNeeded[0] || (major === nodeNeeded[0] && minor >= nodeNeeded[1]);
  const says = `Node.js is ${version}.`;
  return isEnough
    ? ok("node", says)
    : failed("node", says, `Millrace needs Node.js ${nodeNeeded.join(".")} or newer.`);
}

/** The first better-sqlite3 that needs a newer Node-API, and the Node-API that it needs. */
const sqliteMajorNew = 13;
const napiNeeded = 10;

/** The driver of SQLite is there, and does not crash this Node.js. */
export function sqliteDriverFinding(
  version = packageVersionOf("better-sqlite3"),
  napi = Number(process.versions.napi),
): Finding {
  const check = "driver";
  const remedy = "npm install better-sqlite3@^12.11.1";
  if (version === null) return failed(check, "better-sqlite3 is not installed.", remedy);
  const says = `better-sqlite3 is ${version}.`;
  const crashes = Number.parseInt(version, 10) >= sqliteMajorNew && napi < napiNeeded;
  if (!crashes) return ok(check, says);
  return failed(
    check,
    `${says} It crashes Node.js ${process.versions.node}.`,
    `${remedy}, or use a newer Node.js.`,
  );
}

/** A driver is installed. */
export function driverFinding(name: string, version = packageVersionOf(name)): Finding {
  return version === null
    ? failed("driver", `${name} is not installed.`, `npm install ${name}`)
    : ok("driver", `${name} is ${version}.`);
}

function packageVersionOf(name: string): string | null {
  try {
    const found = createRequire(import.meta.url)(`${name}/package.json`) as { version: string };
    return found.version;
  } catch {
    return null;
  }
}

/** The numbers by which the system names filesystems on which SQLite cannot share its memory between processes. */
const networkFilesystems: Readonly<Record<number, string>> = {
  26985: "NFS",
  20859: "SMB",
  4283649346: "CIFS",
  4266872130: "SMB 2",
  16914839: "9p",
  1702057286: "FUSE",
  1397113167: "AFS",
  12805120: "Ceph",
  198183888: "Lustre",
  18225520: "GFS 2",
};

const freeWarnBytes = 1024 ** 3;
const freeMinBytes = 64 * 1024 ** 2;

/** The folder of a file is there, may be written, is on a local disk, and has room. */
export async function filesystemFindings(path: string): Promise<readonly Finding[]> {
  const folder = dirname(path);
  if (!existsSync(folder))
    return [failed("folder", `${folder} does not exist.`, `mkdir -p ${folder}`)];
  const { type, bavail, bsize } = await statfs(folder);
  return [
    writableFinding(existsSync(path) ? [folder, path] : [folder]),
    kindFinding(type),
    roomFinding(bavail * bsize),
  ];
}

function writableFinding(paths: readonly string[]): Finding {
  for (const path of paths) {
    try {
      accessSync(path, constants.R_OK | constants.W_OK);
    } catch {
      return failed(
        "writable",
        `This user may not write ${path}.`,
        `Give this user the right, or use another folder.`,
      );
    }
  }
  return ok("writable", `${paths.at(-1)} may be written.`);
}

/** What is to be said of a kind of filesystem. */
export function kindFinding(type: number): Finding {
  const name = networkFilesystems[type >>> 0];
  if (name === undefined) return ok("filesystem", "The file is on a local filesystem.");
  const says = `The file is on ${name}, where WAL mode and fsync are not to be trusted.`;
  const remedy = "Put it on a local disk, or use postgres:// for many machines.";
  return name === "FUSE" ? warning("filesystem", says, remedy) : failed("filesystem", says, remedy);
}

/** What is to be said of the room that is left. */
export function roomFinding(freeBytes: number): Finding {
  const says = `${(freeBytes / 1024 ** 3).toFixed(1)} GiB are free.`;
  const remedy = "Make room, or shorten retention.";
  if (freeBytes < freeMinBytes) return failed("room", says, remedy);
  return freeBytes < freeWarnBytes ? warning("room", says, remedy) : ok("room", says);
}

/** Where there is nothing to look at yet. */
export function notThereYet(what: string): Finding {
  return note("store", `${what} is not there yet; it is made at the first start.`);
}
