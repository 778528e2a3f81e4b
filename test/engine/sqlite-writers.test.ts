// Several writers on one SQLite file, and many callers of one: positions are given once, and everybody gets the answer to
// what they asked.
import { connect } from "millrace";
import { expect, it, onTestFinished } from "vitest";
import { contract, noWork } from "../crash/contract.js";
import { freshUrl } from "../support/fresh-url.js";

it("gives each position once when two take turns, and none for what is refused", async () => {
  const url = await freshUrl();
  const [one, other] = [await open(url), await open(url)];
  const ids: string[] = [];
  for (let turn = 0; turn < 5; turn++) {
    for (const service of [one, other, other]) {
      const created = await service.jobs.quick.create(noWork).orThrow();
      ids.push(created.id);
      const again = await service.jobs.quick.create(noWork, { id: created.id });
      expect(again.isErr() && again.error._tag).toBe("JobExists");
    }
  }
  const cursors: number[] = [];
  const told: string[] = [];
  for await (const { cursor, event } of one.engine.tail(
    null,
    new AbortController().signal,
    "stored",
  )) {
    cursors.push(Number(cursor));
    told.push(event.jobId);
  }
  expect(told).toEqual(ids);
  expect(new Set(cursors).size).toBe(cursors.length);
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

async function open(url: string) {
  const service = await connect(contract, { url });
  onTestFinished(() => service.stop());
  return service;
}
