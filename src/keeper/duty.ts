/**
 * What the keeper's duties share: find jobs whose time has come, give each a command, and go on
 * while there are more. What was found is a hint and the append decides, so that two keepers
 * at work at once do no harm.
 */
import { commandMany } from "../client/commands.js";
import type { Runtime } from "../client/runtime.js";
import type { Command, Origin } from "../core/command.js";
import type { Job } from "../core/job.js";
import type { DueAsk, DueJob } from "../engine/engine.js";

/** How many jobs a duty takes at once, and how often it does so in one round. */
export const dutyBatchMax = 500;
export const dutyBatchesMax = 20;

/** One round of a duty. */
export interface DutyRound {
  readonly runtime: Runtime;
  /** Whether the keeper may still act: it leads and was not stopped. */
  readonly mayGoOn: () => boolean;
}

/** How much of a duty a round did, and whether it left some for the next. */
export interface DutyDone {
  readonly changed: number;
  readonly isFull: boolean;
}

/** Gives every due job the command that `make` makes for it, in bounded batches. */
export async function tend(
  { runtime, mayGoOn }: DutyRound,
  ask: DueAsk,
  make: (job: Job, due: DueJob, origin: Origin) => Command,
): Promise<DutyDone> {
  let changed = 0;
  for (let batches = 0; batches < dutyBatchesMax && mayGoOn(); batches++) {
    const found = await runtime.engine.due(ask, dutyBatchMax);
    if (found.length === 0 || !mayGoOn()) return { changed, isFull: false };
    const changedNow = await giveCommands(runtime, found, make);
    changed += changedNow;
    // Jobs that have moved on meanwhile are looked for again in the next round.
    if (found.length < dutyBatchMax || changedNow === 0) return { changed, isFull: false };
  }
  return { changed, isFull: mayGoOn() };
}

/** Gives each of the jobs that were found the command that `make` makes for it, once. Gives how many took it. */
export async function giveCommands(
  runtime: Runtime,
  found: readonly DueJob[],
  make: (job: Job, due: DueJob, origin: Origin) => Command,
): Promise<number> {
  const dueById = new Map(found.map((due) => [due.id, due]));
  const outcomes = await commandMany(
    runtime,
    [...dueById.keys()],
    (job) => {
      const origin = {
        eventId: runtime.ids.eventId(),
        actor: `keeper:${runtime.instance}`,
      } as const;
      return make(job, dueById.get(job.id) ?? job, origin);
    },
    { triesMax: 1 },
  );
  return outcomes.filter((outcome) => outcome.ok).length;
}
