// Real processes on one SQLite file: workers are killed and paused past their leases while thousands of
// jobs run. Nothing is lost, no limit is exceeded, and no outcome is recorded twice.
import { mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "better-sqlite3";
import { expect, it, onTestFinished } from "vitest";
import { runCrash } from "./crash.js";

const workers = 3;
const jobs = 2_000;
const walBytesMax = 80 * 1024 * 1024;

it("loses nothing and exceeds nothing while workers are killed and paused", {
  timeout: 240_000,
}, async () => {
  const folder = await mkdtemp(join(tmpdir(), "millrace-crash-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const path = join(folder, "jobs.db");
  const { engine, fleet, acknowledged } = await runCrash({
    url: `file:${path}`,
    folder,
    workers,
    creators: 1,
    jobs,
    excused: [],
    trouble: (fleet, random) => fleet.trouble(random),
  });
  expect(acknowledged).toBeGreaterThan(jobs / 2);
  expect(fleet.killed).toHaveLength(3 * workers);
  expect(fleet.pauses).toBe(4 * workers);

  expect((await stat(`${path}-wal`)).size).toBeLessThan(walBytesMax);
  await engine.close();
  const database = new Database(path);
  expect(database.pragma("integrity_check", { simple: true })).toBe("ok");
  database.close();
});
