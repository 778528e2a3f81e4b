// View: what the read model of a store costs whose log is a stream: a drain that counts until the view shows every job
// as ended, and how fast a view is made anew from the log.
import { openNats } from "#millrace/engine/nats/open.js";
import type { Bench, Measure, Readings } from "../bench.js";
import { drainStage } from "../drain.js";
import { openService } from "../millrace/contract.js";
import { millrace } from "../millrace/stage.js";
import { shortRounds } from "../sizes.js";
import { now, ratePerSecond } from "../statistics.js";
import { withStage } from "../stores.js";
import { above, plainRateRow } from "./contenders.js";

const name = "view";
const drainName = "drain-shown";
const rebuildName = "rebuild";
const rebuildTargets = { nats: [above(20_000)], "nats-always": [above(20_000)] } as const;

/** Measures the view of a stream. */
export const viewMeasure: Measure = {
  name,
  engines: ["nats", "nats-always"],
  rounds: shortRounds,
  rows: [
    plainRateRow(drainName, "the same as drain, until the view shows every job as ended", {}),
    {
      ...plainRateRow(rebuildName, "the view made anew from the log", rebuildTargets),
      unit: "events/s",
    },
  ],
  contenders: [{ system: "millrace", run }],
};

function run(bench: Bench): Promise<Readings> {
  return withStage(bench, millrace, async (stage) => {
    const meanwhile = async (drained: Promise<void>) => {
      await drained;
      await shownAsEnded(stage.url);
    };
    const backlog = { jobs: bench.sizes.drainJobs, meanwhile };
    const report = await drainStage(bench, millrace, stage, backlog);
    return { [drainName]: report.jobsPerSecond, [rebuildName]: await rebuild(stage.url) };
  });
}

/** Asks the view, which answers when it has everything, until it shows no job that has not ended. */
async function shownAsEnded(url: string): Promise<void> {
  const service = await openService(url);
  const state = ["pending", "active"] as const;
  const unfinished = async () =>
    (await service.reads.counts({ type: "plain", state }).orThrow()).some(({ count }) => count > 0);
  while (await unfinished());
  await service.stop();
}

/** Events of the log that become a view in a second. */
async function rebuild(url: string): Promise<number> {
  const engine = await openNats(url);
  const events = Number(await engine.head());
  await engine.viewStatus();
  const start = now();
  await engine.rebuildView();
  const rate = ratePerSecond(events, start);
  await engine.close();
  return rate;
}
