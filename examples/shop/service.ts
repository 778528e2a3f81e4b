// The example shop as `millrace dev` and `millrace worker` take it: `npm start` runs it.
import type { Service } from "millrace";
import { type ShopJobs, shop } from "./contract.js";
import { Customers } from "./customers.js";
import { handlers } from "./handlers.js";

const defaults = { seconds: 60, jobs: 3_000 };
const secondsMax = 3_600;
const jobsMax = 1_000_000;

/** What `millrace dev` gives to the sample. */
interface SampleParts {
  readonly service: Service<ShopJobs>;
  readonly signal: AbortSignal;
  readonly options: { readonly seconds?: string; readonly jobs?: string };
}

/** Lets customers come: `--sample seconds=60` says for how long, `--sample jobs=3000` how many receipts they want. */
async function sample({ service, signal, options }: SampleParts): Promise<void> {
  const { seconds = defaults.seconds, jobs = defaults.jobs } = options;
  const wish = {
    seconds: wholeNumber("seconds", seconds, 1, secondsMax),
    receipts: wholeNumber("jobs", jobs, 0, jobsMax),
  };
  await new Customers(service, wish).shopUntilDone(signal);
}

function wholeNumber(name: string, given: string | number, least: number, most: number): number {
  const value = Number(given);
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw new Error(`${name}=${given} is not a whole number from ${least} to ${most}.`);
}

export default { contract: shop, handlers, sample };
