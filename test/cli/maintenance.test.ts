// Looking after a store: measuring, verifying, rebuilding, and telling a NATS server what it must allow.
import { join } from "node:path";
import Database from "better-sqlite3";
import { openEngine } from "millrace";
import { expect, it } from "vitest";
import { freshStoreUrl } from "../support/nats.js";
import { execute, freshSchema } from "../support/postgres.js";
import { freshPlace, json, onTerminal, run } from "./millrace.js";
import { bakeryModule } from "./tour.js";

it("bench measures a store and leaves nothing behind", async () => {
  const place = await freshPlace();
  const url = `file:${join(place.folder, "jobs.db")}`;
  const { id } = await json<{ id: string }>(
    place,
    "job",
    "create",
    "shop",
    "pack",
    "{}",
    "--url",
    url,
  );
  const measured = await json(place, "bench", "--jobs", "100", "--url", url);
  expect(measured).toMatchObject({ jobs: 100, createsPerSecond: expect.any(Number) });
  const engine = await openEngine(url);
  try {
    const { entries } = await engine.query("jobs", { limit: 100 });
    expect(entries.map((row) => row.id)).toEqual([id]);
    const records = await engine.query("records", { prefix: "" });
    expect(records.filter((record) => record.id.includes("bench"))).toEqual([]);
  } finally {
    await engine.close();
  }
  const shown = await onTerminal(place, ["bench", "--jobs", "100", "--url", url]);
  expect(shown.text).toMatch(/drained +[\d,]+ jobs\/s/);
  const asked = await run(place, ["bench", "--server", "http://127.0.0.1:9"]);
  expect(asked).toMatchObject({ code: 2, err: expect.stringContaining("--url") });
});

it.for([
  { says: "as long as a flag says", flag: ["--audit-retention", "1h"], keptMs: 3_600_000 },
  { says: "as long as the environment says", flag: [], keptMs: 7_200_000 },
])("audit events of a command are kept $says", async ({ flag, keptMs }) => {
  const place = await freshPlace({ MILLRACE_AUDIT_RETENTION: "2h" });
  await json(place, "queue", "pause", "shop", "mail", ...flag);
  const engine = await openEngine(`file:${join(place.folder, "millrace.db")}`);
  const records = await engine.query("records", { prefix: "audit/" });
  await engine.close();
  const kept = records.map(({ body, expiresAt = 0 }) => expiresAt - (body as { at: number }).at);
  expect(kept).toEqual([keptMs]);
});

it("verify finds a log that was tampered with", async () => {
  const place = await freshPlace();
  const { id } = await json<{ id: string }>(place, "job", "create", "shop", "pack", "{}");
  await json(place, "job", "cancel", id);
  expect(await run(place, ["verify"])).toMatchObject({ code: 0 });
  const database = new Database(join(place.folder, "millrace.db"));
  database.exec("UPDATE ended SET state = 'completed'");
  database.close();
  const { code, out, err } = await run(place, ["verify"]);
  expect(code).toBe(4);
  expect(out).toContain(`view_equals_fold`);
  expect(out).toContain(id);
  expect(err).toContain("break the rules");
});

it("verify names what a list says otherwise than the log", async () => {
  const place = await freshPlace();
  await json(place, "job", "create", "shop", "pack", "{}", "--tag", "red");
  const database = new Database(join(place.folder, "millrace.db"));
  database.exec("UPDATE jobs SET priority = 5, max_tries = 99, tags = '[]'");
  database.close();
  const { code, out } = await run(place, ["verify"]);
  expect(code).toBe(4);
  for (const name of ["priority", "maxTries", "tags"]) expect(out).toContain(`${name} is`);
});

/** A store with a way to change its tables behind its back. */
interface Tampered {
  readonly url: string;
  readonly tamper: (sql: string) => Promise<unknown>;
}

const inFile = (path: string) => async (sql: string) => {
  const database = new Database(path);
  database.exec(sql);
  database.close();
};

const tampered: readonly { readonly name: string; readonly open: () => Promise<Tampered> }[] = [
  {
    name: "SQLite",
    open: async () => {
      const path = join((await freshPlace()).folder, "jobs.db");
      return { url: `file:${path}`, tamper: inFile(path) };
    },
  },
  {
    name: "PostgreSQL",
    open: async () => {
      const { url, schema, storeUrl } = await freshSchema();
      const path = `SET search_path = ${schema}`;
      return { url: storeUrl, tamper: (sql) => execute(url, path, sql) };
    },
  },
  {
    name: "a projection",
    open: async () => {
      const url = await freshStoreUrl();
      const path = new URL(url).searchParams.get("projection")?.slice("file:".length) ?? "";
      return { url, tamper: inFile(path) };
    },
  },
];

it.for(tampered)(
  "verify compares what lists by tag find with the log, on $name",
  async ({ open }) => {
    const { url, tamper } = await open();
    const place = await freshPlace({ MILLRACE_URL: url });
    const create = async (...tags: readonly string[]) => {
      const words = [
        "job",
        "create",
        "shop",
        "pack",
        "{}",
        ...tags.flatMap((tag) => ["--tag", tag]),
      ];
      return (await json<{ id: string }>(place, ...words)).id;
    };
    const [both, none] = [await create("red", "blue"), await create()];
    const gone = await create("green");
    await json(place, "job", "delete", gone, "--force", "--yes");
    const { entries } = await json<{ entries: { id: string }[] }>(place, "job", "list");
    expect(entries).toHaveLength(2);
    expect(await run(place, ["verify"])).toMatchObject({ code: 0 });
    await tamper(`DELETE FROM tags WHERE tag = 'red'`);
    await tamper(`INSERT INTO tags (tag, n) SELECT 'odd', n FROM jobs WHERE id = '${none}'`);
    await tamper(`INSERT INTO tags (tag, n) VALUES ('lost', 999999)`);
    const { code, out } = await run(place, ["verify"]);
    expect(code).toBe(4);
    expect(out).toContain(`Job ${both} has two stories: lists find it by the tags ["blue"]`);
    expect(out).toContain(`Job ${none} has two stories: lists find it by the tags ["odd"]`);
    expect(out).toContain(`is gone and has left the tags ["lost"] behind`);
  },
);

it("rebuild makes the lists of a NATS store anew, and says where there is nothing to do", async () => {
  const place = await freshPlace({ MILLRACE_URL: await freshStoreUrl() });
  const { id } = await json<{ id: string }>(place, "job", "create", "shop", "pack", "{}");
  expect(await json(place, "rebuild")).toMatchObject({ rebuilt: true, lag: 0 });
  expect(await json(place, "job", "list")).toMatchObject({ entries: [{ id }] });
  const shown = await onTerminal(place, ["rebuild"]);
  expect(shown.text).toContain("Rebuilt up to position");
  const file = await json(place, "rebuild", "--url", "file:jobs.db");
  expect(file).toEqual({ rebuilt: false });
});

it("permissions are printed as a NATS server takes them", async () => {
  const place = await freshPlace();
  const words = ["nats", "permissions", "service", "--module", bakeryModule, "--prefix", "jobs"];
  const { permissions, inboxPrefix } = await json<{
    permissions: { publish: { allow: string[] }; subscribe: { allow: string[] } };
    inboxPrefix: string;
  }>(place, ...words);
  expect(permissions.publish.allow).toContain("jobs.jobs.bakery.>");
  expect(permissions.subscribe.allow).toContain(`${inboxPrefix}.>`);
  const shown = await onTerminal(place, ["nats", "permissions", "observer"]);
  expect(shown.text).toMatch(/^# .* _INBOX\.millrace\._observer\.\r?\npermissions: \{/);
  expect(await run(place, ["nats", "permissions", "king"])).toMatchObject({ code: 2 });
  expect(await run(place, ["nats", "permissions", "service"])).toMatchObject({ code: 2 });
});
