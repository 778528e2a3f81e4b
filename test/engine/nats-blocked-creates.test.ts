// Creates of one call that wait for others on JetStream: they go together, but for one that waits for another of the call.
import type { Blocker } from "millrace";
import { expect, it } from "vitest";
import { Deployment, type Interference, signal, stores } from "../support/nats-engine.js";

const after = (jobId: string): readonly Blocker[] => [{ jobId, onBadEnd: "unreachable" }];

/** Holds creates back until so many of them are on their way. */
function together(count: number): Interference {
  const onTheirWay = new Set<string>();
  const all = signal();
  return async (step, go) => {
    if (!stores("created")(step)) return go();
    for (const subject of step.subjects) onTheirWay.add(subject);
    if (onTheirWay.size >= count) all.give();
    await all.given;
    return go();
  };
}

it("jobs that wait for the same one are on their way at the same time", async () => {
  const deployment = await Deployment.make();
  const top = await deployment.env.create();
  const env = await deployment.process(together(3));
  const creations = Array.from({ length: 3 }, () => env.creation({ blockers: after(top.id) }));
  const outcomes = await env.engine.append(creations);
  expect(outcomes.map(({ outcome }) => outcome)).toEqual(["appended", "appended", "appended"]);
});

it("a job that waits for another of its call is stored after that one", async () => {
  const { env } = await Deployment.make();
  const first = env.creation({ id: "first" });
  const second = env.creation({ id: "second", blockers: after("first") });
  const third = env.creation({ id: "third", blockers: after("second") });
  const early = env.creation({ id: "early", blockers: after("late") });
  const late = env.creation({ id: "late" });
  const outcomes = await env.engine.append([first, second, third, early, late]);
  expect(outcomes).toEqual([
    { outcome: "appended" },
    { outcome: "appended" },
    { outcome: "appended" },
    { outcome: "bad_blocker", reason: "missing", blockerId: "late" },
    { outcome: "appended" },
  ]);
});
