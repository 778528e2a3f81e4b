/**
 * Cancelling: at once while a job waits, on request while it runs.
 */
import assert from "node:assert/strict";
import { concern } from "../case.js";
import { defaults } from "../environment.js";

const conflict = { outcome: "conflict" } as const;

export const cancelCases = concern("cancel", [
  {
    name: "a waiting job is cancelled at once, whatever it waits for",
    async run(env) {
      await env.create({ id: "x", type: "other" });
      const waiting = [
        await env.create(),
        await env.create({ runAt: env.now + 1_000 }),
        await env.create({ blockers: [{ jobId: "x", onBadEnd: "continue" }] }),
        await env.create({ key: env.key("k") }),
        await env.create({ key: env.key("k") }),
      ];
      for (const { id } of waiting) {
        const job = await env.command(id, { command: "cancel", reason: "not needed" });
        assert.deepEqual([job?.state, job?.reason], ["cancelled", "not needed"]);
      }
      env.clock.advance(2_000);
      await env.nothingClaimable();
    },
  },
  {
    name: "a job that waits for its next try is cancelled at once",
    async run(env) {
      const { id } = await env.create();
      await env.fail(await env.claimOne(), env.now + 10);
      await env.command(id, { command: "cancel" });
      env.clock.advance(10);
      await env.nothingClaimable();
      assert.equal((await env.load(id)).state, "cancelled");
    },
  },
  {
    name: "an active job is asked to stop and ends when its worker says so",
    async run(env) {
      const { id } = await env.create();
      const job = await env.claimOne();
      const asked = await env.command(id, { command: "cancel", reason: "changed my mind" });
      assert.deepEqual([asked?.state, asked?.cancelRequest?.reason], ["active", "changed my mind"]);
      const confirm = { command: "confirmCancel", token: 1 } as const;
      assert.deepEqual(await env.settle(job, confirm), conflict);
      assert.ok(asked);
      assert.deepEqual(await env.settle(asked, confirm), { outcome: "appended" });
      const ended = await env.load(id);
      assert.deepEqual([ended.state, ended.reason], ["cancelled", "changed my mind"]);
    },
  },
  {
    name: "a job that completes in spite of the request is completed",
    async run(env) {
      const { id } = await env.create();
      await env.claimOne();
      const asked = await env.command(id, { command: "cancel" });
      assert.ok(asked);
      await env.complete(asked);
      assert.equal((await env.load(id)).state, "completed");
    },
  },
  {
    name: "a job that was asked to stop and whose lease lapses is cancelled",
    async run(env) {
      const { id } = await env.create();
      await env.claimOne();
      await env.command(id, { command: "cancel" });
      env.clock.advance(defaults.leaseMs);
      assert.equal((await env.lapse(id)).state, "cancelled");
      await env.nothingClaimable();
    },
  },
  {
    name: "a forced cancel ends an active job",
    async run(env) {
      const { id } = await env.create();
      const job = await env.claimOne();
      assert.equal((await env.command(id, { command: "cancel", force: true }))?.state, "cancelled");
      const wish = { command: "complete", token: 1, completedBy: null } as const;
      assert.deepEqual(await env.settle(job, wish), conflict);
    },
  },
  {
    name: "of two requests decided on the same version one is refused",
    async run(env) {
      await env.create();
      const job = await env.claimOne();
      const requests = [1, 2].map(() => env.append(env.change(job, { command: "cancel" })));
      const outcomes = (await Promise.all(requests)).map(({ outcome }) => outcome).sort();
      assert.deepEqual(outcomes, ["appended", "conflict"]);
    },
  },
]);
