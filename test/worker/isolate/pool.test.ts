// The pool of processes that wait for jobs: who gets one, and when the next is started.
import { expect, it } from "vitest";
import { silentLogger } from "#millrace/engine/logger.js";
import { FakeClock } from "#millrace/testing/fake-clock.js";
import { WarmPool } from "#millrace/worker/isolate/pool.js";

interface WaitingThing {
  readonly number: number;
  readonly ended: Promise<void>;
  discard(): void;
  end(): void;
}

/** A pool of things that are ready when the test says so. */
function openPool(warm: number) {
  const clock = new FakeClock();
  const starting: { readonly ready: () => void; readonly fail: (error: Error) => void }[] = [];
  const discarded: number[] = [];
  const processes: WaitingThing[] = [];
  let started = 0;
  const start = () =>
    new Promise<WaitingThing>((resolve, reject) => {
      const number = ++started;
      let end = () => {};
      const ended = new Promise<void>((over) => {
        end = over;
      });
      const discard = () => void discarded.push(number);
      const process = { number, ended, discard, end };
      processes.push(process);
      starting.push({ ready: () => resolve(process), fail: reject });
    });
  const pool = new WarmPool({ warm, start, logger: silentLogger, clock });
  /** Makes everything ready that is starting, until nothing more is started. */
  const settle = async () => {
    for (let next = starting.shift(); next !== undefined; next = starting.shift()) {
      next.ready();
      await clock.advance(0);
    }
  };
  return { pool, clock, starting, discarded, processes, settle, started: () => started };
}

const nobody = new AbortController().signal;

async function openFull(warm: number) {
  const opened = openPool(warm);
  const isOpen = opened.pool.start();
  await opened.settle();
  await isOpen;
  return opened;
}

it("fills up at the start, and after a burst when no more jobs come", async () => {
  const { pool, clock, settle, started } = await openFull(4);
  expect(started()).toBe(4);
  const taken = await Promise.all([1, 2, 3].map(() => pool.take(nobody)));
  expect(taken.map(({ number }) => number)).toEqual([1, 2, 3]);
  await settle();
  expect(started()).toBe(4);
  await clock.advance(100);
  await settle();
  expect(started()).toBe(7);
});

it("starts what those need who wait", async () => {
  const { pool, settle, started } = await openFull(1);
  const taking = [1, 2, 3].map(() => pool.take(nobody));
  await settle();
  expect((await Promise.all(taking)).map(({ number }) => number)).toEqual([1, 2, 3]);
  expect(started()).toBe(4);
});

it("keeps nothing ready where nothing should be", async () => {
  const { pool, clock, settle, started } = openPool(0);
  const taking = pool.take(nobody);
  await clock.advance(1_000);
  await settle();
  expect((await taking).number).toBe(1);
  expect(started()).toBe(1);
});

it("lets a job leave that waits", async () => {
  const { pool, starting, settle } = openPool(0);
  const leaving = new AbortController();
  const left = pool.take(leaving.signal);
  const staying = pool.take(nobody);
  leaving.abort(new Error("cancelled"));
  await expect(left).rejects.toThrow("cancelled");
  expect(starting.length).toBeGreaterThan(0);
  await settle();
  expect((await staying).number).toBe(1);
});

it("fails one job for each process that cannot be started, and none for ever", async () => {
  const { pool, clock, starting, settle } = openPool(0);
  const first = pool.take(nobody);
  const second = pool.take(nobody);
  starting.shift()?.fail(new Error("no memory"));
  await expect(first).rejects.toThrow("no memory");
  await clock.advance(0);
  await settle();
  expect((await second).number).toBeGreaterThan(1);
});

it("gives out none that has ended while it waited", async () => {
  const { pool, clock, processes, settle } = await openFull(2);
  processes[0]?.end();
  await clock.advance(0);
  expect((await pool.take(nobody)).number).toBe(2);
  await settle();
});

it("ends what waits when it stops, and what becomes ready later", async () => {
  const { pool, clock, starting, discarded } = await openFull(1);
  const taking = pool.take(nobody);
  await taking;
  expect(starting.length).toBe(1);
  pool.stop();
  starting.shift()?.ready();
  await clock.advance(0);
  expect(discarded).toEqual([2]);
});
