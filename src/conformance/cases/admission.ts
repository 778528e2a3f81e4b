/**
 * Admission: what becomes of a create whose key is full.
 */
import assert from "node:assert/strict";
import type { Job, JobKeyPolicy } from "../../core/job.js";
import { concern } from "../case.js";
import { type Environment, ids, tally } from "../environment.js";

async function create(env: Environment, id: string, key: JobKeyPolicy) {
  return env.append(env.creation({ id, key }));
}

const accepted = { outcome: "appended", policy: { outcome: "accepted" } } as const;

/** Many creates at once under a key with two places, of which all but the last two are replaced, and these run. */
async function replaceAtOnce(env: Environment, processes: readonly Environment[]): Promise<void> {
  for (let round = 0; round < 2; round++) {
    const key = env.key(`k-${round}`, { maxQueued: 1, whenFull: "replace-oldest" });
    const names = Array.from({ length: 30 }, (_, index) => `job-${round}-${index}`);
    const creates = names.map((id, index) =>
      create(processes[index % processes.length] ?? env, id, key),
    );
    assert.deepEqual(tally(await Promise.all(creates)), { appended: 30 });
    const states = tally((await Promise.all(names.map((id) => env.load(id)))).map(stateAsOutcome));
    assert.deepEqual(states, { skipped: 28, pending: 2 });
    for (let turn = 0; turn < 2; turn++) await env.complete(await env.claimOne());
    await env.nothingClaimable();
  }
}

function stateAsOutcome({ state }: Job): { readonly outcome: string } {
  return { outcome: state };
}

export const admissionCases = concern("admission", [
  {
    name: "an accepted job says so in its log, an unkeyed one has nothing to say",
    async run(env) {
      assert.deepEqual(await create(env, "keyed", env.key("k")), accepted);
      assert.deepEqual(await env.append(env.creation({ id: "plain" })), { outcome: "appended" });
      assert.deepEqual((await env.load("keyed")).policy, { outcome: "accepted" });
      assert.equal((await env.load("plain")).policy, undefined);
      const [created] = await env.history("keyed");
      assert.ok(created?.name === "created");
      assert.deepEqual(created.policy, { outcome: "accepted" });
    },
  },
  {
    name: "a job that waits for its next try is as old as it was, also beside one that was created at the same moment",
    async run(env) {
      const key = env.key("k", { maxQueued: 1 });
      for (const id of ["first", "second"]) assert.deepEqual(await create(env, id, key), accepted);
      await env.fail(await env.claimOne(), env.now);
      const refused = await create(env, "third", key);
      assert.ok(refused.outcome === "not_admitted" && refused.admission.outcome === "rejected");
      assert.equal(refused.admission.existingJobId, "first");
    },
  },
  {
    name: "without a queue a busy key refuses, and names the job that is in the way",
    async run(env) {
      const key = env.key("k", { maxQueued: 0 });
      assert.deepEqual(await create(env, "first", key), accepted);
      const refused = {
        outcome: "not_admitted",
        admission: {
          outcome: "rejected",
          reason: "active_limit",
          existingJobId: "first",
          active: 1,
          queued: 0,
          limit: 1,
        },
      };
      assert.deepEqual(await create(env, "second", key), refused);
      const job = await env.claimOne();
      assert.deepEqual(await create(env, "second", key), refused);
      assert.equal(await env.find("second"), null);
      await env.complete(job);
      assert.deepEqual(await create(env, "second", key), accepted);
    },
  },
  {
    name: "a queue takes as many as it holds",
    async run(env) {
      const key = env.key("k", { maxActive: 2, maxQueued: 3 });
      for (let index = 1; index <= 5; index++) {
        assert.deepEqual(await create(env, `job-${index}`, key), accepted);
      }
      const refused = await create(env, "job-6", key);
      assert.ok(refused.outcome === "not_admitted" && refused.admission.outcome === "rejected");
      const { reason, existingJobId, active, queued, limit } = refused.admission;
      assert.deepEqual(
        [reason, existingJobId, active, queued, limit],
        ["queue_full", "job-1", 2, 3, 5],
      );
    },
  },
  {
    name: "jobs that are delayed, blocked or back off count as queued",
    async run(env) {
      const key = env.key("k", { maxQueued: 2 });
      await env.create({ key });
      await env.fail(await env.claimOne(), env.now + 10);
      await env.create({ key, runAt: env.now + 10 });
      await env.create({ id: "x", type: "other" });
      await env.create({ key, blockers: [{ jobId: "x", onBadEnd: "continue" }] });
      assert.equal((await create(env, "one-more", key)).outcome, "not_admitted");
    },
  },
  {
    name: "coalesce answers with the oldest that waits, or with the one that runs",
    async run(env) {
      const key = env.key("k", { maxQueued: 1, whenFull: "coalesce" });
      const alone = env.key("alone", { maxQueued: 0, whenFull: "coalesce" });
      await create(env, "runs", key);
      await env.claimOne();
      await create(env, "waits", key);
      const coalesced = (existingJobId: string) => ({
        outcome: "not_admitted",
        admission: { outcome: "coalesced", existingJobId },
      });
      assert.deepEqual(await create(env, "new", key), coalesced("waits"));
      await create(env, "only", alone);
      await env.claimOne();
      assert.deepEqual(await create(env, "new", alone), coalesced("only"));
      assert.equal(await env.find("new"), null);
    },
  },
  {
    name: "replace-oldest skips the oldest that waits and takes its place",
    async run(env) {
      const key = env.key("k", { maxQueued: 2, whenFull: "replace-oldest" });
      for (const id of ["runs", "oldest", "younger"]) await create(env, id, key);
      await env.claimOne();
      const change = env.creation({ id: "newest", key });
      const policy = { outcome: "replaced", replacedJobId: "oldest" } as const;
      assert.deepEqual(await env.append(change), { outcome: "appended", policy });
      const replaced = await env.load("oldest");
      assert.deepEqual([replaced.state, replaced.reason], ["skipped", "replaced"]);
      const skipped = (await env.history("oldest")).at(-1);
      assert.ok(skipped?.name === "skipped");
      assert.deepEqual(
        [skipped.id, skipped.replacedBy, skipped.actor],
        [`${change.event.id}:skipped`, "newest", change.event.actor],
      );
      assert.deepEqual((await env.load("newest")).policy, policy);
      const order: string[] = [];
      await env.complete(await env.load("runs"));
      for (let turn = 0; turn < 2; turn++) {
        const job = await env.claimOne();
        order.push(job.id);
        await env.complete(job);
      }
      assert.deepEqual(order.sort(), ["newest", "younger"]);
      await env.nothingClaimable();
    },
  },
  {
    name: "replace-oldest replaces a job that could have been claimed, and passes its slot on",
    async run(env) {
      const key = env.key("k", { maxQueued: 0, whenFull: "replace-oldest" });
      await create(env, "old", key);
      assert.equal((await create(env, "new", key)).outcome, "appended");
      assert.deepEqual(ids(await env.claim()), ["new"]);
      assert.equal((await env.load("old")).state, "skipped");
    },
  },
  {
    name: "replace-oldest goes by the time of creation, also for jobs that were retried by hand",
    async run(env) {
      const key = env.key("k", { maxQueued: 1, whenFull: "replace-oldest" });
      await create(env, "old", key);
      await env.command("old", { command: "cancel" });
      await create(env, "young", key);
      await env.command("old", { command: "retry", runAt: env.now });
      const policy = { outcome: "replaced", replacedJobId: "old" };
      assert.deepEqual(await create(env, "new", key), { outcome: "appended", policy });
    },
  },
  {
    name: "a key that retries by hand have overfilled replaces one for one",
    async run(env) {
      const key = env.key("k", { maxQueued: 0, whenFull: "replace-oldest" });
      await create(env, "a", key);
      await env.command("a", { command: "cancel" });
      await create(env, "b", key);
      await env.command("a", { command: "retry", runAt: env.now });
      assert.equal((await create(env, "c", key)).outcome, "appended");
      assert.equal((await env.load("a")).state, "skipped");
      assert.equal(
        (await create(env, "d", { ...key, whenFull: "reject" })).outcome,
        "not_admitted",
      );
      assert.equal((await env.claim()).length, 1);
    },
  },
  {
    name: "replace-oldest never replaces a job that runs or is blocked",
    async run(env) {
      const key = env.key("k", { maxQueued: 1, whenFull: "replace-oldest" });
      await create(env, "runs", key);
      const job = await env.claimOne();
      await env.create({ id: "x", type: "other" });
      const blockers = [{ jobId: "x", onBadEnd: "continue" }] as const;
      await env.create({ id: "blocked", key, blockers });
      const refused = await create(env, "new", key);
      assert.ok(refused.outcome === "not_admitted" && refused.admission.outcome === "rejected");
      assert.equal(refused.admission.existingJobId, "runs");
      assert.deepEqual(await env.load("runs"), job);
      assert.equal((await env.load("blocked")).state, "blocked");
    },
  },
  {
    name: "of creates at the same time a key takes as many as it has places",
    async run(env) {
      const key = env.key("k", { maxActive: 2, maxQueued: 2 });
      const creates = Array.from({ length: 12 }, (_, index) => create(env, `job-${index}`, key));
      assert.deepEqual(tally(await Promise.all(creates)), { appended: 4, not_admitted: 8 });
      assert.equal((await env.claim()).length, 2);
    },
  },
  {
    name: "a batch of creates meets the key one after the other",
    async run(env) {
      const key = env.key("k", { maxQueued: 1 });
      const changes = ["a", "b", "c", "d"].map((id) => env.creation({ id, key }));
      assert.deepEqual(tally(await env.engine.append(changes)), { appended: 2, not_admitted: 2 });
    },
  },
  {
    name: "of creates of two processes a key takes as many as it has places",
    needs: ["shared"],
    async run(env) {
      const other = env.at(await env.open());
      const key = env.key("k", { maxActive: 1, maxQueued: 4 });
      const creates = Array.from({ length: 10 }, (_, index) =>
        create(index % 2 ? env : other, `job-${index}`, key),
      );
      assert.deepEqual(tally(await Promise.all(creates)), { appended: 5, not_admitted: 5 });
    },
  },
  {
    name: "replace-oldest keeps to the limits of its key however many come at once",
    async run(env) {
      await replaceAtOnce(env, [env]);
    },
  },
  {
    name: "replace-oldest keeps to the limits of its key when processes compete",
    needs: ["shared"],
    async run(env) {
      await replaceAtOnce(env, [env, env.at(await env.open()), env.at(await env.open())]);
    },
  },
  {
    name: "a refused create writes no record",
    async run(env) {
      const key = env.key("k", { maxQueued: 0 });
      await create(env, "first", key);
      const write = { id: "test/once", expect: 0, body: { job: "second" } };
      const refused = await env.append(env.creation({ id: "second", key }, [write]));
      assert.equal(refused.outcome, "not_admitted");
      assert.deepEqual(await env.engine.records([write.id]), [null]);
    },
  },
  {
    name: "a key remembers what its policy did last",
    needs: ["immediateViews"],
    async run(env) {
      const key = env.key("k", { maxQueued: 0 });
      await create(env, "a", key);
      assert.deepEqual((await env.keyRow(key)).lastOutcome, { outcome: "accepted", at: env.now });
      env.clock.advance(5);
      await create(env, "b", key);
      const rejected = { outcome: "rejected", reason: "active_limit", existingJobId: "a" };
      assert.deepEqual((await env.keyRow(key)).lastOutcome, { ...rejected, at: env.now });
      await create(env, "b", { ...key, whenFull: "coalesce" });
      const coalesced = { outcome: "coalesced", existingJobId: "a" };
      assert.deepEqual((await env.keyRow(key)).lastOutcome, { ...coalesced, at: env.now });
      await create(env, "b", { ...key, whenFull: "replace-oldest" });
      const replaced = { outcome: "replaced", replacedJobId: "a" };
      assert.deepEqual((await env.keyRow(key)).lastOutcome, { ...replaced, at: env.now });
    },
  },
]);
