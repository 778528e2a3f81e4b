// The OpenAPI document: it is valid, it says what routes need, and a client that is generated from it works.
import { execFile } from "node:child_process";
import { mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Validator } from "@seriousme/openapi-schema-validator";
import { generateApi } from "swagger-typescript-api";
import { describe, expect, it, onTestFinished } from "vitest";
import { refusalCodes } from "#millrace/server/http/refusal.js";
import { routes } from "#millrace/server/http/routes/all.js";
import { openServer } from "./api.js";
import { apiDocument, operations } from "./documented.js";
import { program } from "./generated-client.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const run = promisify(execFile);

describe("the document", () => {
  it("is valid OpenAPI 3.1", async () => {
    const validator = new Validator();
    const { valid, errors } = await validator.validate({ ...structuredClone(apiDocument) });
    expect(errors).toBeUndefined();
    expect([valid, validator.version]).toEqual([true, "3.1"]);
  });

  it("names every operation once, and every schema that it refers to", () => {
    const names = operations.map(({ operation }) => operation.operationId);
    expect(new Set(names).size).toBe(routes.length);
    const refs = JSON.stringify(apiDocument).matchAll(/"\$ref":"#\/components\/schemas\/(\w+)"/g);
    for (const [, name = ""] of refs) expect(apiDocument.components.schemas).toHaveProperty(name);
  });

  it("documents for every operation what any request may meet", () => {
    for (const { operation, path } of operations) {
      const statuses = Object.keys(operation.responses);
      const isOpen = ["/healthz", "/readyz"].includes(path);
      if (!isOpen)
        expect([path, ...statuses]).toEqual(expect.arrayContaining(["401", "403", "429"]));
      if (operation.requestBody) expect(statuses).toEqual(expect.arrayContaining(["400", "413"]));
    }
  });

  it("has the closed list of codes", () => {
    const { Error: error } = apiDocument.components.schemas as unknown as {
      readonly Error: { properties: { error: { properties: { code: { enum: string[] } } } } };
    };
    expect(error.properties.error.properties.code.enum).toEqual(Object.keys(refusalCodes));
  });
});

describe("a generated client", () => {
  it("compiles, and works against a server", async () => {
    const { api } = await openServer({ url: "memory:" });
    const folder = await mkdtemp(join(tmpdir(), "millrace-client-"));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    const spec = await (await api.send("GET", "/v1/openapi.json")).json();
    await generateApi({
      ...{ output: folder, fileName: "client.ts", spec, silent: true },
      ...{ httpClientType: "fetch", extractEnums: false },
    });
    await writeFile(join(folder, "program.ts"), program);
    await writeFile(join(folder, "package.json"), '{"type":"module"}');
    await symlink(join(root, "node_modules"), join(folder, "node_modules"));
    const checks = ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022"];
    const modules = ["--module", "nodenext", "--lib", "es2022,dom", "--types", "node"];
    const compiler = join(root, "node_modules", ".bin", "tsc");
    const compiled = run(compiler, [...checks, ...modules, "program.ts"], { cwd: folder });
    const faults = compiled.then(
      () => "",
      ({ stdout: told }: { stdout: string }) => told,
    );
    expect(await faults).toBe("");
    const { stdout } = await run(process.execPath, ["--import", "tsx", "program.ts", api.url], {
      cwd: folder,
    });
    expect(JSON.parse(stdout)).toEqual({
      ...{ outcome: "accepted", states: ["completed"], claimed: 1, result: { sent: true } },
      refusal: ["not_found", "job_not_found"],
    });
  }, 120_000);
});
