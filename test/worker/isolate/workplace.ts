// Isolated jobs on SQLite, with a handler module that does what its payload says.
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  type ConnectOptions,
  defineJob,
  defineService,
  type IsolateOptions,
  type JobEvent,
  type JobOptions,
  type JobRef,
} from "millrace";
import { afterAll } from "vitest";
import { z } from "zod";
import { openService, stores } from "../../support/stores.js";

const acting = new URL("./fixtures/acting.mjs", import.meta.url);

// Every test file has temporary files of its own, so that it sees what is left of them.
const temporary = mkdtempSync(join(tmpdir(), "millrace-isolate-"));
process.env.TMPDIR = temporary;
afterAll(() => rmSync(temporary, { recursive: true, force: true }));

const payload = z.looseObject({ act: z.string() });

export interface Wish extends ConnectOptions {
  readonly isolate?: IsolateOptions;
  readonly job?: JobOptions;
  readonly warm?: number;
}

const [, sqlite] = stores;

/** A started service whose type `act` runs in processes of its own, beside the type `plain`, which does not. */
export async function workplace({ isolate = {}, job, warm = 1, ...options }: Wish = {}) {
  if (sqlite === undefined) throw new Error("There is no SQLite store.");
  const contract = defineService("workplace", {
    act: defineJob({ payload, retry: { maxTries: 1 }, isolate, ...job }),
    plain: defineJob({ payload }),
  });
  const service = await openService(sqlite, contract, { graceMs: 10_000, ...options });
  service.jobs.act.handle({ module: acting, warm });
  service.jobs.plain.handle(({ payload }) => payload.act);
  await service.start();
  return service;
}

export type Workplace = Awaited<ReturnType<typeof workplace>>;

/** Lets the module act, and gives the job as it ended. */
export async function act(service: Workplace, name: string, more: object = {}) {
  const ref = await service.jobs.act.create({ act: name, ...more }).orThrow();
  await ref.wait();
  return { ...(await ref.get().orThrow()), events: await ref.events().orThrow() };
}

/** What the job's history says in its log, each line with its level. */
export function logOf(events: readonly JobEvent[]): string[] {
  return events.flatMap((event) =>
    event.name === "logged"
      ? event.entries.map(({ level, message }) => `${level}: ${message}`)
      : [],
  );
}

/** Waits until the handler has told its process ids, and gives them. */
export async function pidsOf(service: Workplace, { id }: Pick<JobRef, "id">): Promise<number[]> {
  for await (const { event } of service.engine.tail(null, AbortSignal.timeout(20_000))) {
    if (event.jobId === id && event.name === "emitted") return event.data as number[];
  }
  throw new Error("The handler has not told its process ids.");
}

/** Whether a process still runs; one that nobody has taken notice of since its end does not. */
export function runs(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return !stat.slice(stat.lastIndexOf(")")).startsWith(") Z");
  } catch {
    return false;
  }
}

/** The processes that a process has started and that are still there. */
export function childrenOf(pid: number): number[] {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8")
    .split(" ")
    .filter(Boolean)
    .map(Number);
}

/** The process that watches over those of tries. */
export function wardenOf(pid: number): number {
  const isWarden = (child: number) =>
    readFileSync(`/proc/${child}/cmdline`, "utf8").includes("warden-main");
  const warden = childrenOf(pid).find(isWarden);
  if (warden === undefined) throw new Error("There is no warden.");
  return warden;
}

/** Waits until a process has ended. */
export async function gone(pid: number): Promise<void> {
  while (runs(pid)) await new Promise(setImmediate);
}

/** The working folders of tries that are there now. */
export function tryFolders(): string[] {
  return readdirSync(temporary).filter((name) => name.startsWith("millrace-try-"));
}
