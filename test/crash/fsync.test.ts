// SIGKILL does not test durability, because the kernel keeps what was written. So the syncs of the
// write-ahead log are counted: no create is acknowledged without one, and many creates share one.
import { execFileSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it, onTestFinished } from "vitest";
import { startChild } from "./children.js";
import type { SyncedCall, SyncReport } from "./syncing.js";

const creates = 40;
const together = 2_000;
const runs = 20;

/** A job that ran was created, claimed and settled, each with an acknowledgement of its own. */
const syncsPerRun = 3;

it("syncs before every acknowledgement, and once for many at a time", {
  timeout: 60_000,
}, async () => {
  const { folder, library } = await syncLibrary();
  const counter = join(folder, "syncs");
  const url = `file:${join(folder, "jobs.db")}`;
  const counts = [creates, together, runs].map(String);
  const child = startChild("./syncing.ts", [url, counter, ...counts], {
    environment: { LD_PRELOAD: library, FSYNC_COUNTER: counter },
  });
  const { code, lines, errors } = await child.ended;
  expect({ code, errors }).toEqual({ code: 0, errors: "" });
  const report = JSON.parse(lines[0] ?? "") as SyncReport;

  expect(report.creates).toHaveLength(creates);
  expect(withFewerSyncs(report.creates, 1)).toEqual([]);
  expect(report.together).toHaveLength(together);
  expect(withFewerSyncs(report.together, 1)).toEqual([]);
  expect(report.togetherSyncs).toBeLessThan(together / 20);
  expect(report.runs).toHaveLength(runs);
  expect(withFewerSyncs(report.runs, syncsPerRun)).toEqual([]);
});

it("acknowledges nothing after the disk has failed to sync", { timeout: 60_000 }, async () => {
  const { folder, library } = await syncLibrary();
  const child = startChild("./failing-sync.ts", [`file:${join(folder, "jobs.db")}`], {
    environment: { LD_PRELOAD: library, FDATASYNC_FAILS: "1" },
  });
  const { code, lines, errors } = await child.ended;
  expect({ code, errors }).toEqual({ code: 0, errors: "" });
  const failed = { tag: "StoreFailed", message: expect.stringContaining("Check the disk") };
  expect(JSON.parse(lines[0] ?? "")).toEqual([failed, failed]);
});

/** The library that stands between a process and its syncs, in a folder of its own. */
async function syncLibrary(): Promise<{ readonly folder: string; readonly library: string }> {
  const folder = await mkdtemp(join(tmpdir(), "millrace-fsync-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const library = join(folder, "fsync-counter.so");
  const source = fileURLToPath(new URL("./fsync-counter.c", import.meta.url));
  execFileSync("cc", ["-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"]);
  return { folder, library };
}

function withFewerSyncs(calls: readonly SyncedCall[], least: number): readonly SyncedCall[] {
  return calls.filter(({ before, after }) => after - before < least);
}
