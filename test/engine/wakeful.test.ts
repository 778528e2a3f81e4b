// An event loop that stays awake for an answer: only for somebody who writes one thing after the other, only where answers
// come soon, and never for long.
import { beforeEach, expect, it, onTestFinished, vi } from "vitest";
import { Wakeful } from "#millrace/engine/wakeful.js";

const waitMaxMs = 0.5;
const soonMs = 0.1;
const lateMs = 2;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setImmediate", "performance"] });
  onTestFinished(() => void vi.useRealTimers());
});

/** One who writes and is answered, so often and after so long. */
function served(answers: readonly number[]): Wakeful {
  const wakeful = new Wakeful(waitMaxMs);
  for (const ms of answers) {
    wakeful.asked();
    vi.advanceTimersByTime(ms);
    wakeful.answered();
  }
  vi.runAllTimers();
  return wakeful;
}

/** Whether the event loop is kept from sleeping. */
function isAwake(): boolean {
  return vi.getTimerCount() > 0;
}

it("sleeps while the first answer is due", () => {
  served([]).asked();
  expect(isAwake()).toBe(false);
});

it("stays awake from the second write in a row on, until the answer is there", () => {
  const wakeful = served([soonMs]);
  wakeful.asked();
  vi.advanceTimersToNextTimer();
  expect(isAwake()).toBe(true);
  wakeful.answered();
  vi.advanceTimersToNextTimer();
  expect(isAwake()).toBe(false);
});

it("sleeps when the answer takes long, and for the one after that", () => {
  const wakeful = served([soonMs]);
  wakeful.asked();
  vi.advanceTimersByTime(lateMs);
  vi.runAllTimers();
  expect(isAwake()).toBe(false);
  wakeful.answered();
  wakeful.asked();
  expect(isAwake()).toBe(false);
});

it("sleeps when the next write comes after a pause", () => {
  const wakeful = served([soonMs]);
  vi.advanceTimersByTime(lateMs);
  wakeful.asked();
  expect(isAwake()).toBe(false);
});
