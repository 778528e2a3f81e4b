// `npm run simulate -- --engine memory|nats --seeds N --seed S [--verbose]`: runs N simulations from seed S on.
import { parseArgs } from "node:util";
import { failureText } from "./report.js";
import { simulate } from "./simulate.js";
import { type EngineName, engineNames } from "./world.js";

const usage =
  "Usage: npm run simulate -- [--engine memory|nats] [--seeds N] [--seed S] [--verbose]";
const seedsMax = 10_000_000;
const seedMax = 2 ** 32 - 1;

interface Wish {
  readonly engine: EngineName;
  readonly seeds: number;
  readonly first: number;
  readonly verbose: boolean;
}

function wishOf(given: readonly string[]): Wish {
  const { values } = parseArgs({
    args: [...given],
    options: {
      engine: { type: "string", default: "memory" },
      seeds: { type: "string", default: "100" },
      seed: { type: "string", default: "1" },
      verbose: { type: "boolean", default: false },
    },
  });
  const seeds = wholeNumber("seeds", values.seeds, 1, seedsMax);
  const first = wholeNumber("seed", values.seed, 0, seedMax);
  const engine = engineNames.find((name) => name === values.engine);
  if (!engine) throw new Error(`--engine must be ${engineNames.join(" or ")}.`);
  return { engine, seeds, first, verbose: values.verbose };
}

function wholeNumber(name: string, text: string, least: number, most: number): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= least && value <= most) return value;
  throw new Error(`--${name} must be a whole number from ${least} to ${most}, not "${text}".`);
}

async function run({ engine, seeds, first, verbose }: Wish): Promise<number> {
  const startedAt = performance.now();
  const failed: number[] = [];
  let jobs = 0;
  let events = 0;
  let entries = 0;
  for (let count = 1; count <= seeds; count++) {
    const outcome = await simulate(first + count - 1, { engine, verbose });
    jobs += outcome.jobs;
    events += outcome.events;
    entries += outcome.entries;
    if (verbose) console.log(outcome.lines.join("\n"));
    if (outcome.violations.length > 0) {
      failed.push(outcome.seed);
      console.log(failureText(outcome));
    }
    if (count % 100 === 0 || count === seeds) {
      const seconds = (performance.now() - startedAt) / 1_000;
      process.stderr.write(
        `${count}/${seeds} seeds, ${failed.length} failed, ${seconds.toFixed(1)} s\n`,
      );
    }
  }
  console.log(`${seeds} seeds from ${first}: ${jobs} jobs, ${entries} handlers, ${events} events.`);
  console.log(failed.length === 0 ? "No rule was broken." : `Failed seeds: ${failed.join(", ")}`);
  return failed.length === 0 ? 0 : 1;
}

let exitCode = 2;
try {
  exitCode = await run(wishOf(process.argv.slice(2)));
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  console.error(usage);
}
// Processes that were simulated to crash leave promises behind that nobody will ever resolve.
process.exit(exitCode);
