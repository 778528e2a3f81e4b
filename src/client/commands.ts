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
import type { Runtime } from "./runtime.js";

/** How often a command is decided before it gives way to whoever keeps changing the job. */
const commandTriesMax = 20;

/** Others changed the job each time between deciding and appending. */
interface Contended {
  readonly reason: "contended";
  readonly message: string;
}

/** What became of a command. */
export type CommandOutcome =
  /** `job` is folded with the event; a deleted job is given as it last was. */
  | { readonly ok: true; readonly job: Job; readonly event: JobEvent }
  | { readonly ok: false; readonly rejection: Rejection | Contended; readonly job: Job | null };

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
  const [outcome] = await commandMany(runtime, [id], make, options);
  return outcome ?? notFound;
}

/** Gives each of several jobs a command; outcomes come in the order of the ids. */
export async function commandMany(
  runtime: Runtime,
  ids: readonly string[],
  make: (job: Job) => Command,
  options?: CommandOptions,
): Promise<readonly CommandOutcome[]> {
  const outcomes = new Map<string, CommandOutcome>();
  const unique = [...new Set(ids)];
  for (let start = 0; start < unique.length; start += batchMax) {
    let open: readonly string[] = unique.slice(start, start + batchMax);
    const triesMax = options?.triesMax ?? commandTriesMax;
    for (let tries = 0; tries < triesMax && open.length > 0; tries++) {
      open = await commandOnce(runtime, open, make, outcomes);
    }
  }
  return ids.map((id) => outcomes.get(id) ?? contended(id));
}

/** Decides and appends once, notes the outcomes, and gives the ids of the jobs that have moved on meanwhile. */
async function commandOnce(
  runtime: Runtime,
  ids: readonly string[],
  make: (job: Job) => Command,
  outcomes: Map<string, CommandOutcome>,
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
    if (appended[index]?.outcome !== "appended") moved.push(job.id);
    else outcomes.set(job.id, { ok: true, job: evolve(job, event).job ?? job, event });
  }
  return moved;
}

const notFound: CommandOutcome = {
  ok: false,
  rejection: { reason: "not_found", message: "There is no such job." },
  job: null,
};

function contended(id: string): CommandOutcome {
  const message = `Job ${id} kept changing while the command was decided; give it again.`;
  return { ok: false, rejection: { reason: "contended", message }, job: null };
}
