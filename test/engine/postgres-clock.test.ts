// The server's clock as a process knows it, whose own may drift or stand still with its machine.
import { connect } from "millrace";
import { expect, it, onTestFinished, vi } from "vitest";
import { ServerClock } from "#millrace/engine/postgres/server-clock.js";
import { contract, noWork } from "../crash/contract.js";
import { freshSchema } from "../support/postgres.js";

const hourMs = 3_600_000;

it("a process that only creates learns that its own clock has gone wrong", async () => {
  const { storeUrl } = await freshSchema();
  const service = await connect(contract, { url: storeUrl });
  onTestFinished(() => service.stop());
  const isRight = async () => {
    const { id } = await service.jobs.quick.create(noWork).orThrow();
    const { createdAt } = await service.reads.job(id).orThrow();
    return Math.abs(createdAt - Date.now()) < hourMs / 2; // clock: the server's, which is this machine's
  };
  expect(await isRight()).toBe(true);
  const real = performance.now.bind(performance);
  const wrong = vi.spyOn(performance, "now").mockImplementation(() => real() + hourMs);
  onTestFinished(() => wrong.mockRestore());
  expect(await isRight()).toBe(false);
  // The answer that tells comes behind that of the create.
  while (!(await isRight()));
});

it("a clock that stood still for an hour is set by the next reading, however rough", () => {
  let now = 1_000;
  const standing = vi.spyOn(performance, "now").mockImplementation(() => now);
  onTestFinished(() => standing.mockRestore());
  const clock = new ServerClock();
  clock.learn(50_000, 999);
  expect(clock.now()).toBe(50_000);
  // A worse reading that says the same changes nothing.
  now = 2_000;
  clock.learn(51_010, 1_950);
  expect(clock.now()).toBe(51_000);
  now = 8_000;
  clock.learn(57_000 + hourMs, 7_900);
  expect(clock.now()).toBe(57_050 + hourMs);
});

it("one of many is told to ask, and nobody while the answer is new", () => {
  let now = 1_000;
  const standing = vi.spyOn(performance, "now").mockImplementation(() => now);
  onTestFinished(() => standing.mockRestore());
  const clock = new ServerClock();
  expect([clock.isTimeToAsk(), clock.isTimeToAsk()]).toEqual([true, false]);
  clock.learn(50_000, 999);
  now = 5_900;
  expect(clock.isTimeToAsk()).toBe(false);
  now = 6_100;
  expect([clock.isTimeToAsk(), clock.isTimeToAsk()]).toEqual([true, false]);
});
