// Properties of decide and evolve over random lives of a job.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { startedEvent } from "#millrace/core/decide.js";
import type { JobEvent } from "#millrace/core/event.js";
import { evolve, fold, hasEnded, jobHash, startedFirst } from "#millrace/core/evolve.js";
import { endedStates, isEnded, type Job } from "#millrace/core/job.js";
import { advancesVersion, transitions } from "#millrace/core/transitions.js";
import { anyEvents, lives, logOf } from "./lives.js";

const runs = { numRuns: 300 };

/** Freezes a value all the way down, so that a function that changes its arguments throws. */
function frozen<T>(value: T): T {
  if (typeof value === "object" && value !== null) {
    Object.freeze(value);
    for (const member of Object.values(value)) frozen(member);
  }
  return value;
}

/** The last job of a life, and an event that may be anything. */
const meetings = fc.tuple(
  lives.map((life) => life.at(-1)?.after ?? null),
  fc.oneof(
    anyEvents,
    // Events at just the right version get further than random ones.
    anyEvents.map((event) => ({ ...event, version: Number.NaN })),
  ),
);

function aimed(job: Job | null, event: JobEvent): JobEvent {
  return Number.isNaN(event.version) ? { ...event, version: (job?.version ?? 0) + 1 } : event;
}

describe("evolve", () => {
  it("is total: any event in any state gives a job, and an ignored one changes nothing", () => {
    fc.assert(
      fc.property(meetings, ([job, random]) => {
        const event = frozen(aimed(job, random));
        const before = job && jobHash(frozen(job));
        const result = evolve(job, event);
        expect(job && jobHash(job)).toBe(before);
        if (result.ignored !== null) expect(result.job).toBe(job);
        else if (event.name === "deleted") expect(result.job).toBeNull();
        else expect(result.job).not.toBeNull();
      }),
      runs,
    );
  });

  it("obeys the table of transitions", () => {
    fc.assert(
      fc.property(meetings, ([job, random]) => {
        const event = aimed(job, random);
        const { job: after, ignored } = evolve(job, event);
        if (ignored !== null || after === null) return;
        const { from, to } = transitions[event.name];
        expect(from).toContain(job?.state ?? null);
        if (to === "same") expect(after.state).toBe(job?.state);
        else expect([to].flat()).toContain(after.state);
      }),
      runs,
    );
  });

  it("keeps an ended job as it ended, whatever else arrives", () => {
    const leavesEnd: readonly string[] = ["retried", "dismissed", "deleted"];
    fc.assert(
      fc.property(meetings, ([job, random]) => {
        const event = aimed(job, random);
        if (job === null || !isEnded(job.state) || leavesEnd.includes(event.name)) return;
        const { job: after } = evolve(job, event);
        expect(after && jobHash(after)).toBe(jobHash(job));
      }),
      runs,
    );
  });

  it("ignores every event under a token that is not current", () => {
    fc.assert(
      fc.property(meetings, ([job, random]) => {
        const event = aimed(job, random);
        const needed = Object.hasOwn(transitions, event.name) && transitions[event.name].token;
        if (job === null || needed === "none" || !("token" in event)) return;
        if (event.token === job.token && job.state === "active") return;
        expect(evolve(job, event).ignored).not.toBeNull();
      }),
      runs,
    );
  });

  it("advances the version by one with every change and never with a note or a ticket", () => {
    fc.assert(
      fc.property(meetings, ([job, random]) => {
        const event = aimed(job, random);
        const { job: after, ignored } = evolve(job, event);
        if (ignored !== null || job === null || after === null) return;
        expect(after.version - job.version).toBe(advancesVersion(event.name) ? 1 : 0);
      }),
      runs,
    );
  });

  it("gives the same job for a log that went through JSON", () => {
    fc.assert(
      fc.property(lives, (life) => {
        const log = logOf(life);
        const stored = JSON.parse(JSON.stringify(log)) as JobEvent[];
        expect(fold(stored)).toEqual(fold(log));
        expect(hasEnded(fold(stored))).toBe(hasEnded(fold(log)));
      }),
      runs,
    );
  });

  it("ignores a change that arrives a second time, whenever it does", () => {
    fc.assert(
      fc.property(lives, fc.nat(), (life, choice) => {
        const log = logOf(life).filter(({ name }) => advancesVersion(name) && name !== "deleted");
        const repeated = log[choice % Math.max(log.length, 1)];
        if (repeated === undefined) return;
        expect(fold([...log, repeated])).toEqual(fold(log));
        const place = log.indexOf(repeated) + 1;
        expect(fold(log.toSpliced(place, 0, repeated))).toEqual(fold(log));
      }),
      runs,
    );
  });

  it("folds a log in pieces to the same job", () => {
    fc.assert(
      fc.property(lives, fc.nat(), (life, choice) => {
        const log = logOf(life);
        const place = choice % (log.length + 1);
        expect(fold(log.slice(place), fold(log.slice(0, place)))).toEqual(fold(log));
      }),
      runs,
    );
  });
});

describe("the first start in one step", () => {
  it("is the fold of the creation and of the start that follows it", () => {
    fc.assert(
      fc.property(lives, (life) => {
        const [created] = logOf(life);
        if (created?.name !== "created") return;
        const job = fold([created]);
        if (job === null) throw new Error("There is no job.");
        const origin = { eventId: "event-1", actor: "worker:w" } as const;
        const started = startedEvent(job, origin, "w", 77);
        expect(startedFirst(created, "w", 77)).toEqual(fold([created, started]));
      }),
    );
  });
});

describe("a life under decide and evolve", () => {
  it("has every decided event accepted, with an envelope that tells what the fold tells", () => {
    fc.assert(
      fc.property(lives, (life) => {
        for (const { before, decision } of life) {
          if (!decision.ok) continue;
          const { event } = decision;
          const { job, ignored } = evolve(before, event);
          expect(ignored).toBeNull();
          expect(event.previousState).toBe(before?.state ?? null);
          if (job === null) continue;
          const { state, version, run, tries } = event;
          expect({ state, version, run, tries }).toEqual({
            state: job.state,
            version: job.version,
            run: job.run,
            tries: job.tries,
          });
        }
      }),
      runs,
    );
  });

  it("has one terminal event per run", () => {
    const marks: readonly string[] = ["dismissed", "deleted"];
    fc.assert(
      fc.property(lives, (life) => {
        const endings = new Map<number, number>();
        for (const { before, after, decision } of life) {
          if (!decision.ok || before === null || after === null) continue;
          if (marks.includes(decision.event.name)) continue;
          if (!isEnded(after.state) || !advancesVersion(decision.event.name)) continue;
          endings.set(after.run, (endings.get(after.run) ?? 0) + 1);
        }
        expect([...endings.values()].every((count) => count === 1)).toBe(true);
      }),
      runs,
    );
  });

  it("has a token that grows with each start and never otherwise changes", () => {
    fc.assert(
      fc.property(lives, (life) => {
        for (const { before, after, decision } of life) {
          if (!decision.ok || before === null || after === null) continue;
          const grown = decision.event.name === "started" ? 1 : 0;
          expect(after.token - before.token).toBe(grown);
        }
      }),
      runs,
    );
  });

  it("has tries that are starts minus releases of the run, within their bounds", () => {
    fc.assert(
      fc.property(lives, (life) => {
        let tries = 0;
        for (const { after, decision } of life) {
          if (!decision.ok || after === null) continue;
          const { name } = decision.event;
          if (name === "retried") tries = 0;
          if (name === "started") tries += 1;
          if (name === "released") tries -= 1;
          expect(after.tries).toBe(tries);
          expect(tries).toBeGreaterThanOrEqual(0);
          expect(tries).toBeLessThanOrEqual(after.maxTries);
        }
      }),
      runs,
    );
  });

  it("has a worker, a request to stop and a blocked key only while it is active", () => {
    fc.assert(
      fc.property(lives, (life) => {
        for (const { after } of life) {
          if (after === null) continue;
          expect(after.worker !== undefined).toBe(after.state === "active");
          expect(after.endedAt !== undefined).toBe(isEnded(after.state));
          if (after.state === "active") continue;
          expect([after.cancelRequest, after.keyBlocked]).toEqual([undefined, undefined]);
        }
      }),
      runs,
    );
  });

  it("is never stuck: every open job can be cancelled by force", () => {
    fc.assert(
      fc.property(lives, (life) => {
        for (const { before, command, decision } of life) {
          if (command.command !== "cancel" || !command.force || before === null) continue;
          expect(decision.ok).toBe(!isEnded(before.state));
        }
      }),
      runs,
    );
  });

  it("reaches every state", () => {
    const seen = new Set<string>();
    fc.assert(
      fc.property(lives, (life) => {
        for (const { after } of life) if (after) seen.add(after.state);
      }),
      { numRuns: 1_000, seed: 7 },
    );
    for (const state of endedStates) expect(seen).toContain(state);
  });
});
