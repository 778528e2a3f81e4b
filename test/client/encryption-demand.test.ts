// Whether a service is encrypted by now is looked at again before the answer is old, so that a busy process waits for none.
import { FakeClock } from "millrace/testing";
import { expect, it } from "vitest";
import { openDemand } from "#millrace/client/encryption-demand.js";
import { silentLogger } from "#millrace/engine/logger.js";

async function openCounted() {
  const clock = new FakeClock();
  const asked = { times: 0, answer: false };
  const ask = async () => {
    asked.times += 1;
    return asked.answer;
  };
  return { clock, asked, demand: await openDemand({ clock, logger: silentLogger, ask }) };
}

it("is asked again ahead of time, and nobody waits", async () => {
  const { clock, asked, demand } = await openCounted();
  await clock.advance(2_499);
  expect(demand.look()).toBeUndefined();
  expect(asked.times).toBe(1);
  asked.answer = true;
  await clock.advance(1);
  expect(demand.look()).toBeUndefined();
  expect(demand.look()).toBeUndefined();
  // Whoever showed that it is time goes first.
  expect(asked.times).toBe(1);
  await clock.advance(10);
  expect(asked.times).toBe(2);
  expect(demand.isMade).toBe(true);
});

it("is waited for when the answer is old", async () => {
  const { clock, asked, demand } = await openCounted();
  asked.answer = true;
  await clock.advance(5_000);
  const looking = demand.look();
  expect(looking).toBeDefined();
  expect(demand.isMade).toBe(false);
  await looking;
  expect(demand.isMade).toBe(true);
  expect(demand.look()).toBeUndefined();
  expect(asked.times).toBe(2);
});
