/**
 * The one way to change existing jobs from outside a claim: load, decide, append at the version
 * that was decided on, and begin again where somebody else was faster.
 */
import type { Command } from "../core/command.js";
import { decide, type Rejection } from "../core/decide.js";
import type { JobEvent } from "../core/event.js";
import { evolve } from "../core/evolve.js";
import type { Job } from "../core/job.js";
import { batchMax } from "../engine/engine.js";
import { StoreBusy, type StoreError } from "../engine/errors.js";
import type { Runtime } from "./runtime.js";

/** How often a command is decided before it gives way to whoever keeps changing the job. */
const commandTriesMax = 20;

/** How often it meets a lock. A store waits out the short ones by itself, and who holds a long one keeps it. */
const lockedTriesMax = 5;

/** Others changed the job each time between deciding and appending, or held it locked. */
interface Contended {
  readonly reason: "contended";
  readonly message: string;
  /** The job, where it was locked the last time. */
  readonly locked?: Job;
}

/** What became of a command. */
export type CommandOutcome =
  /** `job` is folded with the event; a deleted job is given as it last was. */
  | { readonly ok: true; readonly job: Job; readonly event: JobEvent }
  | { readonly ok: false; readonly rejection: Rejection | Contended; readonly job: Job | null };

/** What became of one of several commands. The store may fail at the event of one job, and take those of the others. */
export type EachOutcome = CommandOutcome | { readonly ok: false; readonly fault: StoreError };

/** How commands are carried out. */
export interface CommandOptions {
  /** How often a command is decided at most; `commandTriesMax` by default. */
  readonly triesMax?: number;
}

/** Gives one job a command. `make` may be called again with a newer job. Faults of the store are thrown. */
export async function command(
  runtime: Runtime,
  id: string,
  make: (job: Job) => Command,
  options?: CommandOptions,
): Promise<CommandOutcome> {
  const [outcome = notFound] = await commandMany(runtime, [id], make, options);
  if ("fault" in outcome) throw outcome.fault;
  return outcome;
}

/**
 * Gives each of several jobs a command; outcomes come in the order of the ids. A fault of the store at one of them is its
 * outcome, one that concerns them all is thrown.
 */
export async function commandMany(
  runtime: Runtime,
  ids: readonly string[],
  make: (job: Job) => Command,
  options?: CommandOptions,
): Promise<readonly EachOutcome[]> {
  const outcomes = new Map<string, EachOutcome>();
  const locked = new Map<string, Lock>();
  const unique = [...new Set(ids)];
  for (let start = 0; start < unique.length; start += batchMax) {
    let open: readonly string[] = unique.slice(start, start + batchMax);
    const triesMax = options?.triesMax ?? commandTriesMax;
    for (let tries = 0; tries < triesMax && open.length > 0; tries++) {
      open = await commandOnce(runtime, open, make, { outcomes, locked });
    }
  }
  return ids.map((id) => outcomes.get(id) ?? contended(id, locked.get(id)?.job));
}

/** The first fault of the store among outcomes, if there is one. */
export function firstFault(outcomes: readonly EachOutcome[]): StoreError | undefined {
  for (const outcome of outcomes) if ("fault" in outcome) return outcome.fault;
  return undefined;
}

/** What has become of commands so far. */
interface Progress {
  readonly outcomes: Map<string, EachOutcome>;
  /** The jobs that were locked the last time. */
  readonly locked: Map<string, Lock>;
}

/** A job that is locked, and how often it was found to be. */
interface Lock {
  readonly job: Job;
  readonly times: number;
}

/** Decides and appends once, notes the outcomes, and gives the ids of the jobs that have moved on meanwhile. */
async function commandOnce(
  runtime: Runtime,
  ids: readonly string[],
  make: (job: Job) => Command,
  { outcomes, locked }: Progress,
): Promise<readonly string[]> {
  const { engine } = runtime;
  const loaded = await engine.load(ids);
  const decided: { readonly job: Job; readonly event: JobEvent }[] = [];
  for (const [index, id] of ids.entries()) {
    const job = loaded[index]?.job;
    if (job === undefined) {
      outcomes.set(id, notFound);
      continue;
    }
    const decision = decide(job, make(job), engine.now());
    if (decision.ok) decided.push({ job, event: decision.event });
    else outcomes.set(id, { ok: false, rejection: decision.rejection, job });
  }
  if (decided.length === 0) return [];
  const appended = await engine.append(
    decided.map(({ job, event }) => ({
      job: { service: job.service, type: job.type, id: job.id },
      expect: { version: job.version },
      event,
    })),
  );
  const moved: string[] = [];
  for (const [index, { job, event }] of decided.entries()) {
    const answer = appended[index];
    if (answer?.outcome === "appended") {
      outcomes.set(job.id, { ok: true, job: evolve(job, event).job ?? job, event });
      continue;
    }
    const fault = answer?.outcome === "faulted" ? answer.error : undefined;
    const isLocked = fault instanceof StoreBusy;
    if (fault !== undefined && !isLocked) {
      outcomes.set(job.id, { ok: false, fault });
      continue;
    }
    const times = isLocked ? (locked.get(job.id)?.times ?? 0) + 1 : 0;
    if (isLocked) locked.set(job.id, { job, times });
    else locked.delete(job.id);
    if (times < lockedTriesMax) moved.push(job.id);
  }
  return moved;
}

const notFound: CommandOutcome = {
  ok: false,
  rejection: { reason: "not_found", message: "There is no such job." },
  job: null,
};

function contended(id: string, locked: Job | undefined): CommandOutcome {
  const message =
    locked === undefined
      ? `Job ${id} kept changing while the command was decided; give it again.`
      : `Job ${id} is locked by a transaction, of its handler or of whoever completes it or waits for it; give the command again later.`;
  const rejection = { reason: "contended", message, ...(locked && { locked }) } as const;
  return { ok: false, rejection, job: null };
}
