// A process that creates jobs while its syncs are counted: `syncing.ts URL COUNTER CREATES TOGETHER RUNS`.
// It prints, for each acknowledged call, the number of syncs before the call and at its acknowledgement.
import { statSync } from "node:fs";
import { connect } from "millrace";
import { contract, noWork } from "./contract.js";

const [, , url = "", counter = "", creates = "0", together = "0", runs = "0"] = process.argv;
const service = await connect(contract, { url, keeper: false });

/** The number of syncs around one acknowledged call. */
export interface SyncedCall {
  readonly before: number;
  readonly after: number;
}

/** What the process prints. */
export interface SyncReport {
  /** Creates one after the other. */
  readonly creates: readonly SyncedCall[];
  /** Creates all at once, and the syncs that they needed in all. */
  readonly together: readonly SyncedCall[];
  readonly togetherSyncs: number;
  /** Jobs that were created, claimed and settled, one after the other. */
  readonly runs: readonly SyncedCall[];
}

function syncs(): number {
  return statSync(counter, { throwIfNoEntry: false })?.size ?? 0;
}

async function counted(call: () => Promise<unknown>): Promise<SyncedCall> {
  const before = syncs();
  await call();
  return { before, after: syncs() };
}

const create = () => counted(() => service.jobs.quick.create(noWork).orThrow());
const run = () => counted(() => service.jobs.flaky.run(noWork).orThrow());

async function oneByOne(count: number, call: () => Promise<SyncedCall>): Promise<SyncedCall[]> {
  const calls: SyncedCall[] = [];
  while (calls.length < count) calls.push(await call());
  return calls;
}

const createReport = await oneByOne(Number(creates), create);
const start = syncs();
const togetherReport = await Promise.all(Array.from({ length: Number(together) }, create));
const togetherSyncs = syncs() - start;
service.jobs.flaky.handle(() => ({}));
await service.start();
const runReport = await oneByOne(Number(runs), run);
const report: SyncReport = {
  creates: createReport,
  together: togetherReport,
  togetherSyncs,
  runs: runReport,
};
console.log(JSON.stringify(report));
await service.stop();
