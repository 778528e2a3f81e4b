/**
 * Notes: progress, logs and emitted events. Durable, without a version, and fenced by the fold.
 */
import assert from "node:assert/strict";
import type { JobEvent } from "../../core/event.js";
import { concern } from "../case.js";
import { defaults } from "../environment.js";

export const noteCases = concern("notes", [
  {
    name: "notes of the holder are in the log, and progress in the fold",
    async run(env) {
      const { id } = await env.create();
      const job = await env.claimOne();
      const progress = { step: "render", current: 1, total: 3 };
      const entries = [{ at: env.now, level: "info", message: "half way" }] as const;
      const notes = [
        env.event(job, { command: "progress", token: 1, progress }),
        env.event(job, { command: "log", token: 1, entries }),
        env.event(job, { command: "emit", token: 1, topic: "page", data: [1] }),
        env.event(job, { command: "heartbeat", token: 1 }),
      ];
      assert.deepEqual(await env.engine.note(notes), [true, true, true, true]);
      assert.deepEqual(await env.load(id), { ...job, progress });
      assert.deepEqual((await env.history(id)).slice(2), notes);
    },
  },
  {
    name: "a note does not disturb an outcome that was decided before it",
    async run(env) {
      await env.create();
      const job = await env.claimOne();
      const note = env.event(job, { command: "progress", token: 1, progress: { current: 1 } });
      await env.engine.note([note]);
      await env.complete(job);
    },
  },
  {
    name: "a note under an old token is not stored",
    async run(env) {
      const { id } = await env.create();
      const old = await env.claimOne();
      const note = env.event(old, { command: "progress", token: 1, progress: { current: 1 } });
      env.clock.advance(defaults.leaseMs);
      await env.lapse(id);
      assert.deepEqual(await env.engine.note([note]), [false]);
      const young = await env.claimOne();
      assert.deepEqual(await env.engine.note([note]), [false]);
      assert.deepEqual(await env.load(id), young);
      assert.ok(!(await env.historyNames(id)).includes("progress"));
    },
  },
  {
    name: "a note after the end is not stored",
    async run(env) {
      const { id } = await env.create();
      const job = await env.claimOne();
      const note = env.event(job, { command: "heartbeat", token: 1 });
      await env.complete(job);
      assert.deepEqual(await env.engine.note([note]), [false]);
      assert.deepEqual(await env.historyNames(id), ["created", "started", "completed"]);
    },
  },
  {
    name: "a note about a job that is gone is not stored",
    async run(env) {
      const { id } = await env.create();
      const job = await env.claimOne();
      const note = env.event(job, { command: "heartbeat", token: 1 });
      await env.command(id, { command: "delete", reason: "test", force: true });
      assert.deepEqual(await env.engine.note([note]), [false]);
    },
  },
  {
    name: "a batch of notes has an answer for each, and a bad one harms no other",
    async run(env) {
      await env.createMany(2);
      const [a, b] = await env.claim();
      assert.ok(a && b);
      await env.complete(a);
      const notes = [a, b, a, b].map((job) => env.event(job, { command: "heartbeat", token: 1 }));
      assert.deepEqual(await env.engine.note(notes), [false, true, false, true]);
      assert.deepEqual(await env.engine.note([]), []);
    },
  },
  {
    name: "a change is no note",
    async run(env) {
      await env.create();
      const job = await env.claimOne();
      const wish = { command: "complete", token: 1, completedBy: null } as const;
      assert.deepEqual(await env.engine.note([env.event(job, wish)]), [false]);
      const cancel = env.event(job, { command: "cancel", force: true });
      assert.deepEqual(await env.engine.note([cancel]), [false]);
      assert.deepEqual(await env.load(job.id), job);
    },
  },
  {
    name: "an event that nobody knows is not stored",
    async run(env) {
      await env.create();
      const job = await env.claimOne();
      const beat = env.event(job, { command: "heartbeat", token: 1 });
      const strange = { ...beat, name: "teleported" } as unknown as JobEvent;
      assert.deepEqual(await env.engine.note([strange]), [false]);
      assert.deepEqual(await env.load(job.id), job);
    },
  },
  {
    name: "a failed hook is a note of a job in any state, and changes nothing of it",
    async run(env) {
      const { id } = await env.create();
      const error = { message: "no paper", reason: "hook" } as const;
      const fail = async (hook: "onStart" | "onEnd") => {
        const job = await env.load(id);
        const note = env.event(job, { command: "reportHook", hook, error });
        assert.deepEqual(await env.engine.note([note]), [true]);
        assert.deepEqual(await env.load(id), job);
        return note;
      };
      const early = await fail("onStart");
      const job = await env.claimOne();
      const started = await fail("onStart");
      await env.complete(job);
      const ended = await fail("onEnd");
      const notes = (await env.history(id)).filter(({ name }) => name === "hookFailed");
      assert.deepEqual(notes, [early, started, ended]);
    },
  },
  {
    name: "an agent's acknowledgement is a note of a waiting or active job",
    async run(env) {
      const waiting = await env.create({ agent: "agent-1" });
      const note = env.event(waiting, { command: "acknowledge", agent: "agent-1" });
      assert.deepEqual(await env.engine.note([note]), [true]);
      const job = await env.load(waiting.id);
      assert.deepEqual([job.acknowledgedBy, job.version], ["agent-1", 1]);
      const claimed = await env.claimOne();
      assert.equal(claimed.acknowledgedBy, "agent-1");
    },
  },
]);
