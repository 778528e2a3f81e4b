// What decide makes of each command, case by case.
import { describe, expect, it } from "vitest";
import type { Command } from "#millrace/core/command.js";
import { claimVerdict, decide } from "#millrace/core/decide.js";
import type { JobEvent } from "#millrace/core/event.js";
import { evolve } from "#millrace/core/evolve.js";
import type { Job, JobKeyPolicy, StalePolicy } from "#millrace/core/job.js";
import { createCommand, eventOf, jobAfter } from "./lives.js";

const origin = { eventId: "event-9", actor: "client:test" } as const;
const error = { message: "no luck", reason: "error" } as const;
const start: Command = { command: "start", ...origin, worker: "worker-1" };
const cancel: Command = { command: "cancel", ...origin };
const now = 1_000;

function active(options: Parameters<typeof createCommand>[0] = {}): Job {
  return jobAfter(now, createCommand(options), start);
}

function key(stalePolicy: StalePolicy): JobKeyPolicy {
  return { key: "k", hash: "h", maxActive: 1, maxQueued: 0, whenFull: "reject", stalePolicy };
}

function refusal(job: Job | null, command: Command): string | null {
  const decision = decide(job, command, now);
  return decision.ok ? null : decision.rejection.reason;
}

describe("create", () => {
  it("carries everything that was asked for, under the given id, actor and time", () => {
    const event = eventOf(decide(null, createCommand({ tags: ["a"], priority: 3 }), now));
    expect(event).toMatchObject({
      name: "created",
      id: "event-0",
      jobId: "job-1",
      version: 1,
      run: 1,
      tries: 0,
      state: "pending",
      previousState: null,
      at: now,
      tags: ["a"],
      priority: 3,
    });
    expect(event).not.toHaveProperty("command");
  });

  it("is refused where the job exists", () => {
    expect(refusal(active(), createCommand())).toBe("exists");
  });

  it("is blocked while it has blockers", () => {
    const blockers = [{ jobId: "other", onBadEnd: "unreachable" }] as const;
    expect(jobAfter(now, createCommand({ blockers })).state).toBe("blocked");
  });
});

describe("a time", () => {
  it("must be whole, whoever gives it", () => {
    const broken = now + 0.5;
    const commands: readonly [Job | null, Command][] = [
      [null, createCommand({ runAt: broken })],
      [null, createCommand({ deadline: broken })],
      [active(), { command: "fail", token: 1, error, retryAt: broken, ...origin }],
      [active(), { command: "release", token: 1, cause: "snooze", runAt: broken, ...origin }],
      [jobAfter(now, createCommand(), cancel), { command: "retry", runAt: broken, ...origin }],
    ];
    for (const [job, command] of commands) {
      expect(() => decide(job, command, now)).toThrow("whole number of milliseconds");
    }
  });
});

describe("start", () => {
  it("is refused before the run time and while the job runs or has ended", () => {
    expect(refusal(jobAfter(now, createCommand({ runAt: now + 1 })), start)).toBe("too_early");
    expect(refusal(active(), start)).toBe("not_allowed");
    expect(refusal(jobAfter(now, createCommand(), cancel), start)).toBe("ended");
    expect(refusal(null, start)).toBe("not_found");
  });

  it("expires a job whose deadline has come, to the millisecond", () => {
    const due = jobAfter(0, createCommand({ deadline: now }));
    expect(eventOf(decide(due, start, now)).name).toBe("expired");
    expect(eventOf(decide(due, start, now - 1)).name).toBe("started");
    expect([claimVerdict({ deadline: now }, now), claimVerdict({}, now)]).toEqual([
      "expire",
      "start",
    ]);
  });
});

describe("a failed try", () => {
  const fail: Command = { command: "fail", ...origin, token: 1, error, retryAt: now + 5 };

  it.each([
    ["is tried again while tries are left", { maxTries: 2 }, "retry"],
    ["is dead on the last try", { maxTries: 1 }, "dead"],
    [
      "is failed on the last try without dead letters",
      { maxTries: 1, deadLetter: false },
      "failed",
    ],
  ] as const)("%s", (_, options, name) => {
    expect(eventOf(decide(active(options), fail, now))).toMatchObject({ name, error, token: 1 });
  });

  it("is cancelled if the job was asked to stop", () => {
    const job = jobAfter(now, createCommand(), start, cancel);
    expect(eventOf(decide(job, fail, now)).name).toBe("cancelled");
  });

  it("is expired if the deadline has come", () => {
    const job = jobAfter(0, createCommand({ deadline: now }), start);
    expect(eventOf(decide(job, fail, now)).name).toBe("expired");
    expect(eventOf(decide(job, fail, now - 1)).name).toBe("retry");
  });

  it("is refused under another token", () => {
    expect(refusal(active(), { ...fail, token: 2 } as Command)).toBe("stale_token");
  });
});

describe("a lapsed lease", () => {
  const lapse: Command = { command: "lapse", ...origin, token: 1, retryAt: now + 5 };

  it.each([
    ["an unkeyed job waits for another try", {}, "retry"],
    ["an unkeyed job on its last try is dead", { maxTries: 1 }, "dead"],
    ["fail-stale ends the job", { key: key("fail-stale") }, "stale"],
    ["requeue lets the job wait for another try", { key: key("requeue") }, "retry"],
    ["block keeps the key", { key: key("block") }, "keyBlocked"],
  ] as const)("%s", (_, options, name) => {
    expect(eventOf(decide(active(options), lapse, now)).name).toBe(name);
  });

  it("names itself as the reason", () => {
    const event = eventOf(decide(active(), lapse, now));
    expect(event).toMatchObject({ error: { reason: "orphaned" }, runAt: now + 5 });
  });

  it("cancels a job that was asked to stop, whatever its key's policy", () => {
    const job = jobAfter(now, createCommand({ key: key("block") }), start, cancel);
    expect(eventOf(decide(job, lapse, now)).name).toBe("cancelled");
  });

  it("does not lapse twice on a blocked key, which an admin can release", () => {
    const job = jobAfter(now, createCommand({ key: key("block") }), start, lapse);
    expect(refusal(job, lapse)).toBe("not_allowed");
    const release: Command = { command: "releaseKey", ...origin };
    const event = eventOf(decide(job, release, now));
    expect(event).toMatchObject({ name: "stale", cause: "key_released", token: 1 });
    expect(refusal(active(), release)).toBe("not_allowed");
  });
});

describe("cancel", () => {
  it("ends a waiting job, asks an active one, and is refused where nothing is left to do", () => {
    const waiting = jobAfter(now, createCommand());
    expect(eventOf(decide(waiting, cancel, now)).name).toBe("cancelled");
    expect(eventOf(decide(active(), cancel, now)).name).toBe("cancelRequested");
    expect(refusal(jobAfter(now, createCommand(), start, cancel), cancel)).toBe("not_allowed");
    expect(refusal(jobAfter(now, createCommand(), cancel), cancel)).toBe("ended");
  });

  it("ends an active job by force, also one that was asked already", () => {
    const force: Command = { ...cancel, force: true };
    expect(eventOf(decide(active(), force, now)).name).toBe("cancelled");
    const asked = jobAfter(now, createCommand(), start, cancel);
    expect(eventOf(decide(asked, force, now)).name).toBe("cancelled");
  });

  it("keeps the reason of the request when the worker confirms", () => {
    const job = jobAfter(now, createCommand(), start, { ...cancel, reason: "enough" });
    const confirm: Command = { command: "confirmCancel", ...origin, token: 1 };
    expect(evolve(job, eventOf(decide(job, confirm, now))).job?.reason).toBe("enough");
  });
});

describe("release", () => {
  const release: Command = {
    command: "release",
    ...origin,
    token: 1,
    cause: "shutdown",
    runAt: now,
  };

  it("gives the try back", () => {
    const job = active();
    const after = evolve(job, eventOf(decide(job, release, now))).job;
    expect(after).toMatchObject({ state: "pending", tries: 0, token: 1, reason: "shutdown" });
  });

  it("cancels a job that was asked to stop", () => {
    const job = jobAfter(now, createCommand(), start, cancel);
    expect(eventOf(decide(job, release, now)).name).toBe("cancelled");
  });
});

describe("expire", () => {
  it("needs a deadline that has come and a job that has not ended", () => {
    const expire: Command = { command: "expire", ...origin };
    const job = jobAfter(0, createCommand({ deadline: now }));
    expect(eventOf(decide(job, expire, now)).name).toBe("expired");
    expect(decide(job, expire, now - 1)).toMatchObject({ rejection: { reason: "too_early" } });
    expect(refusal(jobAfter(now, createCommand()), expire)).toBe("too_early");
    expect(refusal(jobAfter(now, createCommand(), cancel), expire)).toBe("ended");
  });
});

describe("retry by hand", () => {
  const retry: Command = { command: "retry", ...origin, runAt: now };
  const force: Command = { ...retry, force: true };
  const complete: Command = { command: "complete", ...origin, completedBy: null };

  it("needs an ended job, and force for a completed one", () => {
    expect(refusal(active(), retry)).toBe("not_allowed");
    const completed = jobAfter(now, createCommand(), complete);
    expect(refusal(completed, retry)).toBe("not_allowed");
    expect(eventOf(decide(completed, force, now))).toMatchObject({ name: "retried", run: 2 });
  });

  it("does not bring a dismissed job back", () => {
    const fail: Command = { command: "fail", ...origin, token: 1, error, retryAt: now };
    const dismiss: Command = { command: "dismiss", ...origin };
    const job = jobAfter(now, createCommand({ maxTries: 1 }), start, fail, dismiss);
    expect([refusal(job, retry), refusal(job, force)]).toEqual(["not_allowed", "not_allowed"]);
  });

  it("blocks an unreachable job again", () => {
    const blockers = [{ jobId: "other", onBadEnd: "unreachable" }] as const;
    const bad: Command = { command: "blockerEndedBadly", ...origin, blockerId: "other" };
    const job = jobAfter(now, createCommand({ blockers }), bad);
    expect(evolve(job, eventOf(decide(job, retry, now))).job?.state).toBe("blocked");
  });

  it("blocks a job again that has never started, however it ended, and no other", () => {
    const blockers = [{ jobId: "other", onBadEnd: "unreachable" }] as const;
    const unblock: Command = { command: "unblock", ...origin };
    const cancel: Command = { command: "cancel", ...origin, force: true };
    const expire: Command = { command: "expire", ...origin };
    const again = (...commands: readonly Command[]) => {
      const job = jobAfter(now, createCommand({ blockers, deadline: now }), ...commands);
      return evolve(job, eventOf(decide(job, force, now))).job?.state;
    };
    for (const ending of [cancel, expire, complete]) expect(again(ending)).toBe("blocked");
    expect(again(cancel, retry, cancel)).toBe("blocked");
    expect(again(unblock, cancel)).toBe("blocked");
    const undated = createCommand({ blockers });
    const started = jobAfter(now, undated, unblock, start, cancel);
    expect(eventOf(decide(started, retry, now)).state).toBe("pending");
  });

  it("leads where its event says, also where that was decided by other rules", () => {
    const blockers = [{ jobId: "other", onBadEnd: "unreachable" }] as const;
    const job = jobAfter(now, createCommand({ blockers }), { command: "cancel", ...origin });
    const event = { ...eventOf(decide(job, retry, now)), state: "pending" } as JobEvent;
    expect(evolve(job, event).job?.state).toBe("pending");
  });
});

describe("delete", () => {
  it("needs an ended job or force", () => {
    const remove: Command = { command: "delete", ...origin, reason: "test" };
    expect(refusal(active(), remove)).toBe("not_allowed");
    expect(eventOf(decide(active(), { ...remove, force: true }, now)).name).toBe("deleted");
    const job = jobAfter(now, createCommand(), cancel);
    expect(evolve(job, eventOf(decide(job, remove, now))).job).toBeNull();
  });
});

describe("an outcome", () => {
  it("comes from the holder of the token, or from nobody while the job is open", () => {
    const complete: Command = { command: "complete", ...origin, completedBy: "worker-1", token: 1 };
    const byNobody: Command = { command: "complete", ...origin, completedBy: null };
    expect(eventOf(decide(active(), complete, now))).toMatchObject({ name: "completed", token: 1 });
    expect(refusal(jobAfter(now, createCommand()), complete)).toBe("stale_token");
    const event = eventOf(decide(jobAfter(now, createCommand()), byNobody, now));
    expect(event).not.toHaveProperty("token");
    expect(refusal(jobAfter(now, createCommand(), byNobody), byNobody)).toBe("ended");
  });

  it("under an old token can only be reported", () => {
    const report: Command = { command: "reportStale", ...origin, token: 1, outcome: "completed" };
    const job = jobAfter(now, createCommand(), cancel);
    const event = eventOf(decide(job, report, now));
    expect(event.name).toBe("staleCompletionIgnored");
    expect(evolve(job, event)).toEqual({ job, ignored: null });
  });
});
