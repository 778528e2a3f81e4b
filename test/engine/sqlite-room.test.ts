// Room in the write-ahead log of a SQLite store: made ahead of time, never where others write, and nothing to who reads.
import { copyFileSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "better-sqlite3";
import { connect } from "millrace";
import { expect, it, onTestFinished } from "vitest";
import type { Step } from "#millrace/engine/sql/statement.js";
import { openWriter } from "#millrace/engine/sqlite/driver.js";
import { LogRoom } from "#millrace/engine/sqlite/log-room.js";
import { contract, noWork } from "../crash/contract.js";

const roomBytes = 1024 * 1024;

it("is there after a commit, so that the next ones make no file longer", async () => {
  const { path, service } = await openStore();
  const logBytes = () => statSync(`${path}-wal`).size;
  await service.jobs.quick.create(noWork).orThrow();
  await expect.poll(logBytes).toBe(roomBytes);
  for (let job = 0; job < 20; job++) await service.jobs.quick.create(noWork).orThrow();
  expect(logBytes()).toBe(roomBytes);
});

it("is made only while nobody else can write", () => {
  const path = freshPath();
  const connection = openWriter(path);
  connection.run(statement("PRAGMA busy_timeout = 1"));
  const [held, free] = [new LogRoom(path), new LogRoom(path)];
  const other = new Database(path);
  onTestFinished(() => {
    held.close();
    free.close();
    other.close();
    connection.close();
  });
  const before = statSync(`${path}-wal`).size;
  expect(before % roomBytes).toBeGreaterThan(0);
  other.exec("BEGIN IMMEDIATE");
  held.keep(connection);
  expect(statSync(`${path}-wal`).size).toBe(before);
  other.exec("ROLLBACK");
  held.keep(connection);
  expect(statSync(`${path}-wal`).size, "what stood against it is met once").toBe(before);
  free.keep(connection);
  expect(statSync(`${path}-wal`).size).toBe(roomBytes);
});

it("is nothing to who opens the file after a crash", async () => {
  const { path, service } = await openStore();
  const created: string[] = [];
  for (let job = 0; job < 100; job++)
    created.push((await service.jobs.quick.create(noWork).orThrow()).id);
  const left = freshPath();
  for (const part of ["", "-wal"]) copyFileSync(`${path}${part}`, `${left}${part}`);
  expect(statSync(`${left}-wal`).size % roomBytes).toBe(0);
  const again = await connect(contract, { url: `file:${left}` });
  const loaded = await again.engine.load(created);
  expect(loaded.map((job) => job?.job.id)).toEqual(created);
  await again.jobs.quick.create(noWork).orThrow();
  await again.stop();
  const database = new Database(left);
  onTestFinished(() => void database.close());
  expect(database.pragma("integrity_check", { simple: true })).toBe("ok");
});

function* statement(sql: string): Step<void> {
  yield { sql, values: [] };
}

async function openStore() {
  const path = freshPath();
  const service = await connect(contract, { url: `file:${path}` });
  onTestFinished(() => service.stop());
  return { path, service };
}

function freshPath(): string {
  const folder = mkdtempSync(join(tmpdir(), "millrace-room-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return join(folder, "jobs.db");
}
