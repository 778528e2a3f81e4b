// Debian's packages without installing them: fetched from the machine's own mirror, as apt does it for
// the machine but with lists and caches of its own, and unpacked into a folder.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** Longer than any mirror takes. */
const fetchTimeoutMs = 60_000;

/** The keys that Debian signs with, by the names that its package of keys has had. */
const keyrings = [
  "/usr/share/keyrings/debian-archive-keyring.gpg",
  "/usr/share/keyrings/debian-archive-keyring.pgp",
] as const;

/** Libraries that every machine with Node has; another version of them beside it would only do harm. */
const everywhere = new Set(["libc6", "libgcc-s1", "libstdc++6"]);

/** What an unpacked program needs to be run. */
export interface Unpacked {
  /** The folder that stands for `/`. */
  readonly root: string;
  /** The value of LD_LIBRARY_PATH by which its programs find their libraries. */
  readonly libraryPath: string;
}

/** The folder for what is fetched once and kept. */
export function cacheFolder(): string {
  const given = process.env.XDG_CACHE_HOME;
  const cache = given === undefined || given === "" ? join(homedir(), ".cache") : given;
  return join(cache, "millrace");
}

/**
 * The packages of this machine's own release, together with the libraries that they name, unpacked in
 * the cache by an earlier call or by this one. The first package names the folder.
 */
export async function debianProgram(
  ...packages: readonly [string, ...string[]]
): Promise<Unpacked> {
  const suite = await ownRelease();
  const root = join(cacheFolder(), `${packages[0]}-${suite}-${process.arch}`);
  if (!existsSync(root)) {
    await mkdir(dirname(root), { recursive: true });
    // A folder of each call's own, and one rename at the end: several may do this at once.
    const folder = await mkdtemp(`${root}-`);
    try {
      const unpacked = await unpackDebian(folder, suite, packages, { withLibraries: true });
      await rename(unpacked, root).catch((error) => {
        if (error.code !== "ENOTEMPTY" && error.code !== "EEXIST") throw error;
      });
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }
  return { root, libraryPath: await libraryPathOf(root) };
}

/** Fetches packages of a release, and gives the folder below `folder` that they are unpacked in. */
export async function unpackDebian(
  folder: string,
  suite: string,
  packages: readonly string[],
  { withLibraries = false } = {},
): Promise<string> {
  const options = await listsOf(folder, suite);
  const unpacked = join(folder, "unpacked");
  const archives = await download(folder, options, packages);
  if (withLibraries) {
    const named = await Promise.all(archives.map(librariesOf));
    const libraries = [...new Set(named.flat())].filter((name) => !packages.includes(name));
    if (libraries.length > 0) archives.push(...(await download(folder, options, libraries)));
  }
  for (const archive of archives) await run("dpkg", ["-x", archive, unpacked]);
  return unpacked;
}

/** Learns what a release holds, and gives the options by which apt uses these lists alone. */
async function listsOf(folder: string, suite: string): Promise<readonly string[]> {
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
  return options;
}

/** Fetches packages into a folder of their own, and gives the paths of what came. */
async function download(
  folder: string,
  options: readonly string[],
  packages: readonly string[],
): Promise<string[]> {
  const into = await mkdtemp(join(folder, "packages-"));
  await run("apt-get", [...options, "download", ...packages], {
    cwd: into,
    timeout: fetchTimeoutMs,
  });
  return (await readdir(into)).map((name) => join(into, name));
}

/** The libraries that a package names; what these need in turn is on every machine that has a shell. */
async function librariesOf(archive: string): Promise<readonly string[]> {
  const { stdout } = await run("dpkg-deb", ["--field", archive, "Depends"]);
  return stdout
    .split(",")
    .map((dependency) => /^\s*([a-z0-9.+-]+)/.exec(dependency)?.[1] ?? "")
    .filter((name) => name.startsWith("lib") && !everywhere.has(name));
}

/** Libraries stand in a folder named after the processor, below one of two. */
async function libraryPathOf(root: string): Promise<string> {
  const folders: string[] = [];
  for (const place of ["lib", "usr/lib"]) {
    const entries = await readdir(join(root, place)).catch(() => []);
    for (const entry of entries)
      if (entry.endsWith("-linux-gnu")) folders.push(join(root, place, entry));
  }
  return folders.join(":");
}

/** The name of the release that this machine runs. */
async function ownRelease(): Promise<string> {
  const text = await readFile("/etc/os-release", "utf8").catch(() => "");
  const release = /^VERSION_CODENAME=(\w+)$/m.exec(text)?.[1];
  if (release === undefined) throw new Error("This machine runs no release of Debian.");
  return release;
}

/** The address that this machine gets its own release from. */
async function mirror(options: readonly string[]): Promise<string> {
  const release = await ownRelease();
  const { stdout } = await run("apt-get", [...options, "update", "--print-uris"]);
  const address = new RegExp(`^'(\\S+)/dists/${release}/InRelease'`, "m").exec(stdout)?.[1];
  if (address === undefined) throw new Error("apt-get knows no mirror of this machine's release.");
  return address;
}
