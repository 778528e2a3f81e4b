// Where a command goes: flags over environment over file over context, and secrets that stay secret.
import { statSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { gather, type Setting, settings } from "#millrace/cli/settings.js";
import { targetOf } from "#millrace/cli/target.js";
import { freshPlace, run } from "./millrace.js";

const contexts = {
  current: "live",
  contexts: {
    live: { server: "https://live.example", token: "live-secret" },
    local: { url: "file:local.db" },
  },
};

function target(
  options: Record<string, unknown>,
  environment: Record<string, string> = {},
  known: Parameters<typeof targetOf>[1] = () => contexts,
) {
  return targetOf(gather(options, environment), known);
}

describe("the place that a command works on", () => {
  it.for([
    {
      says: "a flag wins over the environment",
      flags: { url: "file:a.db" },
      environment: { MILLRACE_SERVER: "https://b.example" },
      goes: { kind: "store", url: "file:a.db" },
    },
    {
      says: "the environment wins over the context in use",
      flags: {},
      environment: { MILLRACE_URL: "file:b.db" },
      goes: { kind: "store", url: "file:b.db" },
    },
    {
      says: "the context in use wins over the default",
      flags: {},
      environment: {},
      goes: { kind: "server", url: "https://live.example", token: "live-secret" },
    },
    {
      says: "a context that is named brings its own token, and not the environment's",
      flags: { context: "live" },
      environment: { MILLRACE_TOKEN: "another" },
      goes: { kind: "server", url: "https://live.example", token: "live-secret" },
    },
    {
      says: "a token as a flag wins",
      flags: { context: "live", token: "flag" },
      environment: {},
      goes: { kind: "server", url: "https://live.example", token: "flag" },
    },
    {
      says: "a server takes the token of the environment",
      flags: { server: "https://c.example/" },
      environment: { MILLRACE_TOKEN: "secret" },
      goes: { kind: "server", url: "https://c.example", token: "secret" },
    },
    {
      says: "a context may be a store",
      flags: { context: "local" },
      environment: {},
      goes: { kind: "store", url: "file:local.db" },
    },
  ])("$says", ({ flags, environment, goes }) => {
    expect(target(flags, environment)).toEqual(goes);
  });

  it("is a file in the folder when nobody says anything", () => {
    expect(target({}, {}, () => ({ contexts: {} }))).toEqual({
      kind: "store",
      url: "file:millrace.db",
    });
  });

  it("must be one, and make sense", () => {
    expect(() => target({ url: "file:a.db", server: "https://b.example" })).toThrow("not several");
    expect(() => target({ server: "b.example" })).toThrow("http://… or https://…");
    expect(() => target({ context: "nowhere" })).toThrow("there are: live, local");
  });
});

it("a configuration file counts less than the environment and more than a context, and is checked", async () => {
  const place = await freshPlace();
  const file = join(place.folder, "millrace.config.json");
  const info = async (environment = {}) => {
    const { out, err, code } = await run({ ...place, environment }, ["info", "--json"]);
    return code === 0 ? JSON.parse(out).engine.url : `${code} ${err}`;
  };
  await run(place, ["context", "add", "here", "--url", "file:context.db"]);
  expect(await info()).toBe("file:context.db");
  await writeFile(file, JSON.stringify({ url: "file:file.db" }));
  expect(await info()).toBe("file:file.db");
  expect(await info({ MILLRACE_URL: "file:variable.db" })).toBe("file:variable.db");
  await writeFile(file, JSON.stringify({ uri: "file:file.db" }));
  expect(await info()).toContain('2 {"error":{"code":"usage","message":"\\"uri\\"');
  expect(await info({ MILLRACE_CONFIG: "none.json" })).toContain("none.json cannot be read");
});

it("contexts keep tokens to themselves", async () => {
  const place = await freshPlace({ MILLRACE_TOKEN: "mr_secret" });
  const add = ["context", "add", "live", "--server", "http://127.0.0.1:9", "--json"];
  const all = [
    await run(place, add),
    await run(place, ["context", "add", "other", "--url", "postgres://anna:hidden@db/app"]),
    await run(place, ["context", "list"]),
    await run(place, ["context", "list", "--json"]),
    await run(place, ["context", "use", "live"]),
    await run(place, ["job", "list"]),
  ];
  expect(all.map(({ code }) => code)).toEqual([0, 0, 0, 0, 0, 5]);
  expect(JSON.parse(all[3]?.out ?? "")).toEqual({
    entries: [
      { name: "live", inUse: true, server: "http://127.0.0.1:9", hasToken: true },
      { name: "other", inUse: false, url: "postgres://db/app", hasToken: false },
    ],
  });
  expect(JSON.stringify(all)).not.toMatch(/mr_secret|hidden/);
  const file = join(place.folder, "config", "millrace", "contexts.json");
  expect(statSync(file).mode & 0o777).toBe(0o600);
  expect(await readFile(file, "utf8")).toContain("mr_secret");
  expect(await run(place, ["context", "remove", "live"])).toMatchObject({ code: 2 });
  expect(await run(place, ["context", "remove", "live", "--yes"])).toMatchObject({ code: 0 });
  expect(await run(place, ["context", "use", "live"])).toMatchObject({ code: 3 });
});

it("the guide lists every setting", async () => {
  const guide = await readFile(
    new URL("../../docs/guides/configuration.md", import.meta.url),
    "utf8",
  );
  const cell = (text: string | undefined) => (text === undefined ? "" : `\`${text}\``);
  const rows = (Object.values(settings) as Setting[]).map((setting) => {
    const { flag, variable, key, says, commands } = setting;
    const where = commands === "all" ? "all" : commands.join(", ");
    return `| ${cell(flag)} | ${cell(variable)} | ${cell(key)} | ${setting.default ?? ""} | ${where} | ${says} |`;
  });
  const table = guide
    .split("\n")
    .filter((line) => line.startsWith("| ") && !line.startsWith("| flag |"));
  expect(table).toEqual(rows);
});
