/**
 * History: the log of a job is complete and in order, and the job is its fold.
 */
import assert from "node:assert/strict";
import { fold, jobHash } from "../../core/evolve.js";
import { concern } from "../case.js";
import { defaults, type Environment } from "../environment.js";

/** A long life: failed, released, lapsed, cancelled by force, retried, completed. */
async function live(env: Environment): Promise<string> {
  const { id } = await env.create({ maxTries: 5, payload: { deep: [{ list: [1, 2] }] } });
  await env.fail(await env.claimOne(), env.now + 5);
  env.clock.advance(5);
  const second = await env.claimOne();
  const release = {
    command: "release",
    token: second.token,
    cause: "shutdown",
    runAt: env.now,
  } as const;
  await env.settle(second, release);
  const third = await env.claimOne();
  const progress = { step: "half", current: 1, total: 2 };
  await env.engine.note([env.event(third, { command: "progress", token: third.token, progress })]);
  env.clock.advance(defaults.leaseMs);
  await env.lapse(id);
  await env.claimOne();
  await env.command(id, { command: "cancel", reason: "enough" });
  await env.command(id, { command: "cancel", force: true });
  await env.command(id, { command: "retry", runAt: env.now });
  await env.complete(await env.claimOne());
  return id;
}

export const historyCases = concern("history", [
  {
    name: "a job is the fold of its log, byte for byte",
    async run(env) {
      const id = await live(env);
      const events = await env.history(id);
      const folded = fold(events);
      assert.ok(folded);
      assert.equal(jobHash(await env.load(id)), jobHash(folded));
      assert.deepEqual(
        events.map(({ name }) => name),
        [
          "created",
          "started",
          "retry",
          "started",
          "released",
          "started",
          "progress",
          "retry",
          "started",
          "cancelRequested",
          "cancelled",
          "retried",
          "started",
          "completed",
        ],
      );
    },
  },
  {
    name: "every event carries its own id and the job's unchanging names and context",
    async run(env) {
      const id = await live(env);
      const { service, type, context } = await env.load(id);
      const events = await env.history(id);
      assert.equal(new Set(events.map((event) => event.id)).size, events.length);
      for (const event of events) {
        assert.deepEqual(
          [event.jobId, event.service, event.type, event.context],
          [id, service, type, context],
        );
      }
    },
  },
  {
    name: "what was appended is what is read",
    async run(env) {
      const creation = env.creation({ tags: ["x"], payload: { a: [null, 1.5, "ü"] } });
      await env.append(creation);
      const job = await env.claimOne();
      const change = env.change(
        job,
        { command: "complete", token: 1, result: { ok: [true] }, completedBy: "worker-1" },
        1,
      );
      await env.engine.settle([change]);
      const events = await env.history(job.id);
      assert.deepEqual([events[0], events[2]], [creation.event, change.event]);
    },
  },
  {
    name: "a load without history has no events",
    async run(env) {
      const { id } = await env.create();
      const [plain] = await env.engine.load([id]);
      assert.equal(plain?.events, undefined);
      const [withLog] = await env.engine.load([id], { history: true });
      assert.deepEqual(withLog?.job, plain?.job);
      assert.equal(withLog?.events?.length, 1);
    },
  },
  {
    name: "the log survives the end of the process",
    needs: ["durable"],
    closes: true,
    async run(env) {
      const id = await live(env);
      const [before, job] = [await env.history(id), await env.load(id)];
      await env.engine.close();
      const later = env.at(await env.open());
      assert.deepEqual(await later.history(id), before);
      assert.deepEqual(await later.load(id), job);
    },
  },
]);
