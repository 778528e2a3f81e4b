// The machine's clock: delays that are longer than a timer of the platform can hold.
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { systemClock } from "#millrace/engine/clock.js";

const dayMs = 24 * 60 * 60 * 1_000;

describe("a delay of sixty days", () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  it("is over after sixty days, and not before", () => {
    const call = vi.fn();
    systemClock.after(60 * dayMs, call);
    vi.advanceTimersByTime(60 * dayMs - 1);
    expect(call).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1);
    expect(call).toHaveBeenCalledOnce();
    expect(vi.getTimerCount()).toBe(0);
  });

  it("is called off also when a part of it is over", () => {
    const call = vi.fn();
    const callOff = systemClock.after(60 * dayMs, call);
    vi.advanceTimersByTime(30 * dayMs);
    callOff();
    expect(vi.getTimerCount()).toBe(0);
    vi.advanceTimersByTime(60 * dayMs);
    expect(call).not.toHaveBeenCalled();
  });
});
