/**
 * A small load on the user's own store, in a service of its own that is gone afterwards.
 */
import { z } from "zod";
import type { JobRef } from "../client/job-ref.js";
import { defineJob, defineService } from "../contract/define.js";
import type { Engine } from "../engine/engine.js";
import { openEngine } from "../engine/open.js";
import { recordId } from "../engine/record.js";
import { connect } from "../service/connect.js";
import { interrupted } from "./failure.js";
import type { Session } from "./session.js";
import { storeFailure } from "./store-failure.js";
import { duration, grouped } from "./view/paint.js";

const callers = 64;
const concurrency = 200;
const pickups = 50;

/** The service that is made for the load; nobody else's name begins so. */
const scratch = defineService("millrace-bench-scratch", {
  noop: defineJob({ payload: z.object({ index: z.number() }), concurrency }),
});

interface Measures {
  readonly createsPerSecond: number;
  readonly createMs: { readonly median: number; readonly p99: number };
  readonly drainedPerSecond: number;
  readonly pickupMs: { readonly median: number; readonly p99: number };
}

/** Measures a store, prints what came out, and removes what it made. */
export async function bench(session: Session, jobs: number): Promise<void> {
  const url = session.storeUrl("bench");
  const engine = await openEngine(url).catch((error: unknown) => {
    throw storeFailure(error);
  });
  try {
    const measures = await measure(session, engine, jobs);
    session.output.document({ store: engine.url, jobs, ...measures }, () => text(jobs, measures));
  } catch (error) {
    throw session.signal.aborted ? interrupted() : storeFailure(error);
  } finally {
    await engine.close();
  }
}

async function measure(session: Session, engine: Engine, jobs: number): Promise<Measures> {
  const { output } = session;
  const creator = await connect(scratch, { engine });
  const refs: JobRef[] = [];
  const latencies: number[] = [];
  const create = async (index: number) => {
    session.signal.throwIfAborted();
    const startedAt = performance.now();
    refs.push(await creator.jobs.noop.create({ index }).orThrow());
    latencies.push(performance.now() - startedAt);
  };
  try {
    output.progress(`creating ${jobs} jobs`);
    const createMs = await timed(() => inParallel(jobs, callers, create));
    const creates = { median: quantile(latencies, 0.5), p99: quantile(latencies, 0.99) };
    output.progress(`draining ${jobs} jobs`);
    const { drainMs, pickupMs } = await drain(session, engine, refs);
    return {
      createsPerSecond: (jobs * 1_000) / createMs,
      createMs: creates,
      drainedPerSecond: (jobs * 1_000) / drainMs,
      pickupMs: { median: quantile(pickupMs, 0.5), p99: quantile(pickupMs, 0.99) },
    };
  } finally {
    output.progress(`removing ${refs.length} jobs`);
    await inParallel(refs.length, callers, async (index) => {
      await refs[index]?.delete({ force: true }).orThrow();
    });
    await creator.stop();
    await removeRecords(engine);
  }
}

/** Runs all that waits, and then some one by one, to see how soon an idle worker takes them up. */
async function drain(
  { signal }: Session,
  engine: Engine,
  refs: JobRef[],
): Promise<{ readonly drainMs: number; readonly pickupMs: readonly number[] }> {
  const worker = await connect(scratch, { engine });
  let left = refs.length;
  let onDone = () => {};
  let onStart = () => {};
  worker.jobs.noop.handle(async () => {
    left -= 1;
    onStart();
    if (left === 0) onDone();
  });
  const stopped = new Promise<never>((_, reject) => {
    signal.addEventListener("abort", () => reject(interrupted()), { once: true });
  });
  try {
    const done = new Promise<void>((resolve) => {
      onDone = resolve;
    });
    const drainMs = await timed(async () => {
      await worker.start();
      await Promise.race([done, stopped]);
    });
    const pickupMs: number[] = [];
    for (let index = 0; index < pickups; index++) {
      const started = new Promise<void>((resolve) => {
        onStart = resolve;
      });
      const createdAt = performance.now();
      const ref = await worker.jobs.noop.create({ index }).orThrow();
      refs.push(ref);
      await Promise.race([started, stopped]);
      pickupMs.push(performance.now() - createdAt);
      await ref.wait().orThrow();
    }
    return { drainMs, pickupMs };
  } finally {
    await worker.stop();
  }
}

/** What a service leaves beside its jobs. */
async function removeRecords(engine: Engine): Promise<void> {
  const ids = [recordId.contract(scratch.name), recordId.keeper(scratch.name)];
  const events = await engine.query("records", { prefix: recordId.auditEvents(scratch.name) });
  const records = [...(await engine.records(ids)), ...events];
  const writes = records.flatMap((record) =>
    record === null ? [] : [{ id: record.id, expect: record.version, body: null }],
  );
  if (writes.length > 0) await engine.swap(writes);
}

async function inParallel(
  count: number,
  lanes: number,
  call: (index: number) => Promise<void>,
): Promise<void> {
  let next = 0;
  const lane = async () => {
    for (let index = next++; index < count; index = next++) await call(index);
  };
  await Promise.all(Array.from({ length: lanes }, lane));
}

async function timed(call: () => Promise<void>): Promise<number> {
  const startedAt = performance.now();
  await call();
  return performance.now() - startedAt;
}

function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(Math.floor(sorted.length * share), sorted.length - 1)] ?? 0;
}

function text(jobs: number, measures: Measures): string {
  const { createsPerSecond, createMs, drainedPerSecond, pickupMs } = measures;
  return [
    `created  ${grouped(createsPerSecond)} jobs/s from ${callers} callers (median ${duration(createMs.median)}, p99 ${duration(createMs.p99)})`,
    `drained  ${grouped(drainedPerSecond)} jobs/s, ${grouped(jobs)} jobs`,
    `pickup   median ${duration(pickupMs.median)}, p99 ${duration(pickupMs.p99)}, by an idle worker`,
  ].join("\n");
}
