// What goes wrong with a SQLite file outside Millrace: each fault is a typed error with a sentence that
// names the remedy, and nothing is half stored.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "better-sqlite3";
import { connect, openEngine, type StoreError } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { type ChildOptions, startChild } from "../crash/children.js";
import { contract, noWork } from "../crash/contract.js";
import type { OpenerReport } from "../crash/opener.js";

describe("a file that is not for this Millrace", () => {
  it("is refused when a newer version has written it, and left as it is", async () => {
    const path = await storeWithJobs(1);
    const database = new Database(path);
    database.pragma("user_version = 99");
    database.close();
    const before = hashOf(path);
    const fault = await faultOfOpening(path);
    expect(fault).toMatchObject({ _tag: "StoreTooNew", found: 99, known: expect.any(Number) });
    expect(fault.message).toMatch(/newer Millrace .*Upgrade/);
    expect(hashOf(path)).toBe(before);
  });

  it.each([
    ["its own mark", "PRAGMA application_id = 1234; CREATE TABLE notes (id INTEGER)"],
    ["no mark but tables", "CREATE TABLE notes (id INTEGER)"],
  ])("is refused when another program has written it, with %s", async (_mark, sql) => {
    const path = join(freshFolder(), "other.db");
    const database = new Database(path);
    database.exec(sql);
    database.close();
    const before = hashOf(path);
    const fault = await faultOfOpening(path);
    expect(fault._tag).toBe("StoreCorrupt");
    expect(fault.message).toMatch(/another program.*Name another file/);
    expect(hashOf(path)).toBe(before);
  });

  it("is refused when it is no database", async () => {
    const path = join(freshFolder(), "text.db");
    writeFileSync(path, "These are words and no database. ".repeat(200));
    const fault = await faultOfOpening(path);
    expect(fault._tag).toBe("StoreCorrupt");
    expect(fault.message).toMatch(/not a SQLite database.*Name another file/);
  });

  it("is told apart when it is damaged inside", async () => {
    const path = await storeWithJobs(500);
    const pageBytes = 4_096;
    const file = openSync(path, "r+");
    const noise = Buffer.alloc(pageBytes, 0xa5);
    for (let page = 2; page < statSync(path).size / pageBytes; page++) {
      writeSync(file, noise, 0, pageBytes, page * pageBytes);
    }
    const fault = await faultOf(async () => {
      const service = await connect(contract, { url: `file:${path}` });
      onTestFinished(() => service.stop());
      await service.jobs.quick.create(noWork).orThrow();
    });
    expect(fault._tag).toBe("StoreCorrupt");
    expect(fault.message).toMatch(/damaged.*Restore it from a backup/);
  });
});

describe("a place where no store can be", () => {
  it("is refused when the folder does not exist, and nothing is made", async () => {
    const folder = join(freshFolder(), "missing");
    const fault = await faultOfOpening(join(folder, "jobs.db"));
    expect(fault._tag).toBe("StoreUnavailable");
    expect(fault.message).toMatch(/Check that its folder exists/);
    expect(existsSync(folder)).toBe(false);
  });

  it("is refused when it is a folder", async () => {
    const fault = await faultOfOpening(freshFolder());
    expect(fault._tag).toBe("StoreUnavailable");
    expect(fault.message).toMatch(/cannot be opened/);
  });

  it("is refused when the folder may not be written", async () => {
    const folder = freshFolder();
    chmodSync(folder, 0o555);
    const report = await openedBy(join(folder, "jobs.db"), { user: "nobody" });
    expect(report.fault?.tag).toBe("StoreUnavailable");
    expect(report.fault?.message).toMatch(/this user may write there/);
  });

  it("is refused when the file may not be written", async () => {
    const path = await storeWithJobs(1);
    chmodSync(path, 0o444);
    chmodSync(join(path, ".."), 0o555);
    const report = await openedBy(path, { user: "nobody" });
    expect(report.created).toEqual([]);
    expect(report.fault?.tag).toBe("StoreReadOnly");
    expect(report.fault?.message).toMatch(/Make the file and its folder writable/);
  });
});

describe("a disk without room", () => {
  it("refuses what does not fit, keeps what it has acknowledged, and goes on when there is room", async () => {
    const folder = freshFolder();
    const path = join(folder, "jobs.db");
    // The shell limits the size of every file that the process writes, in blocks of 1 KiB or 512 bytes.
    const through = ["/bin/sh", "-c", 'ulimit -f 2048 && exec "$0" "$@"'] as const;
    const report = await openedBy(path, { jobs: 5_000, bytes: 4_000, through });
    expect(report.fault?.tag).toBe("StoreFull");
    expect(report.fault?.message).toMatch(/Nothing of this call was stored/);
    await expectStored(path, report);
  });

  it("does the same on a file system that is full", async (context) => {
    const folder = freshFolder();
    const mount = () =>
      execFileSync("mount", ["-t", "tmpfs", "-o", "size=3m", "tmpfs", folder], { stdio: "ignore" });
    try {
      mount();
    } catch {
      context.skip("mounting a small file system needs the rights of root");
    }
    onTestFinished(() => void execFileSync("umount", [folder]));
    const path = join(folder, "jobs.db");
    const filler = join(folder, "filler");
    writeFileSync(filler, Buffer.alloc(1024 * 1024));
    const report = await openedBy(path, { jobs: 5_000, bytes: 4_000 });
    expect(report.fault?.tag).toBe("StoreFull");
    expect(report.fault?.message).toMatch(/free disk space/);
    rmSync(filler);
    await expectStored(path, report);
  });
});

describe("many processes on one file", () => {
  it("can all open a new one at the same moment", { timeout: 60_000 }, async () => {
    const path = join(freshFolder(), "jobs.db");
    const openers = Array.from({ length: 10 }, () => opener(path, { jobs: 3 }));
    await Promise.all(openers.map(({ said }) => said("ready")));
    for (const { tell } of openers) tell("open");
    const endings = await Promise.all(openers.map(({ ended }) => ended));
    const reports = endings.map(({ lines }) => JSON.parse(lines[1] ?? "null") as OpenerReport);
    expect(reports.map(({ fault }) => fault)).toEqual(Array(10).fill(undefined));
    await expectStored(path, { created: reports.flatMap(({ created }) => created) });
  });

  it("keeps the write-ahead log bounded under load, also while somebody reads", {
    timeout: 60_000,
  }, async () => {
    const path = join(freshFolder(), "jobs.db");
    const service = await connect(contract, { url: `file:${path}` });
    onTestFinished(() => service.stop());
    const reading = new AbortController();
    const reader = (async () => {
      for await (const _item of service.engine.tail(null, reading.signal));
    })();
    const large = { payload: { ...noWork, key: "x".repeat(16_000) } };
    let walBytes = 0;
    for (let batch = 0; batch < 150; batch++) {
      await service.jobs.quick.createMany(Array(50).fill(large)).orThrow();
      walBytes = Math.max(walBytes, statSync(`${path}-wal`).size);
    }
    reading.abort();
    await reader;
    expect(statSync(path).size).toBeGreaterThan(100 * 1024 * 1024);
    expect(walBytes).toBeLessThan(64 * 1024 * 1024);
  });
});

interface OpenerWish {
  readonly jobs?: number;
  readonly bytes?: number;
  readonly user?: "nobody";
  readonly through?: ChildOptions["through"];
}

function opener(path: string, { jobs = 1, bytes = 1, user, through }: OpenerWish) {
  const parameters = [`file:${path}`, String(jobs), String(bytes), ...(user ? [user] : [])];
  return startChild("./opener.ts", parameters, through ? { through } : {});
}

async function openedBy(path: string, wish: OpenerWish): Promise<OpenerReport> {
  const child = opener(path, wish);
  await child.said("ready");
  child.tell("open");
  const { code, lines, errors } = await child.ended;
  expect({ code, errors }).toEqual({ code: 0, errors: "" });
  const report = JSON.parse(lines[1] ?? "null") as OpenerReport;
  if (report.fault) expect(report.fault.message).not.toMatch(/\n|\bat .*:\d+:\d+/);
  return report;
}

/** What was acknowledged is there, what was refused is not, and the file is sound and takes more. */
async function expectStored(path: string, { created, refused }: OpenerReport): Promise<void> {
  const service = await connect(contract, { url: `file:${path}` });
  const loaded = await service.engine.load([...created]);
  expect(loaded.filter((job) => job === null)).toEqual([]);
  if (refused !== undefined) expect(await service.engine.load([refused])).toEqual([null]);
  const counts = await service.reads.counts().orThrow();
  expect(counts.reduce((sum, { count }) => sum + count, 0)).toBe(created.length);
  await service.jobs.quick.create(noWork).orThrow();
  await service.stop();
  const database = new Database(path);
  expect(database.pragma("integrity_check", { simple: true })).toBe("ok");
  database.close();
}

async function storeWithJobs(count: number): Promise<string> {
  const path = join(freshFolder(), "jobs.db");
  const service = await connect(contract, { url: `file:${path}` });
  await service.jobs.quick.createMany(Array(count).fill({ payload: noWork })).orThrow();
  await service.stop();
  return path;
}

function faultOfOpening(path: string): Promise<StoreError> {
  return faultOf(async () => {
    await (await openEngine(`file:${path}`)).close();
  });
}

async function faultOf(work: () => Promise<void>): Promise<StoreError> {
  try {
    await work();
  } catch (error) {
    const fault = error as StoreError;
    expect(fault.message).not.toMatch(/\n|\bat .*:\d+:\d+/);
    return fault;
  }
  throw new Error("Nothing went wrong.");
}

function freshFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "millrace-fault-"));
  // A process without rights has to reach what lies in it.
  chmodSync(folder, 0o755);
  const place = join(folder, "store");
  mkdirSync(place);
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return place;
}

function hashOf(path: string): string {
  return createHash("sha256").update(readFileSync(path)).digest("hex");
}
