/**
 * Claims are exclusive and durable: a claimed job is active under a fresh token and nobody else's.
 */
import assert from "node:assert/strict";
import { concern } from "../case.js";
import { defaults, ids } from "../environment.js";

export const claimCases = concern("claim", [
  {
    name: "a claimed job is active under its first token, and a load agrees",
    async run(env) {
      const { id } = await env.create();
      env.clock.advance(7);
      const [claimed] = await env.claimed();
      assert.ok(claimed);
      const { job, leaseUntil } = claimed;
      assert.equal(leaseUntil, env.now + defaults.leaseMs);
      assert.deepEqual(
        [job.id, job.state, job.token, job.tries, job.version, job.worker, job.startedAt],
        [id, "active", 1, 1, 2, defaults.worker, env.now],
      );
      assert.deepEqual(await env.load(id), job);
      const started = (await env.history(id)).at(-1);
      assert.ok(started?.name === "started");
      assert.deepEqual([started.token, started.worker, started.at], [1, defaults.worker, env.now]);
    },
  },
  {
    name: "a claimed job is handed to nobody else",
    async run(env) {
      await env.create();
      await env.claimOne();
      await env.nothingClaimable();
      assert.deepEqual(await env.claim({}, { worker: "worker-2" }), []);
    },
  },
  {
    name: "claims at the same time never share a job and leave none",
    async run(env) {
      const created = await env.createMany(40);
      const claims = Array.from({ length: 8 }, (_, index) =>
        env.claim({}, { limit: 7, worker: `worker-${index}` }),
      );
      const claimed = (await Promise.all(claims)).flat();
      assert.equal(new Set(ids(claimed)).size, claimed.length);
      assert.deepEqual([...ids(claimed)].sort(), [...ids(created)].sort());
    },
  },
  {
    name: "claims of two processes never share a job",
    needs: ["shared"],
    async run(env) {
      const other = env.at(await env.open());
      await env.createMany(30);
      const claims = Array.from({ length: 10 }, (_, index) =>
        (index % 2 === 0 ? env : other).claim({}, { limit: 4, worker: `worker-${index}` }),
      );
      const claimed = (await Promise.all(claims)).flat();
      assert.equal(claimed.length, 30);
      assert.equal(new Set(ids(claimed)).size, 30);
    },
  },
  {
    name: "what another process created can be claimed, settled and seen",
    needs: ["shared"],
    async run(env) {
      const other = env.at(await env.open());
      const { id } = await other.create();
      const job = await env.claimOne();
      assert.equal(job.id, id);
      await other.nothingClaimable();
      await env.complete(job);
      assert.equal((await other.load(id)).state, "completed");
    },
  },
  {
    name: "ended jobs are never claimed",
    async run(env) {
      const [a, b, c] = [await env.create(), await env.create(), await env.create()];
      await env.command(a.id, { command: "cancel" });
      await env.command(b.id, { command: "complete", completedBy: null });
      await env.command(c.id, { command: "skip", reason: "not needed" });
      await env.nothingClaimable();
    },
  },
  {
    name: "each start has a token above all before it, over tries and runs",
    async run(env) {
      const { id } = await env.create({ maxTries: 2 });
      const tokens: number[] = [];
      for (let start = 0; start < 2; start++) {
        const job = await env.claimOne();
        tokens.push(job.token);
        await env.fail(job, env.now);
      }
      await env.command(id, { command: "retry", runAt: env.now });
      tokens.push((await env.claimOne()).token);
      assert.deepEqual(tokens, [1, 2, 3]);
    },
  },
  {
    name: "a cancel and a claim at the same time do not both win",
    async run(env) {
      const jobs = await env.createMany(10);
      const cancels = jobs.map((job) => env.append(env.change(job, { command: "cancel" })));
      const [claimed, outcomes] = await Promise.all([env.claim(), Promise.all(cancels)]);
      const cancelled = jobs.filter((_, index) => outcomes[index]?.outcome === "appended");
      assert.deepEqual([...ids(claimed), ...ids(cancelled)].sort(), [...ids(jobs)].sort());
      for (const { id } of cancelled) assert.equal((await env.load(id)).state, "cancelled");
    },
  },
  {
    name: "a lane that is named twice gives each of its jobs once",
    async run(env) {
      const jobs = [await env.create(), await env.create()];
      const claimed = await env.claim([{ free: 5 }, { free: 5 }]);
      assert.deepEqual([...ids(claimed)].sort(), [...ids(jobs)].sort());
      for (const job of claimed)
        assert.deepEqual(await env.historyNames(job.id), ["created", "started"]);
    },
  },
  {
    name: "a durable claim survives the end of its process",
    needs: ["durable"],
    closes: true,
    async run(env) {
      const { id } = await env.create();
      const job = await env.claimOne();
      await env.engine.close();
      const later = env.at(await env.open());
      await later.nothingClaimable();
      assert.deepEqual(await later.load(id), job);
      await later.complete(job);
    },
  },
]);
