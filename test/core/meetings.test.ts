// Every event meets every state, one by one: what ends stays ended, and an old token changes nothing.
// These rules are said here in words of their own, so that a mistake in the table of transitions shows.
import { describe, expect, it } from "vitest";
import type { EventName, JobEvent } from "#millrace/core/event.js";
import { evolve, jobHash } from "#millrace/core/evolve.js";
import { endedStates, type Job, type JobState } from "#millrace/core/job.js";
import { transitions } from "#millrace/core/transitions.js";
import { createCommand, jobAfter } from "./lives.js";

const names = Object.keys(transitions) as EventName[];
const currentToken = 2;
const error = { message: "broken", reason: "error" } as const;

/** A job in a state, whatever way would lead there. */
function jobIn(state: JobState): Job {
  const isActive = state === "active";
  const job = { ...jobAfter(0, createCommand()), state, token: currentToken, tries: 1 };
  return isActive ? { ...job, worker: "w1", cancelRequest: { at: 0, by: "admin:anna" } } : job;
}

/** An event of a name that comes next in the job's log, with all the data that any event has. */
function nextEvent(job: Job, name: EventName, token?: number): JobEvent {
  const { service, type, context, run, tries } = job;
  const kind = transitions[name].kind;
  const envelope = {
    id: "e",
    jobId: job.id,
    service,
    type,
    context,
    run,
    tries,
    at: 1,
    actor: "admin:anna",
  };
  const version = kind === "change" ? job.version + 1 : job.version;
  const data = {
    error,
    runAt: 0,
    reason: "test",
    progress: { current: 1 },
    worker: "w2",
    blockers: [],
  };
  const held = token === undefined ? {} : { token };
  return { ...envelope, ...data, ...held, name, version, state: job.state } as unknown as JobEvent;
}

describe("a job that has ended", () => {
  const mayFollow: readonly EventName[] = ["retried", "dismissed", "deleted"];

  it.each(endedStates)("stays %s, whatever arrives", (state) => {
    const job = jobIn(state);
    for (const name of names.filter((one) => !mayFollow.includes(one))) {
      for (const token of [undefined, currentToken, currentToken + 1]) {
        const { job: after } = evolve(job, nextEvent(job, name, token));
        expect(after && jobHash(after), `${name} under token ${token}`).toBe(jobHash(job));
      }
    }
  });
});

describe("a job that is active under a token", () => {
  const speaksForWorker: readonly EventName[] = [
    "progress",
    "logged",
    "emitted",
    "heartbeat",
    "retry",
    "released",
    "completed",
    "failed",
    "cancelled",
    "skipped",
    "stale",
    "keyBlocked",
    "dead",
  ];

  it.each(speaksForWorker)("does not change by %s under an older or a newer one", (name) => {
    const job = jobIn("active");
    for (const token of [currentToken - 1, currentToken + 1]) {
      const { job: after, ignored } = evolve(job, nextEvent(job, name, token));
      expect(after && jobHash(after)).toBe(jobHash(job));
      expect(ignored).toBe("not the current token");
    }
    expect(evolve(job, nextEvent(job, name, currentToken)).ignored).toBeNull();
  });
});
