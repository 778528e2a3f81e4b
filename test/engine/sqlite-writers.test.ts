// Several writers on one SQLite file, and many callers of one: positions are given once, and everybody gets the answer to
// what they asked.
import Database from "better-sqlite3";
import { connect } from "millrace";
import { expect, it, onTestFinished } from "vitest";
import { filePath } from "#millrace/engine/sqlite/engine.js";
import { contract, noWork } from "../crash/contract.js";
import { freshUrl } from "../support/fresh-url.js";

it("gives each position once when two take turns, to creations and to other events", async () => {
  const url = await freshUrl();
  const [one, other] = [await open(url), await open(url)];
  const told: string[] = [];
  for (let turn = 0; turn < 5; turn++) {
    const { id } = await one.jobs.quick.create(noWork).orThrow();
    await other.ref(id).cancel().orThrow();
    told.push(`${id} created`, `${id} cancelled`);
  }
  const cursors = new Set<string>();
  const found: string[] = [];
  const { signal } = new AbortController();
  for await (const { cursor, event } of one.engine.tail(null, signal, "stored")) {
    cursors.add(cursor);
    found.push(`${event.jobId} ${event.name}`);
  }
  expect(found).toEqual(told);
  expect(cursors.size).toBe(told.length);
});

it("tells each of many callers its own outcome", async () => {
  const service = await open(await freshUrl());
  const taken = await service.jobs.quick.create(noWork).orThrow();
  const results = await Promise.all(
    Array.from({ length: 50 }, (_, number) =>
      service.jobs.quick.create(noWork, number === 20 ? { id: taken.id } : undefined),
    ),
  );
  const refused = results.flatMap((result, number) => (result.isErr() ? [number] : []));
  expect(refused).toEqual([20]);
  const ids = results.map((result) => (result.isOk() ? result.value.id : taken.id));
  expect(new Set(ids).size).toBe(50);
});

it("fails one of many callers alone where the store cannot take its job", async () => {
  const url = await freshUrl();
  const service = await open(url);
  const database = new Database(filePath(url));
  database.exec(`CREATE TRIGGER refuse BEFORE INSERT ON jobs WHEN NEW.id LIKE 'bad-%'
    BEGIN SELECT RAISE(ABORT, 'not this one'); END`);
  database.close();
  const names = ["one", "bad-two", "three", "bad-four", "five"];
  const lists = await Promise.all(
    names.map((name, index) =>
      service.jobs.quick
        .createMany(
          Array.from({ length: index + 1 }, (_, number) => ({
            payload: noWork,
            id: `${name}-${number}`,
          })),
        )
        .orThrow(),
    ),
  );
  const told = lists.map((list) =>
    list.map((result) => (result.isOk() ? result.value.id : result.error._tag)),
  );
  expect(told).toEqual(
    names.map((name, index) =>
      Array.from({ length: index + 1 }, (_, number) =>
        name.startsWith("bad") ? "StoreFailed" : `${name}-${number}`,
      ),
    ),
  );
});

async function open(url: string) {
  const service = await connect(contract, { url });
  onTestFinished(() => service.stop());
  return service;
}
