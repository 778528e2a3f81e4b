// Following the feed of a store that does not know a place any more, because it was restored elsewhere.
import { connect } from "millrace";
import { expect, it, onTestFinished } from "vitest";
import { InvalidCursor } from "#millrace/engine/errors.js";
import { followFeed } from "#millrace/keeper/follow-feed.js";
import { FakeClock } from "#millrace/testing/fake-clock.js";
import { contract, noWork } from "../crash/contract.js";

it("asks for its place anew, and goes on from there", async () => {
  const service = await connect(contract, { url: "memory:" });
  onTestFinished(() => service.stop());
  const clock = new FakeClock();
  const stop = new AbortController();
  const ids: string[] = [];
  let heard = () => {};
  const restored = new Set<string | null>();
  const engine = Object.create(service.engine, {
    tail: {
      value: (cursor: string | null, signal: AbortSignal) => {
        if (restored.has(cursor)) throw new InvalidCursor({ message: "restored" });
        return service.engine.tail(cursor, signal);
      },
    },
  });
  let kept: string | null = null;
  let last: string | null = null;
  const faults: unknown[] = [];
  let reading = new AbortController();
  const following = followFeed({
    runtime: { engine, clock },
    signal: stop.signal,
    from: async () => kept,
    take: ({ cursor, event }) => {
      last = cursor;
      ids.push(event.jobId);
      heard();
      if (reading.signal.aborted) throw new Error("away");
    },
    onFault: (error) => faults.push(error),
  });
  const create = async () => {
    const told = new Promise<void>((resolve) => {
      heard = resolve;
    });
    const { id } = await service.jobs.quick.create(noWork).orThrow();
    await told;
    return id;
  };
  const first = await create();
  kept = last;
  reading.abort();
  const second = await create();
  // The store is restored: what this process has read is told by another cursor from now on.
  restored.add(kept);
  reading = new AbortController();
  while (faults.length === 0) await new Promise(setImmediate);
  await clock.advance(1_000);
  while (faults.length === 1) await new Promise(setImmediate);
  expect(faults.at(-1)).toBeInstanceOf(InvalidCursor);
  restored.clear();
  kept = null;
  const toldAgain = new Promise<void>((resolve) => {
    heard = () => ids.length === 4 && resolve();
  });
  await clock.advance(1_000);
  await toldAgain;
  expect(ids).toEqual([first, second, first, second]);
  stop.abort();
  await clock.advance(1_000);
  await following;
});
