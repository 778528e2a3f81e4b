// The fake clock: timers fire in their order, each with the turns that it sets in motion.

import { describe, expect, it } from "vitest";
import { FakeClock, fakeStart } from "#millrace/testing/fake-clock.js";

describe("the fake clock", () => {
  it("stands still until it is moved", async () => {
    const clock = new FakeClock();
    expect([clock.now(), clock.monotonic(), clock.nextTimerAt]).toEqual([fakeStart, 0, null]);
    await clock.advance(5);
    expect([clock.now(), clock.monotonic()]).toEqual([fakeStart + 5, 5]);
  });

  it("fires timers in the order of their times, then of their setting", async () => {
    const clock = new FakeClock(0);
    const fired: string[] = [];
    clock.after(20, () => fired.push(`late ${clock.now()}`));
    clock.after(10, () => fired.push(`first ${clock.now()}`));
    clock.after(10, () => fired.push(`second ${clock.now()}`));
    const callOff = clock.after(15, () => fired.push("called off"));
    callOff();
    expect(clock.nextTimerAt).toBe(10);
    await clock.advance(20);
    expect(fired).toEqual(["first 10", "second 10", "late 20"]);
  });

  it("fires timers that others set on the way, promises included", async () => {
    const clock = new FakeClock(0);
    const fired: number[] = [];
    clock.after(10, async () => {
      await Promise.resolve();
      clock.after(10, () => fired.push(clock.now()));
    });
    await clock.advance(25);
    expect(fired).toEqual([20]);
    expect(clock.now()).toBe(25);
  });
});
