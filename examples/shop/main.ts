// The example shop: `npm start`. Runs jobs of every kind on a SQLite file, shows them live, and
// ends with a summary. `npm start -- --help` tells the options.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { connect, openEngine, type Service } from "millrace";
import { type ShopJobs, shop } from "./contract.js";
import { Customers } from "./customers.js";
import { handlers } from "./handlers.js";
import { LiveView, type View } from "./live-view.js";
import { help, type Options, OptionsError, parseOptions } from "./options.js";
import { paintFor } from "./paint.js";
import { PlainView } from "./plain-view.js";
import { summary, timeline } from "./summary.js";
import { countsOf, endedCount, openCount, Watch } from "./watch.js";

const exitCodes = { failed: 1, wrongOptions: 2, interrupted: 130 } as const;
const redrawMs = 120;
const lookRarely = 5;
const graceMs = 3_000;

/** Signals that come this close together are one wish. */
const sameSignalMs = 300;

const isTerminal = process.stdout.isTTY === true && process.env.TERM !== "dumb";
const paint = paintFor(isTerminal);

async function main(options: Options): Promise<void> {
  const file = options.file === null ? temporaryFile() : resolve(options.file);
  // The engine is opened here and not by connect, so that the summary can read it after the stop.
  const engine = await openEngine(`file:${file}`);
  try {
    const service = await connect(shop, { engine, graceMs });
    await run(service, options, file);
    console.log(whatNext(options.file, openCount(await countsOf(service))));
  } finally {
    await engine.close();
  }
}

/** A fresh file that is gone when the process ends, however it ends. */
function temporaryFile(): string {
  const folder = mkdtempSync(join(tmpdir(), "millrace-shop-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  return join(folder, "jobs.db");
}

async function run(service: Service<ShopJobs>, options: Options, file: string): Promise<void> {
  const before = await countsOf(service);
  const title = `The Millrace example shop, on ${file}`;
  const view = isTerminal ? new LiveView(process.stdout, paint, title) : new PlainView(title);
  if (openCount(before) > 0) view.say(`${openCount(before)} jobs of an earlier run go on.`);
  const customers = new Customers(service, options);
  service.handle(handlers);
  const startedAt = performance.now();
  try {
    const stop = stopOnSignals(view);
    await service.start();
    await watchUntilDone(service, customers, view, stop);
    await service.stop();
    const waiting = openCount(await countsOf(service));
    if (stop.aborted) view.say(`Stopped: nothing runs any more, and ${waiting} jobs wait.`);
  } finally {
    view.stop();
  }
  const parts = {
    service,
    paint,
    counts: await countsOf(service),
    traffic: customers.traffic,
    endedBefore: endedCount(before),
    elapsedMs: performance.now() - startedAt,
  };
  console.log(`\n${summary(parts)}\n`);
  const history = await timeline(parts);
  if (history !== null) console.log(`${history}\n`);
}

/** Lets the customers come, and draws until every job has ended or somebody wants to stop. */
async function watchUntilDone(
  service: Service<ShopJobs>,
  customers: Customers,
  view: View,
  stop: AbortSignal,
): Promise<void> {
  const watch = new Watch(service);
  await watch.start();
  const startedAt = performance.now();
  const shopping = customers.shopUntilDone(stop);
  try {
    for (let isDone = false; !isDone && !stop.aborted; ) {
      const lookedAt = performance.now();
      const picture = await watch.look();
      const lookMs = performance.now() - lookedAt;
      view.show(picture, customers.traffic, lookedAt - startedAt);
      isDone = customers.traffic.isOver && openCount(picture.counts) === 0;
      // Counting very many jobs takes time, which the jobs should have.
      const pauseMs = Math.max(redrawMs, lookMs * lookRarely);
      await pause(pauseMs, undefined, { signal: stop }).catch(() => {});
    }
    await shopping;
  } finally {
    await watch.stop();
  }
}

/** The first Ctrl-C stops gracefully, the second exits at once. */
function stopOnSignals(view: View): AbortSignal {
  const stop = new AbortController();
  let stoppedAt = Number.NEGATIVE_INFINITY;
  const onSignal = () => {
    const now = performance.now();
    // The terminal tells every process of a command, and npm tells its child once more.
    if (now - stoppedAt < sameSignalMs) return;
    if (stop.signal.aborted) {
      view.stop();
      process.exit(exitCodes.interrupted);
    }
    stoppedAt = now;
    view.say(
      `\nStopping: running jobs get ${graceMs / 1_000} s to finish or go back to the queue. Ctrl-C again exits at once.`,
    );
    stop.abort();
  };
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, onSignal);
  return stop.signal;
}

function whatNext(file: string | null, waiting: number): string {
  const hints = [
    ["npm start -- --jobs 50000", "many more jobs at once"],
    [
      `npm start -- --file ${file ?? "shop.db"}`,
      "keep the file: kill -9 it, start it again, and it goes on",
    ],
    ["examples/quickstart.ts", "your own first job"],
  ] as const;
  const width = Math.max(...hints.map(([command]) => command.length));
  return [
    paint("bold", "What to try next"),
    ...(waiting > 0 && file !== null
      ? [`  ${waiting} jobs wait in ${file} for the next start.`]
      : []),
    ...hints.map(([command, shows]) => `  ${command.padEnd(width)}   ${shows}`),
  ].join("\n");
}

/** A reader that has seen enough, such as `head`, is no reason to complain. */
process.stdout.on("error", () => process.exit(0));

try {
  const options = parseOptions(process.argv.slice(2));
  if (options.help) console.log(help);
  else await main(options);
} catch (error) {
  const message = error instanceof Error ? error.message : String(error);
  const isWrongOption = error instanceof OptionsError;
  console.error(isWrongOption ? `${message}\n\n${help}` : message);
  process.exitCode = isWrongOption ? exitCodes.wrongOptions : exitCodes.failed;
}
