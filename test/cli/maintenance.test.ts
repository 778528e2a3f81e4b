// Looking after a store: measuring, verifying, rebuilding, and telling a NATS server what it must allow.
import { join } from "node:path";
import Database from "better-sqlite3";
import { openEngine } from "millrace";
import { expect, it } from "vitest";
import { freshStoreUrl } from "../support/nats.js";
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
  database.exec("UPDATE jobs SET priority = 5, max_tries = 99, created_at = 5, tags = '[]'");
  database.close();
  const { code, out } = await run(place, ["verify"]);
  expect(code).toBe(4);
  for (const name of ["priority", "maxTries", "createdAt", "tags"])
    expect(out).toContain(`${name} is`);
});

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
  const { permissions } = await json<{ permissions: { publish: { allow: string[] } } }>(
    place,
    ...words,
  );
  expect(permissions.publish.allow).toContain("jobs.jobs.bakery.>");
  const shown = await onTerminal(place, ["nats", "permissions", "observer"]);
  expect(shown.text).toMatch(/^permissions: \{/);
  expect(await run(place, ["nats", "permissions", "king"])).toMatchObject({ code: 2 });
  expect(await run(place, ["nats", "permissions", "service"])).toMatchObject({ code: 2 });
});
