// The checker of logs: silent on every log that the core decided, and outspoken on each broken rule.
import fc from "fast-check";
import { checkLog, type LogRule } from "millrace/conformance";
import { describe, expect, it } from "vitest";
import { rowOfFold } from "#millrace/conformance/row-of-fold.js";
import type { Command } from "#millrace/core/command.js";
import { decide } from "#millrace/core/decide.js";
import type { JobEvent } from "#millrace/core/event.js";
import { evolve, fold } from "#millrace/core/evolve.js";
import type { Job } from "#millrace/core/job.js";
import { createCommand, eventOf, lives, logOf } from "./core/lives.js";

const now = 1_000;
const origin = { eventId: "event", actor: "client:test" } as const;
const start: Command = { command: "start", ...origin, worker: "worker-1" };
const cancel: Command = { command: "cancel", ...origin, force: true };
const remove: Command = { command: "delete", ...origin, reason: "test" };
const key = {
  key: "k",
  hash: "h",
  maxActive: 1,
  maxQueued: 1,
  whenFull: "reject",
  stalePolicy: "requeue",
} as const;

function complete(token: number): Command {
  return { command: "complete", ...origin, token, completedBy: "worker-1" };
}

/** The log of one job under a list of commands. */
function log(
  options: Parameters<typeof createCommand>[0],
  ...commands: readonly Command[]
): readonly JobEvent[] {
  let job: Job | null = null;
  return [createCommand(options), ...commands].map((command) => {
    const event = eventOf(decide(job, command, now));
    job = evolve(job, event).job;
    return event;
  });
}

async function rules(
  events: readonly JobEvent[],
  options?: Parameters<typeof checkLog>[1],
): Promise<readonly LogRule[]> {
  const violations = await checkLog(events, options);
  for (const { sentence, jobId } of violations) expect([jobId, sentence]).not.toContain("");
  return [...new Set(violations.map(({ rule }) => rule))];
}

/** A change to one event of a log. */
function altered(
  events: readonly JobEvent[],
  index: number,
  change: Partial<JobEvent> | Record<string, unknown>,
): readonly JobEvent[] {
  return events.map((event, place) =>
    place === index ? ({ ...event, ...change } as JobEvent) : event,
  );
}

describe("the checker", () => {
  it("finds nothing in any life that decide made, read as a list or as a stream", async () => {
    await fc.assert(
      fc.asyncProperty(lives, async (life) => {
        expect(await checkLog(logOf(life))).toEqual([]);
        async function* stream() {
          yield* logOf(life);
        }
        expect(await checkLog(stream())).toEqual([]);
      }),
      { numRuns: 200 },
    );
  });

  const plain = log({}, start, complete(1));

  it("finds events that are missing, doubled or out of place", async () => {
    expect(await rules(plain.toSpliced(1, 1))).toEqual(["dense_versions"]);
    expect(await rules(plain.slice(1))).toContain("legal_transition");
    expect(await rules([...plain, ...plain.slice(2)])).toContain("one_terminal_per_run");
    expect(await rules(altered(plain, 1, { version: 7 }))).toContain("dense_versions");
    expect(await rules([...plain, ...plain.slice(0, 1)])).toContain("legal_transition");
  });

  it("finds an outcome under an old token", async () => {
    expect(await rules(altered(plain, 2, { token: 0 }))).toContain("current_token");
  });

  it("finds a token that does not grow", async () => {
    const retry: Command = { command: "retry", ...origin, runAt: now, force: true };
    const twice = log({}, start, complete(1), retry, start);
    expect(await rules(twice)).toEqual([]);
    expect(await rules(altered(twice, 4, { token: 1 }))).toEqual(["growing_tokens"]);
  });

  it("finds a start after the end", async () => {
    const ended = log({}, cancel);
    const started = { ...log({}, start)[1], version: 3 } as JobEvent;
    expect(await rules([...ended, started])).toContain("no_start_after_end");
  });

  it("finds a second outcome of a run", async () => {
    const again = { ...plain[2], name: "cancelled", version: 4 } as JobEvent;
    expect(await rules([...plain, again])).toContain("one_terminal_per_run");
  });

  it("finds more tries than a job has", async () => {
    const error = { message: "no", reason: "error" } as const;
    const fail: Command = { command: "fail", ...origin, token: 1, error, retryAt: now };
    const twoTries = log({ maxTries: 2 }, start, fail, start);
    expect(await rules(twoTries)).toEqual([]);
    expect(await rules(altered(twoTries, 0, { maxTries: 1 }))).toContain("tries_within_bounds");
  });

  it("finds an event that says of its job what the fold does not", async () => {
    expect(await rules(altered(plain, 2, { state: "failed" }))).toEqual(["truthful_envelope"]);
    expect(await rules(altered(plain, 2, { tries: 5 }))).toEqual(["truthful_envelope"]);
    expect(await rules(altered(plain, 2, { previousState: "retry" }))).toEqual([
      "truthful_envelope",
    ]);
  });

  it("finds a start before its time or after the deadline", async () => {
    expect(await rules(altered(plain, 0, { runAt: now + 1 }))).toEqual(["not_before_due"]);
    expect(await rules(altered(plain, 0, { deadline: now }))).toEqual(["not_after_deadline"]);
  });

  it("finds a key with more active jobs than it allows", async () => {
    const [a = [], b = []] = ["a", "b"].map((id) => log({ id, key }, start, complete(1)));
    expect(await rules([...a, ...b])).toEqual([]);
    expect(await rules([...a.slice(0, 2), ...b])).toEqual(["key_limit"]);
  });

  it("finds a key that let in more jobs than it holds", async () => {
    const creates = ["a", "b", "c"].flatMap((id) => log({ id, key }));
    expect(await rules(creates.slice(0, 2))).toEqual([]);
    expect(await rules(creates)).toEqual(["key_depth"]);
    // Nor may one start whose key was not asked. It may end before it has asked.
    const [, , c = []] = ["a", "b", "c"].map((id) => log({ id, key }, start));
    expect(await rules([...creates.slice(0, 2), ...c])).toEqual(["key_depth"]);
    expect(await rules([...creates.slice(0, 2), ...log({ id: "c", key }, cancel)])).toEqual([]);
    const ended = log({ id: "a", key }, cancel);
    expect(await rules([...ended, ...creates.slice(1)])).toEqual([]);
  });

  it("finds a type or a queue over its cap", async () => {
    const both = ["a", "b"].flatMap((id) => log({ id }, start));
    expect(await rules(both, { typeLimits: { "shop/mail": 2 } })).toEqual([]);
    expect(await rules(both, { typeLimits: { "shop/mail": 1 } })).toEqual(["type_limit"]);
    expect(await rules(both, { queueLimits: { "shop/mail": 1 } })).toEqual(["queue_limit"]);
  });

  it("finds a job that went on before its blockers", async () => {
    const blockers = [{ jobId: "first", onBadEnd: "unreachable" }] as const;
    const second = log({ id: "second", blockers }, { command: "unblock", ...origin });
    const first = log({ id: "first" }, start, complete(1));
    expect(await rules([...first, ...second])).toEqual([]);
    expect(await rules([...first.slice(0, 2), ...second])).toEqual(["dependency_order"]);
    const retry: Command = { command: "retry", ...origin, runAt: now };
    const unblock: Command = { command: "unblock", ...origin };
    const cameBack = log({ id: "second", blockers }, cancel, retry, unblock, start);
    expect(await rules([...first, ...cameBack])).toEqual([]);
    const early = altered(cameBack, 2, { state: "pending" }).filter(
      ({ name }) => name !== "unblocked",
    );
    const dense = altered(early, 3, { version: 4 });
    expect(await rules([...first, ...dense])).toEqual(["dependency_order"]);
  });

  it("lets a job go on whose blocker had ended since and was retried meanwhile", async () => {
    const blockers = [{ jobId: "first", onBadEnd: "unreachable" }] as const;
    const again: Command = { command: "retry", ...origin, runAt: now, force: true };
    const first = log({ id: "first" }, start, complete(1), again);
    const second = log({ id: "second", blockers }, { command: "unblock", ...origin });
    const [created, unblocked] = [second.slice(0, 1), second.slice(1)];
    expect(
      await rules([...first.slice(0, 2), ...created, ...first.slice(2), ...unblocked]),
    ).toEqual([]);
    expect(
      await rules([...first.slice(0, 3), ...created, ...first.slice(3), ...unblocked]),
    ).toEqual([]);
    expect(await rules([...first, ...second])).toEqual(["dependency_order"]);
  });

  it("finds a chain that lacks its next job", async () => {
    const continuation = { jobId: "next", type: "next" };
    const completion = { ...complete(1), continuation } as Command;
    const first = log({ id: "first", chainId: "first" }, start, completion);
    const next = log({ id: "next", chainId: "first" }, start, complete(1));
    const removal = log({ id: "next", chainId: "first" }, start, complete(1), remove).slice(-1);
    const finished = { finished: true };
    expect(await rules([...first, ...next], finished)).toEqual([]);
    expect(await rules([...first, ...removal], finished)).toEqual([]);
    expect(await rules(first, finished)).toEqual(["nothing_unfinished"]);
    expect(await rules(first)).toEqual([]);
  });

  it("finds what is unfinished, when everything should have ended", async () => {
    expect(await rules(plain, { finished: true })).toEqual([]);
    expect(await rules(plain.slice(0, 2), { finished: true })).toEqual(["nothing_unfinished"]);
    expect(await rules(plain.slice(0, 2))).toEqual([]);
  });

  it("finds rows that are unlike the fold, missing, doubled or left over", async () => {
    const job = fold(plain) as Job;
    const row = rowOfFold(job);
    expect(await rules(plain, { rows: [row] })).toEqual([]);
    const wrong = [[], [row, row], [row, { ...row, id: "other" }]];
    for (const rows of wrong) expect(await rules(plain, { rows })).toEqual(["view_equals_fold"]);
  });

  it("names each member of a row that is unlike the fold", async () => {
    const life = log({ key, tags: ["red"], deadline: now + 9 }, start, cancel);
    const row = rowOfFold(fold(life) as Job);
    for (const name of Object.keys(row).filter((name) => name !== "id")) {
      const told = await checkLog(life, { rows: [{ ...row, [name]: "another" }] });
      expect(told.map(({ rule }) => rule)).toEqual(["view_equals_fold"]);
      expect(told[0]?.sentence).toContain(`${name} is "another" in its row`);
    }
    const { deadline: _deadline, ...rest } = row;
    const [missing] = await checkLog(life, { rows: [rest] });
    expect(missing?.sentence).toContain("deadline is missing in its row");
    expect(await checkLog(life, { rows: [{ ...row, leaseUntil: 5 } as typeof row] })).toEqual([]);
  });

  it("finds tags that are unlike the fold, missing or left over", async () => {
    const tags = ["red", "blue", "red"];
    const life = log({ tags }, start);
    const { jobId } = life[0] as JobEvent;
    expect(await rules(life, { tagged: [{ jobId, tags: ["blue", "red"] }] })).toEqual([]);
    const left = [
      { jobId: "other", tags },
      { jobId: null, tags },
    ];
    for (const tagged of [
      [],
      [{ jobId, tags: ["red"] }],
      ...left.map((one) => [{ jobId, tags }, one]),
    ])
      expect(await rules(life, { tagged })).toEqual(["view_equals_fold"]);
  });

  it("takes a deleted job for gone, whether its log is still there or not", async () => {
    const deleted = log({}, cancel, remove);
    expect(await rules(deleted, { finished: true, rows: [] })).toEqual([]);
    expect(await rules(deleted.slice(-1), { finished: true, rows: [] })).toEqual([]);
    expect(await rules([...deleted, ...plain])).toEqual([]);
  });
});
