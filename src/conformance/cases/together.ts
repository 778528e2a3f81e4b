/**
 * Jobs that one claim started together: whatever happens to one of them happens to it alone. An engine may keep what they
 * have in common once for all, and nobody must be able to tell.
 */
import assert from "node:assert/strict";
import type { Job } from "../../core/job.js";
import type { Change } from "../../engine/engine.js";
import { concern } from "../case.js";
import { defaults, type Environment, ids, tally, type Wish } from "../environment.js";

const { leaseMs, service, type } = defaults;

/** Enough for an engine to treat them as many. */
const count = 40;

/** Jobs that were created at once and claimed by one claim. */
async function claimTogether(env: Environment): Promise<readonly Job[]> {
  const creates = Array.from({ length: count }, () => env.creation());
  assert.deepEqual(tally(await env.engine.append(creates)), { appended: count });
  const jobs = await env.claim();
  assert.equal(jobs.length, count);
  return jobs;
}

function completion(env: Environment, job: Job): Change {
  const wish = { command: "complete", token: job.token, completedBy: "worker-1" } as const;
  return env.change(job, { actor: "worker:worker-1", ...wish }, job.token);
}

async function completeAll(env: Environment, jobs: readonly Job[]): Promise<void> {
  const changes = jobs.map((job) => completion(env, job));
  assert.deepEqual(tally(await env.engine.settle(changes)), { appended: jobs.length });
}

async function stateOf(env: Environment, { id }: Job): Promise<string> {
  return (await env.load(id)).state;
}

/** The first of some jobs, and the others. */
function parted(jobs: readonly Job[]): readonly [Job, readonly Job[]] {
  const [first, ...others] = jobs;
  assert.ok(first);
  return [first, others];
}

export const togetherCases = concern("together", [
  {
    name: "jobs that were claimed together end together, each with its own log",
    async run(env) {
      const jobs = await claimTogether(env);
      await completeAll(env, jobs);
      for (const job of jobs) {
        assert.equal(await stateOf(env, job), "completed");
        assert.deepEqual(await env.historyNames(job.id), ["created", "started", "completed"]);
      }
      await env.nothingClaimable();
      env.clock.advance(2 * leaseMs);
      assert.deepEqual(await env.engine.due({ kind: "lapsed", service }, count), []);
    },
  },
  {
    name: "some may end before the others, which stay active under their lease",
    async run(env) {
      const jobs = await claimTogether(env);
      const [ended, others] = [jobs.slice(0, 7), jobs.slice(7)];
      await completeAll(env, ended);
      for (const job of others) assert.equal(await stateOf(env, job), "active");
      const page = await env.engine.query("jobs", { filter: { state: ["active"] }, limit: 100 });
      assert.equal(page.entries.length, others.length);
      await completeAll(env, others);
      assert.equal(await stateOf(env, jobs[20] as Job), "completed");
    },
  },
  {
    name: "they are listed and counted one by one while they run",
    async run(env) {
      const jobs = await claimTogether(env);
      const page = await env.engine.query("jobs", { filter: { state: ["active"] }, limit: 100 });
      assert.deepEqual([...ids(page.entries)].sort(), [...ids(jobs)].sort());
      const row = await env.row((jobs[3] as Job).id);
      const { state, version, tries, worker, leaseUntil } = row;
      assert.deepEqual([state, version, tries, worker], ["active", 2, 1, "worker-1"]);
      assert.equal(leaseUntil, env.now + leaseMs);
      const counts = await env.engine.query("counts", { filter: {} });
      assert.deepEqual(counts, [{ service, type, queue: type, state: "active", count }]);
    },
  },
  {
    name: "one may be asked to stop, which the others do not notice",
    async run(env) {
      const [asked, others] = parted(await claimTogether(env));
      const requested = await env.command(asked.id, { command: "cancel" });
      assert.ok(requested?.cancelRequest);
      const renewed = await env.engine.renew(
        [asked, ...others].map((job) => ({ job, token: job.token, leaseMs })),
      );
      assert.deepEqual(
        renewed.map((lease) => lease.outcome === "held" && lease.cancelRequested),
        [true, ...others.map(() => false)],
      );
      await completeAll(env, others);
      const confirm = { command: "confirmCancel", token: 1 } as const;
      assert.deepEqual(await env.settle(requested, confirm), { outcome: "appended" });
    },
  },
  {
    name: "one may be ended from outside by another process, and only its own outcome is refused",
    needs: ["shared"],
    async run(env) {
      const jobs = await claimTogether(env);
      const other = env.at(await env.open());
      const [taken] = parted(jobs);
      await other.command(taken.id, { command: "complete", completedBy: null });
      const outcomes = await env.engine.settle(jobs.map((job) => completion(env, job)));
      assert.deepEqual(tally(outcomes), { appended: count - 1, conflict: 1 });
      assert.deepEqual(outcomes[0], { outcome: "conflict" });
      assert.deepEqual(await env.historyNames(taken.id), ["created", "started", "completed"]);
    },
  },
  {
    name: "another process may settle what it did not claim",
    needs: ["shared"],
    async run(env) {
      const jobs = await claimTogether(env);
      await completeAll(env.at(await env.open()), jobs);
      assert.equal(await stateOf(env, jobs[1] as Job), "completed");
    },
  },
  {
    name: "each may have an outcome of its own kind, in one batch",
    async run(env) {
      const jobs = await claimTogether(env);
      const error = { message: "no luck", reason: "error" } as const;
      const wishes = [
        { command: "complete", token: 1, completedBy: null },
        { command: "fail", token: 1, error, retryAt: env.now },
        { command: "terminate", token: 1, error },
        { command: "skip", token: 1, reason: "nothing to do" },
      ] as const satisfies readonly Wish[];
      const changes = jobs.map((job, place) => env.change(job, wishes[place % 4] as Wish, 1));
      const [ends, tries] = [
        changes.filter((_, place) => place % 4 !== 1),
        changes.filter((_, place) => place % 4 === 1),
      ];
      const outcomes = await Promise.all([env.engine.settle(ends), env.engine.settle(tries)]);
      assert.deepEqual(tally(outcomes.flat()), { appended: count });
      const states = await Promise.all(jobs.slice(0, 4).map((job) => stateOf(env, job)));
      assert.deepEqual(states, ["completed", "retry", "failed", "skipped"]);
      assert.equal((await env.claim()).length, count / 4);
    },
  },
  {
    name: "one may say something while it runs, and all end afterwards",
    async run(env) {
      const jobs = await claimTogether(env);
      const [talker] = parted(jobs);
      const progress = { step: "half", current: 1, total: 2 };
      const note = env.event(talker, { command: "progress", token: 1, progress });
      assert.deepEqual(await env.engine.note([note]), [true]);
      await completeAll(env, jobs);
      const names = ["created", "started", "progress", "completed"];
      assert.deepEqual(await env.historyNames(talker.id), names);
    },
  },
  {
    name: "two things may be done to one of them at the same moment",
    async run(env) {
      const jobs = await claimTogether(env);
      const beats = jobs.slice(0, 8).map(async (job) => {
        const [noted, renewed] = await Promise.all([
          env.engine.note([env.event(job, { command: "heartbeat", token: 1 })]),
          env.engine.renew([{ job, token: 1, leaseMs }]),
        ]);
        return [noted[0], renewed[0]?.outcome];
      });
      for (const beat of await Promise.all(beats)) assert.deepEqual(beat, [true, "held"]);
      await completeAll(env, jobs);
    },
  },
  {
    name: "two processes may renew some of them each at the same moment",
    needs: ["shared"],
    async run(env) {
      const jobs = await claimTogether(env);
      const engines = [env.engine, await env.open()];
      const renewals = engines.flatMap((engine, place) =>
        jobs
          .filter((_, index) => index % 2 === place)
          .map((job) => engine.renew([{ job, token: 1, leaseMs }])),
      );
      const outcomes = (await Promise.all(renewals)).flat();
      assert.deepEqual(tally(outcomes), { held: count });
    },
  },
  {
    name: "all lapse at their time, each is moved on by itself, and late outcomes are refused",
    async run(env) {
      const jobs = await claimTogether(env);
      env.clock.advance(leaseMs);
      const lapsed = await env.engine.due({ kind: "lapsed", service }, 100);
      assert.deepEqual([...ids(lapsed)].sort(), [...ids(jobs)].sort());
      const [moved, others] = parted(jobs);
      assert.equal((await env.lapse(moved.id)).state, "retry");
      const outcomes = await env.engine.settle(jobs.map((job) => completion(env, job)));
      assert.deepEqual(tally(outcomes), { appended: others.length, conflict: 1 });
      assert.deepEqual(ids(await env.claim()), [moved.id]);
    },
  },
  {
    name: "all count against a cap, those that go on when others have ended, too",
    async run(env) {
      const jobs = await claimTogether(env);
      await env.createMany(3);
      const capped = { typeMaxActive: count };
      await env.nothingClaimable(capped);
      await completeAll(env, jobs.slice(0, 2));
      assert.equal((await env.claim(capped)).length, 2);
      await env.nothingClaimable(capped);
    },
  },
  {
    name: "one may be removed by force while the others run",
    async run(env) {
      const [removed, others] = parted(await claimTogether(env));
      await env.command(removed.id, { command: "delete", reason: "a mistake", force: true });
      assert.equal(await env.find(removed.id), null);
      await completeAll(env, others);
      assert.deepEqual(await env.engine.settle([completion(env, removed)]), [
        { outcome: "conflict" },
      ]);
    },
  },
]);
