// Notifications of PostgreSQL: the first goes out at once, those of a stream rest in between, and none is left untold.
import { expect, it, onTestFinished } from "vitest";
import { systemClock } from "#millrace/engine/clock.js";
import type { Notice } from "#millrace/engine/postgres/driver.js";
import { Wake } from "#millrace/engine/postgres/wake.js";

const ready = { ready: true, ended: false, cancel: false };
const ended = { ready: false, ended: true, cancel: false };

function openWake() {
  const sent: string[] = [];
  let onSent = () => {};
  const wake = new Wake({
    clock: systemClock,
    channel: "any",
    connect: () => {
      throw new Error("Nobody listens here.");
    },
    notify: async ({ payload }: Notice) => {
      sent.push(topicsOf(payload));
      onSent();
    },
  });
  onTestFinished(() => wake.close());
  const next = () => new Promise<void>((resolve) => (onSent = resolve));
  return { wake, sent, next };
}

/** A busy process: a rest is over before its timer has its turn, and then it has it. */
async function rested(): Promise<void> {
  const until = performance.now() + 5;
  while (performance.now() < until);
  for (let turns = 0; turns < 2; turns++)
    await new Promise<void>((resolve) => setImmediate(resolve));
}

function topicsOf(payload: string): string {
  return payload.split(" ").slice(1).join(" ");
}

it("a hint is told at once, and those that follow it together after a rest", async () => {
  const { wake, sent, next } = openWake();
  wake.hint(ready);
  expect(sent).toEqual(["ready"]);
  const rested = next();
  for (let times = 0; times < 10; times++) wake.hint(times % 2 === 0 ? ended : ready);
  expect(sent).toEqual(["ready"]);
  await rested;
  expect(sent).toEqual(["ready", "ended ready"]);
});

it("whoever sends a notification with a commit gets none while they rest, and takes along what was not told", async () => {
  const { wake, sent } = openWake();
  expect(topicsOf(wake.notice("ready")?.payload ?? "")).toBe("ready");
  expect(wake.notice("ready")).toBeNull();
  wake.hint(ended);
  // A busy process: the rest is over before its timer has its turn.
  const until = performance.now() + 5;
  while (performance.now() < until);
  expect(topicsOf(wake.notice("ready")?.payload ?? "")).toBe("ended ready");
  // Whoever took it along may fail, so that it is told again.
  await wake.close();
  expect(sent).toEqual(["ended"]);
});

it("what was sent with a commit is not told again, and what was hinted at meanwhile is", async () => {
  const { wake, sent } = openWake();
  wake.notice("ready");
  wake.hint(ready);
  wake.hint(ended);
  const until = performance.now() + 5;
  while (performance.now() < until);
  const notice = wake.notice("ready");
  wake.hint(ended);
  if (notice) wake.told(notice);
  await wake.close();
  expect(sent).toEqual(["ended"]);
});

it("while a create is under way, what is left to be told waits for its end", async () => {
  const { wake, sent, next } = openWake();
  wake.notice("ready");
  wake.creating();
  wake.hint(ended);
  await new Promise<void>((resolve) => process.nextTick(resolve));
  // The next create follows in the turn in which the one before is answered.
  wake.created();
  wake.creating();
  const told = next();
  await rested();
  expect(sent).toEqual([]);
  wake.created();
  await told;
  expect(sent).toEqual(["ended"]);
});

it("a create that takes long holds up nobody's hints", async () => {
  const { wake, sent, next } = openWake();
  wake.notice("ready");
  wake.creating();
  const told = next();
  wake.hint(ended);
  await told;
  expect(sent).toEqual(["ended"]);
});

it("what has not been told is told before the end", async () => {
  const { wake, sent } = openWake();
  wake.hint(ready);
  wake.hint(ended);
  await wake.close();
  expect(sent).toEqual(["ready", "ended"]);
});
