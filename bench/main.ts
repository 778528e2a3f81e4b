// The benchmark: measures Millrace, bare SQL and the peers that are installed, in one run on one
// machine, verifies what it counted, and prints one table. `npm run bench -- --help` tells the rest.
import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { bareOf } from "./bare/bare.js";
import { type Bench, engineNames, type Measure } from "./bench.js";
import { allMeasures, measureNames } from "./measures/all.js";
import { type Options, OptionsError, parseOptions } from "./options.js";
import { findPeers } from "./peers/find.js";
import type { Peer } from "./peers/peer.js";
import { reportRows, reportTable } from "./report.js";
import { type Results, runMeasures } from "./run.js";
import { fullSizes, keyCount, quickSizes, shortRounds, workerConcurrencyOn } from "./sizes.js";
import { Workspace } from "./workspace.js";

const exitCodes = { failed: 1, wrongOptions: 2, interrupted: 130 } as const;

const engineNote = {
  file: "engine file, WAL, synchronous=FULL; one worker process",
  postgres:
    "engine postgres, fsync and synchronous_commit on, a server that the run starts and all systems share; worker processes",
  nats: "engine nats, file storage, the server's default sync (within two minutes); worker processes",
  "nats-always":
    "engine nats, file storage, sync_interval always: every message synced before its acknowledgement; worker processes",
  memory: "engine memory, nothing is durable and no target applies; a worker in the same process",
} as const;

const help = `npm run bench -- [options]

  --engine NAME         the engine of Millrace: ${engineNames.join(", ")} (default file)
  --only name,name      only these measures: ${measureNames.join(", ")}
  --quick               smaller amounts: numbers are rougher
  --json FILE           also write a row per number: engine, system, measure, unit, value, ratio
  --help                this text

Everything happens in a temporary folder (TMPDIR chooses where), which is removed at the end.
A ratio is to bare SQL, and in rows under a burden or a limit to the same without; above 1 is better.
The exit code is 0 unless a verification fails, whether or not the targets are met.`;

async function main(options: Options): Promise<void> {
  if (options.jsonFile !== null) writeFileSync(options.jsonFile, "[]\n");
  const workspace = new Workspace();
  closeOnSignals(workspace);
  try {
    const peers = await findPeers(options.engine);
    const bench: Bench = {
      engine: options.engine,
      sizes: options.quick ? quickSizes : fullSizes,
      workspace,
      progress: (text) => process.stderr.write(`${text}\n`),
    };
    const wanted = allMeasures(peers).filter(
      ({ name }) => options.only === null || options.only.includes(name),
    );
    const measures = wanted.filter(({ engines }) => engines.includes(options.engine));
    const left = wanted.filter((measure) => !measures.includes(measure));
    const results = await runMeasures(measures, bench);
    console.log(`\n${reportTable(results, options.engine)}\n\n${notes(bench, peers, left)}`);
    if (options.jsonFile !== null) writeJson(options.jsonFile, results, options);
    reportFailures(results);
  } finally {
    await workspace.close();
  }
}

function notes(
  { engine, workspace, sizes }: Bench,
  peers: readonly Peer[],
  left: Measure[],
): string {
  const lines = [
    `Node ${process.version}, ${cpus().length} cores. Contenders take turns, and each number is the median of its rounds (${shortRounds} for short measures): the machine may be noisy, so trust ratios more than rates.`,
    `Every contender warms up in the processes and the store that are timed then: ${count(sizes.warmUpSequentialJobs)} creates one after the other (before pickups beside their worker), ${count(sizes.warmUpJobs)} concurrent or in bulk, or ${count(sizes.warmUpJobs)} jobs drained (plainjob fewer); on PostgreSQL, VACUUM (ANALYZE) follows.`,
    `millrace: ${engineNote[engine]} of concurrency ${workerConcurrencyOn(engine)}; whole history kept, and that of every job read again after each round; that of every tenth is folded and compared with its row. Keyed: ${keyCount} keys, one active each. -1m: ${count(sizes.keptJobs)} finished jobs kept; -waiting: ${count(sizes.waitingJobs)} jobs in another queue.`,
    `bare: ${bareOf[engine].settings}.`,
    ...peers.map((peer) =>
      peer.present
        ? `${peer.system}: ${peer.settings}.`
        : `${peer.system}: absent, ${peer.reason}.`,
    ),
    ...left.map(({ name }) => `${name}: left out on this engine.`),
    ...(workspace.isInMemory
      ? [`Warning: ${workspace.folder} lies in memory, where fsync costs nothing. Set TMPDIR.`]
      : []),
  ];
  return lines.join("\n");
}

function count(amount: number): string {
  return amount.toLocaleString("en-US");
}

function writeJson(file: string, results: Results, { engine }: Options): void {
  writeFileSync(file, `${JSON.stringify(reportRows(results, engine), null, 2)}\n`);
  console.log(`\nNumbers written to ${file}.`);
}

function reportFailures(results: Results): void {
  for (const { measure, system, error } of results.failures) {
    console.error(`\nFAILED: ${measure} of ${system}: ${error.stack ?? error.message}`);
  }
  if (results.failures.length > 0) process.exitCode = exitCodes.failed;
}

function closeOnSignals(workspace: Workspace): void {
  // Ctrl-C may arrive twice, from the terminal and from the npm script; only the first one counts,
  // and the listener stays so that the second does not end the process before it has tidied up.
  let isClosing = false;
  const close = () => {
    if (isClosing) return;
    isClosing = true;
    process.stderr.write("\nstopped; removing what was made\n");
    void workspace.close().finally(() => process.exit(exitCodes.interrupted));
  };
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, close);
}

try {
  const options = parseOptions(process.argv.slice(2), measureNames);
  if (options.help) console.log(help);
  else await main(options);
} catch (error) {
  const isWrongOption = error instanceof OptionsError;
  console.error(isWrongOption ? `${error.message}\n\n${help}` : error);
  process.exitCode = isWrongOption ? exitCodes.wrongOptions : exitCodes.failed;
}
