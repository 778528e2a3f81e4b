/**
 * Server, keeper and worker in one process, and a view of what goes on.
 */
import { setTimeout as pause } from "node:timers/promises";
import type { Engine } from "../engine/engine.js";
import { openEngine } from "../engine/open.js";
import type { RunningServer } from "../server/http/server.js";
import { packageVersion } from "../service/package-version.js";
import type { Service } from "../service/service.js";
import { Failure, messageOf } from "./failure.js";
import { loggerOf } from "./logger.js";
import { serve } from "./serving.js";
import type { Session } from "./session.js";
import { settings, settingValue } from "./settings.js";
import { storeFailure } from "./store-failure.js";
import { LiveView, type View } from "./view/live-view.js";
import { paintWith } from "./view/paint.js";
import { PlainView } from "./view/plain-view.js";
import { summary, timeline } from "./view/summary.js";
import { countsOf, endedCount, openCount, Watch } from "./view/watch.js";
import { startFailure } from "./work.js";
import { loadModule, type Sample, type WorkerModule } from "./worker-module.js";
import { workerOptions } from "./worker-options.js";

const redrawMs = 120;
const lookRarely = 5;
const graceMs = 3_000;

/** What may be said of a run. */
export interface DevOptions {
  readonly untilDone?: boolean;
  readonly sample?: Readonly<Record<string, string>>;
}

/** Runs everything in one process until it is told to stop. */
export async function runDev(
  session: Session,
  given: string | undefined,
  options: DevOptions,
): Promise<void> {
  const url = session.storeUrl("dev");
  const module = given === undefined ? undefined : await loadModule(given);
  const engine = await openEngine(url).catch((error: unknown) => {
    throw storeFailure(error);
  });
  try {
    await dev(session, engine, module, options);
  } finally {
    await engine.close();
  }
}

async function dev(
  session: Session,
  engine: Engine,
  module: WorkerModule | undefined,
  options: DevOptions,
): Promise<void> {
  const logger = loggerOf(session, "silent");
  await engine.provision().catch((error: unknown) => {
    throw storeFailure(error);
  });
  const server = await serveSomewhere(session, engine, logger);
  try {
    session.output.line(banner(server, engine, module));
    if (module === undefined) {
      if (!session.signal.aborted)
        await new Promise((resolve) => session.signal.addEventListener("abort", resolve));
      return;
    }
    await runModule(session, engine, module, options, logger);
  } finally {
    await server.stop();
  }
  session.output.line(whatNext);
}

/** At the usual place; where that is taken and nobody has asked for it, at a free port. */
async function serveSomewhere(
  session: Session,
  engine: Engine,
  logger: ReturnType<typeof loggerOf>,
): Promise<RunningServer> {
  try {
    return await serve(session, { engine, logger });
  } catch (error) {
    const mayMove = error instanceof Failure && settingValue(session.given, "bind") === undefined;
    if (!mayMove) throw error;
    const server = await serve(session, { engine, logger, bind: "127.0.0.1:0" });
    session.output.note(`${settings.bind.default} is in use; here is ${server.url}.`);
    return server;
  }
}

async function runModule(
  session: Session,
  engine: Engine,
  module: WorkerModule,
  options: DevOptions,
  logger: ReturnType<typeof loggerOf>,
): Promise<void> {
  const given = { graceMs, ...workerOptions(session, logger), engine };
  const service = await module.connect(given).catch((error: unknown) => {
    throw startFailure(error);
  });
  const { output, signal } = session;
  const paint = paintWith(output.colors);
  const before = await countsOf(service.reads);
  const title = `The jobs of ${service.name}, live`;
  const isLive = output.isTerminal && output.format === "text" && process.env.TERM !== "dumb";
  const view: View = isLive
    ? new LiveView(process.stdout, paint, title)
    : new PlainView((line) => output.line(line), title);
  if (openCount(before) > 0) view.say(`${openCount(before)} jobs of an earlier run go on.`);
  const startedAt = performance.now();
  const watch = new Watch(service.reads);
  try {
    await watch.start();
    await service.start().catch((error: unknown) => {
      throw startFailure(error);
    });
    await watchUntilDone({ service, watch, view, signal, options, sample: module.sample });
    if (signal.aborted) view.say(stopping(given.graceMs ?? graceMs));
    await service.stop();
    const waiting = openCount(await countsOf(service.reads));
    if (signal.aborted) view.say(`Stopped: nothing runs any more, and ${waiting} jobs wait.`);
  } finally {
    view.stop();
    await watch.stop();
    await service.stop();
  }
  const parts = {
    reads: service.reads,
    paint,
    counts: await countsOf(service.reads),
    created: (await watch.look()).created,
    endedBefore: endedCount(before),
    elapsedMs: performance.now() - startedAt,
  };
  output.line(`\n${summary(parts)}\n`);
  const history = await timeline(parts);
  if (history !== null) output.line(`${history}\n`);
}

interface Watching {
  readonly service: Service;
  readonly watch: Watch;
  readonly view: View;
  readonly signal: AbortSignal;
  readonly options: DevOptions;
  readonly sample: Sample | undefined;
}

/** Lets the sample jobs come, and draws until somebody wants to stop or, if that was asked for, every job has ended. */
async function watchUntilDone(parts: Watching): Promise<void> {
  const { service, watch, view, signal, options, sample } = parts;
  const startedAt = performance.now();
  let isOver = sample === undefined;
  let fault: unknown;
  const sampling = (
    sample?.({ service, signal, options: options.sample ?? {} }) ?? Promise.resolve()
  )
    .catch((error: unknown) => {
      fault = error;
    })
    .finally(() => {
      isOver = true;
    });
  for (let isDone = false; !isDone && !signal.aborted && fault === undefined; ) {
    const lookedAt = performance.now();
    const picture = await watch.look();
    const lookMs = performance.now() - lookedAt;
    view.show(picture, lookedAt - startedAt);
    isDone = options.untilDone === true && isOver && openCount(picture.counts) === 0;
    // Counting very many jobs takes time, which the jobs should have.
    const pauseMs = Math.max(redrawMs, lookMs * lookRarely);
    await pause(pauseMs, undefined, { signal }).catch(() => {});
  }
  await sampling;
  if (fault !== undefined && !signal.aborted)
    throw new Failure("failure", `The sample of the module failed: ${messageOf(fault)}`);
}

function stopping(ms: number): string {
  return `\nStopping: running jobs get ${ms / 1_000} s to finish or go back to the queue. Ctrl-C again exits at once.`;
}

function banner({ url }: RunningServer, engine: Engine, module: WorkerModule | undefined): string {
  const rows = [
    ["store", engine.url],
    ["HTTP API", `${url}/v1/info`],
    ["OpenAPI", `${url}/v1/openapi.json`],
    ["metrics", `${url}/metrics`],
    ["worker", module === undefined ? "none; name a module to run its handlers" : module.path],
  ] as const;
  return [
    `Millrace ${packageVersion()}`,
    ...rows.map(([name, value]) => `  ${name.padEnd(9)} ${value}`),
    "Try, in another terminal:",
    ...tries(url).map((line) => `  ${line}`),
    "",
  ].join("\n");
}

function tries(url: string): readonly string[] {
  return [
    `npx millrace job list --server ${url}`,
    `npx millrace job watch --event retry,dead --server ${url}`,
    `npx millrace dlq list --server ${url}`,
    `curl ${url}/v1/jobs/counts`,
  ];
}

const whatNext = `What to try next
  start it again: it goes on where it stopped, also after kill -9
  npx millrace job list, dlq list, verify, doctor: the same commands without a server
  docs/guides/command-line.md: every command`;
