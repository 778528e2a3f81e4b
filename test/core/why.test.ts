// Why a job is not running: each reason and its sentence.
import { describe, expect, it } from "vitest";
import type { Command } from "#millrace/core/command.js";
import type { Job } from "#millrace/core/job.js";
import { type Why, why } from "#millrace/core/why.js";
import { createCommand, jobAfter } from "./lives.js";

const now = 10_000;
const origin = { eventId: "event-9", actor: "client:test" } as const;
const start: Command = { command: "start", ...origin, worker: "worker-1" };
const cancel: Command = { command: "cancel", ...origin, reason: "enough" };
const error = { message: "no luck", reason: "error" } as const;
const fail: Command = { command: "fail", ...origin, token: 1, error, retryAt: now + 500 };
const lapse: Command = { command: "lapse", ...origin, token: 1, retryAt: now };
const key = {
  key: "acme",
  hash: "h",
  maxActive: 1,
  maxQueued: 0,
  whenFull: "reject",
  stalePolicy: "block",
} as const;

const waiting = jobAfter(now, createCommand());
const keyed = jobAfter(now, createCommand({ key }));
const blockers = [{ jobId: "other", onBadEnd: "continue" }] as const;

const cases: readonly [Why["reason"], Job, Partial<Parameters<typeof why>[1]>, string][] = [
  ["running", jobAfter(now, createCommand(), start), {}, "worker-1"],
  ["cancelling", jobAfter(now, createCommand(), start, cancel), {}, "asked to stop"],
  ["key_blocked", jobAfter(now, createCommand({ key }), start, lapse), {}, "acme"],
  ["ended", jobAfter(now, createCommand(), cancel), {}, "enough"],
  [
    "blocked",
    jobAfter(now, createCommand({ blockers })),
    { openBlockers: [{ id: "other", isChain: false, state: "retry" }] },
    "other (retry)",
  ],
  ["deadline_passed", jobAfter(now, createCommand({ deadline: now })), {}, "expired"],
  ["scheduled", jobAfter(now, createCommand({ runAt: now + 1 })), {}, "scheduled for 1970"],
  ["backing_off", jobAfter(now, createCommand(), start, fail), {}, "no luck"],
  ["queue_paused", waiting, { queuePaused: true }, "paused"],
  ["key_busy", keyed, { keyLimit: { active: 1, maxActive: 1 } }, "acme"],
  [
    "key_blocked",
    keyed,
    { keyBlocked: true, keyLimit: { active: 1, maxActive: 1 } },
    "release it with service.keys.release",
  ],
  ["type_limit", waiting, { typeLimit: { active: 2, maxActive: 2 } }, "type mail"],
  ["queue_limit", waiting, { queueLimit: { active: 3, maxActive: 3 } }, "queue mail"],
  ["no_worker", waiting, { workers: 0 }, "No live worker"],
  ["queued", waiting, { ahead: 4 }, "4 jobs"],
];

describe("why", () => {
  it.each(cases)("%s", (reason, job, facts, words) => {
    const answer = why(job, { now, ...facts });
    expect(answer.reason).toBe(reason);
    expect(answer.sentence).toContain(words);
    expect(answer.sentence).toMatch(/^[A-Z0-9]/);
  });

  it("says what ended a job, and not an error that it had before", () => {
    const cancelled = jobAfter(now, createCommand(), start, fail, cancel);
    expect(cancelled.error?.message).toBe("no luck");
    expect(why(cancelled, { now }).sentence).toBe("It has ended as cancelled after 1 try: enough");
  });

  it("says the most telling thing first", () => {
    const everything = {
      now,
      queuePaused: true,
      workers: 0,
      ahead: 3,
      keyLimit: { active: 1, maxActive: 1 },
      typeLimit: { active: 1, maxActive: 1 },
    };
    expect(why(keyed, everything).reason).toBe("queue_paused");
    expect(why(keyed, { ...everything, queuePaused: false }).reason).toBe("key_busy");
    expect(why(waiting, { ...everything, queuePaused: false }).reason).toBe("no_worker");
  });

  it("does not blame a limit that has room", () => {
    const facts = { now, workers: 1, typeLimit: { active: 1, maxActive: 2 }, ahead: 0 };
    expect(why(keyed, { ...facts, keyLimit: { active: 0, maxActive: 1 } })).toMatchObject({
      reason: "queued",
      ahead: 0,
    });
  });

  it("names the blockers that are still open, a few of them", () => {
    const open = (id: string) => ({ id, isChain: id === "b", state: "active" }) as const;
    const many = ["a", "b", "c", "d", "e"].map(open);
    const job = jobAfter(now, createCommand({ blockers }));
    expect(why(job, { now, openBlockers: many }).sentence).toContain("and 2 more");
    expect(why(job, { now, openBlockers: [open("a"), open("b")] }).sentence).toBe(
      "It waits for job a (active), chain b (active) to end.",
    );
    expect(why(job, { now, openBlockers: [] }).sentence).toContain("the keeper is about to");
  });

  it("always has something to say without any facts", () => {
    expect(why(waiting, { now })).toMatchObject({ reason: "queued" });
  });
});
