/**
 * Whether a keeper can lead: where a store's view follows its log, a keeper whose view is far behind or away finds nothing
 * to do. It leaves the lead to others then, if there are any.
 */
import { inTime } from "../client/in-time.js";
import { workerRows } from "../client/presence.js";
import type { Runtime } from "../client/runtime.js";

/** How many events a view may lack that is nearly up to date: what one lacks that rests beside busy workers, and applies in seconds. */
const lagMax = 200_000;

/** How long a look at the view may take. */
const lookMs = 2_000;

/** Whether this process is to lead: its view is nearly up to date, or nobody else is there. */
export async function isFit(runtime: Runtime): Promise<boolean> {
  return (await isViewCurrent(runtime)) || !(await areOthersThere(runtime));
}

async function isViewCurrent({ engine, clock }: Runtime): Promise<boolean> {
  if (engine.viewStatus === undefined) return true;
  const looking = engine.viewStatus().then(
    ({ lag }) => lag <= lagMax,
    () => false,
  );
  return (await inTime(clock, looking, lookMs)) && looking;
}

/** Whether other processes run the service, each of which carries a keeper. */
async function areOthersThere({ engine, service, instance }: Runtime): Promise<boolean> {
  const rows = await workerRows(engine, service);
  return rows.some((row) => row.fresh && row.instance !== instance);
}
