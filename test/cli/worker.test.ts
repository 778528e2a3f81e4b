// Workers and servers as commands: modules of every kind, what is wrong with one, and stopping.
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { openEngine } from "millrace";
import { describe, expect, it } from "vitest";
import { recordId } from "#millrace/engine/record.js";
import { freshPlace, json, onTerminal, type Place, run, start } from "./millrace.js";
import { bakeryModule } from "./tour.js";

const packageUrl = new URL("../../dist/index.js", import.meta.url).href;

async function withModule(name: string, lines: readonly string[]): Promise<Place> {
  const place = await freshPlace();
  const opening = `import { connect, defineJob, defineService } from ${JSON.stringify(packageUrl)};`;
  const schema = `const schema = { "~standard": { version: 1, vendor: "test", validate: (value) => ({ value }) } };`;
  await writeFile(join(place.folder, name), [opening, schema, ...lines].join("\n"));
  return place;
}

const contractLine = `export const contract = defineService("mail", { send: defineJob({ payload: schema }) });`;

describe("a worker", () => {
  it("runs a module in JavaScript whose function connects the service, and drains on SIGTERM", async () => {
    const place = await withModule("worker.js", [
      contractLine,
      "export default async (options) => {",
      "  const service = await connect(contract, options);",
      "  service.jobs.send.handle(async ({ payload }) => ({ sent: payload.to }));",
      "  return service;",
      "};",
    ]);
    const worker = start(place, [
      "worker",
      "worker.js",
      "--instance",
      "post-1",
      "--log-level",
      "warn",
    ]);
    await worker.says("mail runs as post-1");
    const words = ["job", "create", "mail", "send", '{"to":"anna"}', "--wait", "--timeout", "20s"];
    const { out } = await run(place, words);
    expect(JSON.parse(out)).toEqual({ sent: "anna" });
    worker.child.kill("SIGTERM");
    const ended = await worker.ended;
    expect(ended).toMatchObject({ code: 0, out: "" });
    expect(ended.err).toContain("Stopping");
  });

  it("gives a job back that does not end in time", async () => {
    const place = await freshPlace();
    const worker = start(place, ["worker", bakeryModule, "--grace", "100ms"]);
    await worker.says("bakery runs");
    const { id } = await json<{ id: string }>(place, "job", "create", "bakery", "rise", "{}");
    const watching = start(place, ["job", "watch", id]);
    await watching.says("started");
    worker.child.kill("SIGINT");
    expect((await worker.ended).code).toBe(0);
    expect(await json(place, "job", "get", id)).toMatchObject({ state: "pending", tries: 0 });
  });

  it("is not started with a contract that nobody has accepted", async () => {
    const place = await withModule("worker.js", [
      contractLine.replace("send:", "deliver:"),
      "export default { contract, handlers: { deliver: async () => {} } };",
    ]);
    const before = await withModule("before.js", [contractLine, "export default { contract };"]);
    const url = `file:${join(place.folder, "millrace.db")}`;
    await run(before, ["contract", "accept", "before.js", "--url", url]);
    const refused = await run(place, ["worker", "worker.js"]);
    expect(refused.code).toBe(4);
    const migration = /--accept-migration (\S+)/.exec(refused.err)?.[1] ?? "";
    const diff = await run(place, ["contract", "diff", "worker.js"]);
    expect(diff).toMatchObject({ code: 4, err: expect.stringContaining(migration) });
    const worker = start(place, ["worker", "worker.js", "--accept-migration", migration]);
    await worker.says("mail runs");
  });

  it("is started once a stored contract that is broken was replaced", async () => {
    const place = await withModule("worker.js", [
      contractLine,
      "export default { contract, handlers: { send: async () => {} } };",
    ]);
    const engine = await openEngine(`file:${join(place.folder, "millrace.db")}`);
    const body = { manifest: { manifest: 1, jobs: [null] } };
    await engine.swap([{ id: recordId.contract("mail"), expect: 0, body }]);
    await engine.close();
    const diff = await run(place, ["contract", "diff", "worker.js"]);
    expect(diff).toMatchObject({ code: 4, out: expect.stringContaining("contract is broken") });
    const migration = /--migration (\S+)/.exec(diff.err)?.[1] ?? "";
    const accept = ["contract", "accept", "worker.js"];
    expect((await run(place, accept)).code).toBe(4);
    expect((await run(place, [...accept, "--migration", migration])).code).toBe(0);
    await start(place, ["worker", "worker.js"]).says("mail runs");
  });

  it.for([
    { lines: ["export default 7;"], says: "exports no contract" },
    { lines: ["export default () => 7;"], says: "must give a connected service" },
    { lines: ["throw new Error('Out of order.');"], says: "Out of order." },
    { lines: ["export default {;"], says: "cannot be loaded" },
    {
      lines: [
        contractLine,
        "export default { contract };",
        "Promise.reject(new Error('Nobody waits.'));",
      ],
      says: "Nobody waits.",
    },
    {
      lines: [contractLine, "export default { contract, handlers: { sned: () => {} } };"],
      says: "has no job sned",
    },
  ])("says what is wrong: $says", async ({ lines, says }) => {
    const place = await withModule("worker.js", lines);
    const { code, out, err } = await run(place, ["worker", "worker.js"]);
    expect(out).toBe("");
    expect(err).toContain(says);
    expect(err).not.toMatch(/^ +at /m);
    expect(code).toBeGreaterThan(0);
  });
});

describe("a server", () => {
  it("asks for tokens when it is told to, and the command line for one when it is refused", async () => {
    const place = await freshPlace();
    const server = start(place, ["server", "--bind", "127.0.0.1:0", "--auth", "token"]);
    const address = await server.says(/(http:\/\/127\.0\.0\.1:\d+)/);
    expect(await run(place, ["job", "list", "--server", address])).toMatchObject({
      code: 8,
      out: "",
    });
    // Whoever has the store can make the first token.
    const made = await run(place, ["token", "create", "reader", "--may", "admin.read"]);
    const secret = made.out.trim();
    const reader = { ...place, environment: { MILLRACE_SERVER: address, MILLRACE_TOKEN: secret } };
    expect(await run(reader, ["job", "list"])).toMatchObject({ code: 0 });
    const refused = await run(reader, ["job", "create", "shop", "pack", "{}"]);
    expect(refused).toMatchObject({ code: 8, out: "" });
    expect(refused.err).toContain("admin.mutate");
    server.child.kill("SIGTERM");
    expect(await server.ended).toMatchObject({ code: 0, out: `${address}\n` });
  });

  it("shows certificates, and asks for those of its clients", async () => {
    const place = await freshPlace();
    const file = (name: string) => join(place.folder, name);
    const openssl = (...words: string[]) =>
      promisify(execFile)("openssl", words, { cwd: place.folder });
    const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"];
    const subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"];
    await openssl("req", "-x509", ...key, ...subject, "-keyout", "key.pem", "-out", "cert.pem");
    const tls = ["--tls-cert", file("cert.pem"), "--tls-key", file("key.pem")];
    const bind = ["--bind", "127.0.0.1:0", "--tls-client-ca", file("cert.pem")];
    const server = start(place, ["server", ...bind, ...tls]);
    const address = await server.says(/(https:\/\/127\.0\.0\.1:\d+)/);
    const list = ["job", "list", "--server", address];
    expect(await run(place, list)).toMatchObject({ code: 5, out: "" });
    expect(await run(place, [...list, "--ca", "cert.pem"])).toMatchObject({ code: 5, out: "" });
    const own = ["--ca", "cert.pem", "--client-cert", "cert.pem", "--client-key", "key.pem"];
    expect(await run(place, [...list, ...own])).toMatchObject({ code: 0 });
    const made = ["job", "create", "shop", "pack", "{}", "--server", address, ...own];
    expect(await run(place, made)).toMatchObject({ code: 0 });
    const half = [...list, "--client-cert", "cert.pem"];
    expect(await run(place, half)).toMatchObject({ code: 2 });
  });

  it("says what is wrong with where it should listen", async () => {
    const place = await freshPlace();
    expect(await run(place, ["server", "--bind", "0.0.0.0:0"])).toMatchObject({
      code: 2,
      err: expect.stringContaining("--unsafe-bind"),
    });
    expect(await run(place, ["server", "--bind", "here"])).toMatchObject({ code: 2 });
    expect(await run(place, ["server", "--tls-cert", "cert.pem"])).toMatchObject({ code: 2 });
    expect(await run(place, ["server", "--url", "ftp://x"])).toMatchObject({ code: 5 });
  });

  it("stops on Ctrl-C at a terminal", async () => {
    const steps = [{ after: "until Ctrl-C.", type: "\u0003" }];
    const words = ["server", "--bind", "127.0.0.1:0", "--log-level", "silent"];
    const { code, text } = await onTerminal(await freshPlace(), words, { steps });
    expect({ code, isTrace: /^ +at /m.test(text) }).toEqual({ code: 0, isTrace: false });
  });
});

describe("dev", () => {
  const shop = fileURLToPath(new URL("../../examples/shop/service.ts", import.meta.url));

  it("draws on a terminal, and tells at the end how it went", async () => {
    const words = ["dev", shop, "--bind", "127.0.0.1:0"];
    const sample = ["--until-done", "--sample", "seconds=1", "--sample", "jobs=20"];
    const { code, raw, text } = await onTerminal(await freshPlace(), [...words, ...sample]);
    expect(code).toBe(0);
    expect(text).toMatch(/HTTP API +http:\/\/127\.0\.0\.1:\d+\/v1\/info/);
    expect(text).toContain("running now");
    expect(text).toContain("Summary");
    // The cursor is shown again.
    expect(raw.lastIndexOf("\u001b[?25h")).toBeGreaterThan(raw.lastIndexOf("\u001b[?25l"));
  });

  it("takes a free port where the usual one is in use, and serves without a module, too", async () => {
    const place = await freshPlace();
    const first = start(place, ["dev"]);
    const second = start(place, ["dev"]);
    const addresses = await Promise.all(
      [first, second].map((dev) => dev.says(/HTTP API +(\S+)\/v1/)),
    );
    expect(new Set(addresses).size).toBe(2);
    for (const address of addresses)
      expect(await run(place, ["job", "list", "--server", address])).toMatchObject({ code: 0 });
    for (const { child } of [first, second]) child.kill("SIGINT");
    expect([(await first.ended).code, (await second.ended).code]).toEqual([0, 0]);
  });
});
