// The code of the guides runs. Each module of a page is a program, carried out in a folder of its own on a real store, and
// prints what its comments `// → …` say, in any order (`…` within one stands for anything). What a page needs besides what it
// shows, a handler that is asked or a job that is created, stands in its comments `<!-- then … -->`.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { createInterface } from "node:readline";
import { permissionsOf, permissionsText, type Role } from "millrace/nats";
import { expect, it, onTestFinished } from "vitest";
import { ownNats } from "./support/nats.js";
import { type Module, modulesOf, type Page, readPages, userProject } from "./support/pages.js";
import { freshDatabase } from "./support/postgres.js";

const theEnd = "(the end of the module)";

/** Pages whose parts are promised to work as shown; others join in by telling what they print. */
const alwaysRun = [
  "hooks",
  "isolation",
  "middleware-and-routes",
  "remote-handlers",
  "retention",
  "schedules",
  "signing-and-secrets",
  "webhooks",
];

/** The users that pages name, who may do no more than what the pages say of them; whoever names none may do everything. */
const users: { readonly [user: string]: Role } = {
  app: { kind: "admin" },
  admin: { kind: "admin" },
  anna: { kind: "operator" },
};

async function guardedNats(): Promise<string> {
  const entries = Object.entries(users).map(([user, role]) => {
    const permissions = permissionsText(permissionsOf({ prefix: "mailing" }, role));
    return `{ user: ${user}, password: secret, ${permissions} }`;
  });
  const everybody = "{ user: everybody, password: secret }";
  const config = `authorization { users: [ ${[...entries, everybody].join(", ")} ] }\nno_auth_user: everybody`;
  return new URL((await ownNats({ config })).url).host;
}

/** What stands for an address that a page names. */
const standIns: { readonly [address: string]: () => Promise<string> } = {
  "localhost:4222": guardedNats,
  "/var/lib/millrace/jobs.sqlite": async () => "jobs.sqlite",
  "postgres://shop@localhost/shop": freshDatabase,
  "postgres://app:secret@localhost:5432/app": freshDatabase,
  "9000": async () => {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    await once(server.close(), "close");
    return `${port}`;
  },
};

function toldBy({ lines }: Module): readonly string[] {
  return lines.flatMap((line) => /\/\/ → (.+)$/.exec(line)?.[1] ?? []);
}

async function withStandIns(modules: readonly Module[]): Promise<readonly Module[]> {
  const text = modules.flatMap(({ lines }) => lines).join("\n");
  const named = Object.entries(standIns).filter(([address]) => text.includes(address));
  const found = await Promise.all(
    named.map(async ([address, standIn]) => [address, await standIn()] as const),
  );
  const replace = (line: string) =>
    found.reduce((replaced, [address, standIn]) => replaced.replaceAll(address, standIn), line);
  return modules.map(({ path, lines }) => ({ path, lines: lines.map(replace) }));
}

/** Runs a module until it has come to its end and printed so many lines. Gives what it printed and what it complained about. */
async function run(folder: string, path: string, count: number) {
  const cwd = await mkdtemp(join(tmpdir(), "millrace-guide-"));
  onTestFinished(() => rm(cwd, { recursive: true, force: true }));
  const words = ["--import", import.meta.resolve("tsx"), join(folder, "run.mjs")];
  const child = spawn(process.execPath, [...words, join(folder, path)], {
    cwd,
    stdio: ["ignore", "pipe", "pipe"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  let complaints = "";
  child.stderr.on("data", (data: Buffer) => {
    complaints += data.toString();
  });
  const out: string[] = [];
  let hasEnded = false;
  for await (const line of createInterface({ input: child.stdout })) {
    if (line === theEnd) hasEnded = true;
    else out.push(line);
    if (hasEnded && out.length >= count) break;
  }
  if (!hasEnded) complaints += "\nIt has ended before the end of the module.";
  child.kill("SIGKILL");
  return { out, complaints };
}

/** The lines, with those that a line of the page stands for replaced by it. */
function asTold(out: readonly string[], told: readonly string[]): readonly string[] {
  const left = [...told];
  const named = out.map((line) => {
    const index = left.findIndex((pattern) => {
      const parts = pattern
        .split("…")
        .map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&"));
      return new RegExp(`^${parts.join(".*")}$`).test(line);
    });
    return index === -1 ? line : (left.splice(index, 1)[0] ?? line);
  });
  return named.sort();
}

const guides = (await readPages()).filter(({ path }) => path.startsWith("docs/guides/"));
const nameOf = ({ path }: Page) => basename(path, ".md");
const told = guides.filter((page) => modulesOf(page).some((each) => toldBy(each).length > 0));

it("every part has a guide that runs", () => {
  expect(told.map(nameOf)).toEqual(expect.arrayContaining(alwaysRun));
});

it.for(told)("$path", { timeout: 120_000 }, async (page) => {
  const modules = await withStandIns(modulesOf(page));
  const folder = await userProject(modules);
  const main = `await import(process.argv[2]);\nconsole.log(${JSON.stringify(theEnd)});\n`;
  await writeFile(join(folder, "run.mjs"), main);
  for (const module of modules) {
    const expected = toldBy(module).toSorted();
    const { out, complaints } = await run(folder, module.path, expected.length);
    expect({ complaints, out: asTold(out, expected) }).toEqual({ complaints: "", out: expected });
  }
});
