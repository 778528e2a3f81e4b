// What ships for running a server: its commands and settings exist, and each file is sound as far as can be told here.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { createProgram } from "#millrace/cli/program.js";
import { type Setting, settings } from "#millrace/cli/settings.js";
import { freshPlace, type Place, run, start } from "./millrace.js";

const root = new URL("../../", import.meta.url);
const read = (path: string) => readFile(new URL(path, root), "utf8");

/** The command that some words come to; words that mean nothing throw. */
async function commandOf(words: readonly string[]): Promise<string> {
  let name = "";
  const program = createProgram(async (command) => {
    name = command.name();
  });
  for (const command of [program, ...program.commands])
    command.exitOverride().configureOutput({ writeErr: () => {} });
  await program.parseAsync([...words], { from: "user" });
  return name;
}

const variables = new Set((Object.values(settings) as Setting[]).map(({ variable }) => variable));

function unknownVariables(text: string): readonly string[] {
  return [...text.matchAll(/\bMILLRACE_[A-Z_]+/g)]
    .map(([name]) => name)
    .filter((name) => !variables.has(name));
}

it("the image serves as a user without rights, and can be asked how it is", async () => {
  const text = await read("Dockerfile");
  const [, build = "", last = ""] = text.split(/^FROM /m);
  expect(build).toContain("AS build");
  const instruction = (name: string) => new RegExp(`^${name} (.+)$`, "m").exec(last)?.[1];
  expect(instruction("USER")).toBe("node");
  expect(JSON.parse(instruction("ENTRYPOINT") ?? "")).toEqual(["millrace"]);
  expect(await commandOf(JSON.parse(instruction("CMD") ?? ""))).toBe("server");
  expect(last).toMatch(/^HEALTHCHECK [\s\S]*"\/app\/health\.mjs"\]$/m);
  // What is copied is there, and nothing that is left out is needed.
  const copied = [...text.matchAll(/^COPY (?!--from)(.+) \S+$/gm)].flatMap(
    ([, paths]) => paths?.split(" ") ?? [],
  );
  const ignored = (await read(".dockerignore")).trim().split("\n");
  expect(copied.filter((path) => ignored.includes(path))).toEqual([]);
  for (const path of copied.filter((name) => name !== "src")) await read(path);
  const versions = JSON.parse(await read("package.json")).devDependencies as Record<string, string>;
  for (const [, name = "", version] of text.matchAll(/ ((?:@[\w-]+\/)?[\w-]+)@(\d[\w.-]+)/g))
    expect(version, name).toBe(versions[name]);
});

/** The settings that the image has, on a free port, and what else a container is started with. */
async function imagePlace(more: { readonly [name: string]: string }): Promise<Place> {
  const text = await read("Dockerfile");
  const own = [...text.matchAll(/^ENV (MILLRACE_\w+)=(\S+)$/gm)].map(([, name, value]) => {
    return [name, value?.replace(":8080", ":0")];
  });
  return freshPlace({ ...Object.fromEntries(own), MILLRACE_URL: "memory:", ...more });
}

/** The exit code of the image's health check. */
async function health(environment: { readonly [name: string]: string }): Promise<number | null> {
  const path = fileURLToPath(new URL("deploy/health.mjs", root));
  const child = spawn(process.execPath, [path], { env: { ...process.env, ...environment } });
  return (await once(child, "exit"))[0];
}

it("the image is reached from outside, and only where callers are asked or consent is given", async () => {
  const refused = await run(await imagePlace({}), ["server"]);
  expect(refused.code).not.toBe(0);
  expect(refused.err).toContain("0.0.0.0:0 is not loopback");
  const place = await imagePlace({ MILLRACE_UNSAFE_BIND: "1" });
  const server = start(place, ["server"]);
  const port = await server.says(/http:\/\/0\.0\.0\.0:(\d+)/);
  expect(await health({ MILLRACE_BIND: `0.0.0.0:${port}` })).toBe(0);
  server.child.kill("SIGTERM");
  await server.ended;
  expect(await health({ MILLRACE_BIND: `0.0.0.0:${port}` })).toBe(1);
});

it("the health check of the image sees a server with certificates, of its callers as well", async () => {
  const { folder } = await freshPlace();
  const files = ["-keyout", "server.key", "-out", "server.pem", "-subj", "/CN=jobs.example"];
  const kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
  await promisify(execFile)("openssl", ["req", ...kind, ...files], { cwd: folder });
  const tls = {
    MILLRACE_TLS_CERT: join(folder, "server.pem"),
    MILLRACE_TLS_KEY: join(folder, "server.key"),
  };
  for (const more of [{}, { MILLRACE_TLS_CLIENT_CA: tls.MILLRACE_TLS_CERT }]) {
    const server = start(await imagePlace({ ...tls, ...more }), ["server"]);
    const port = await server.says(/https:\/\/0\.0\.0\.0:(\d+)/);
    expect(await health({ MILLRACE_BIND: `0.0.0.0:${port}`, ...tls })).toBe(0);
  }
});

it("the compose file runs servers with commands and settings that exist, on loopback", async () => {
  const text = await read("compose.yaml");
  const commands = [...text.matchAll(/build: \.\n +command:\s*(\[[^\]]*\])/g)];
  expect(commands.length).toBe(2);
  for (const [, words = ""] of commands) {
    // A list in YAML may end with a comma, one in JSON may not.
    const list = JSON.parse(words.replace(/,\s*\]$/, "]")) as string[];
    expect(await commandOf(list)).toBe("server");
  }
  expect(unknownVariables(text)).toEqual([]);
  const ports = [...text.matchAll(/^ +- "([\d.:]+)"$/gm)].map(([, port]) => port);
  expect(ports.length).toBe(2);
  for (const port of ports) expect(port).toMatch(/^127\.0\.0\.1:/);
  expect(text).toContain("sync_interval: always");
});

it("systemd takes the unit", async () => {
  const path = fileURLToPath(new URL("deploy/millrace.service", root));
  const text = await readFile(path, "utf8");
  const start = /^ExecStart=\/usr\/bin\/env millrace (.+)$/m.exec(text)?.[1] ?? "";
  expect(await commandOf(start.split(" "))).toBe("server");
  expect(unknownVariables(text)).toEqual([]);
  // Only where systemd is installed can it be asked.
  const isThere = await promisify(execFile)("which", ["systemd-analyze"]).catch(() => null);
  if (isThere === null) return;
  const { stderr } = await promisify(execFile)("systemd-analyze", ["verify", path]);
  expect(stderr).toBe("");
});
