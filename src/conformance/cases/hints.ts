/**
 * Hints and the end of an engine: wake-ups come after the call that caused them, and a closed engine says so.
 */
import assert from "node:assert/strict";
import type { WakeTopic } from "../../engine/engine.js";
import { StoreClosed } from "../../engine/errors.js";
import { recordId } from "../../engine/record.js";
import { concern } from "../case.js";
import type { Environment, LaneAsk } from "../environment.js";

/** Resolves with the next hint on a topic. */
function hint(env: Environment, topic: WakeTopic): Promise<void> {
  return new Promise((resolve) => {
    const stop = env.engine.wake(topic, () => {
      stop();
      resolve();
    });
  });
}

/** Waits for the hint that something causes. */
async function hinted(env: Environment, topic: WakeTopic, cause: () => Promise<unknown>) {
  const waiting = hint(env, topic);
  await cause();
  await waiting;
}

/** Reads until the end, which may be an error that says that the store was closed. */
async function drain(items: AsyncIterable<unknown>): Promise<void> {
  try {
    for await (const item of items) assert.ok(item);
  } catch (error) {
    assert.ok(error instanceof StoreClosed);
  }
}

export const hintCases = concern("hints", [
  {
    name: "a create hints that something may be claimable, also a delayed one",
    async run(env) {
      await hinted(env, "ready", () => env.create());
      await hinted(env, "ready", () => env.create({ runAt: env.now + 1_000 }));
    },
  },
  {
    name: "a freed slot of a key or a cap hints that something may be claimable",
    async run(env) {
      await env.createMany(2, { key: env.key("k") });
      const keyed = await env.claimOne();
      await hinted(env, "ready", () => env.complete(keyed));
      const lane: LaneAsk = { type: "other", typeMaxActive: 1 };
      await env.createMany(2, { type: "other" });
      const capped = await env.claimOne(lane);
      await hinted(env, "ready", () => env.complete(capped));
    },
  },
  {
    name: "a failed try and a retry by hand hint that something may be claimable",
    async run(env) {
      const { id } = await env.create();
      const job = await env.claimOne();
      await hinted(env, "ready", () => env.fail(job, env.now));
      await env.command(id, { command: "cancel" });
      await hinted(env, "ready", () => env.command(id, { command: "retry", runAt: env.now }));
    },
  },
  {
    name: "settings of a queue that change hint that something may be claimable",
    async run(env) {
      const id = recordId.queue("shop", "mail");
      await hinted(env, "ready", () =>
        env.engine.swap([{ id, expect: 0, body: { paused: true } }]),
      );
      await hinted(env, "ready", () =>
        env.engine.swap([{ id, expect: 1, body: { paused: false } }]),
      );
    },
  },
  {
    name: "the end of a job is hinted at, whoever ends it",
    async run(env) {
      const { id } = await env.create();
      await hinted(env, "ended", () => env.command(id, { command: "cancel" }));
      await env.create();
      const job = await env.claimOne();
      await hinted(env, "ended", () => env.complete(job));
      await env.create({ deadline: env.now + 1 });
      env.clock.advance(1);
      await hinted(env, "ended", () => env.claim());
    },
  },
  {
    name: "a request to stop and an end from outside are hinted at",
    async run(env) {
      const { id } = await env.create();
      await env.claimOne();
      await hinted(env, "cancel", () => env.command(id, { command: "cancel" }));
      await hinted(env, "cancel", () => env.command(id, { command: "cancel", force: true }));
    },
  },
  {
    name: "a listener that was stopped hears nothing more, and others still do",
    async run(env) {
      let heard = 0;
      const stop = env.engine.wake("ready", () => {
        heard += 1;
      });
      await hinted(env, "ready", () => env.create());
      assert.ok(heard > 0);
      stop();
      stop();
      const before = heard;
      await hinted(env, "ready", () => env.create());
      assert.equal(heard, before);
    },
  },
  {
    name: "hints come after the call, so that a listener may ask the engine",
    async run(env) {
      let inside = true;
      const seen = new Promise<number>((resolve) => {
        const stop = env.engine.wake("ready", () => {
          assert.equal(inside, false);
          // A hint may be about nothing, as the first one is that comes when listening has begun.
          void env.claim().then(({ length }) => {
            if (length === 0) return;
            stop();
            resolve(length);
          });
        });
      });
      const creating = env.append(env.creation());
      inside = false;
      await creating;
      assert.equal(await seen, 1);
    },
  },
  {
    name: "a closed engine refuses calls with a clear error, ends its readers, and closes twice",
    closes: true,
    async run(env) {
      const asked = env.append(env.creation({ id: "last" }));
      const reading = drain(env.engine.tail(null, new AbortController().signal));
      await env.engine.close();
      assert.deepEqual(await asked, { outcome: "appended" });
      await reading;
      await env.engine.close();
      await assert.rejects(env.engine.load(["last"]), StoreClosed);
      await assert.rejects(env.append(env.creation()), StoreClosed);
    },
  },
  {
    name: "a store can be made usable again and again",
    async run(env) {
      const job = await env.create();
      await Promise.all([env.engine.provision(), env.engine.provision()]);
      assert.deepEqual(await env.load(job.id), job);
    },
  },
]);
