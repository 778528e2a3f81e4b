/**
 * What the keeper's duties share: find jobs whose time has come, give each a command, and go on
 * while there are more. What was found is a hint and the append decides, so that two keepers
 * at work at once do no harm.
 */
import { commandMany, firstFault } from "../client/commands.js";
import type { Runtime } from "../client/runtime.js";
import type { Command, Origin } from "../core/command.js";
import type { Job } from "../core/job.js";
import type { DueAsk, DueJob } from "../engine/engine.js";
import type { StoreError } from "../engine/errors.js";

/** How many jobs a duty takes at once, and how often it does so in one round. */
export const dutyBatchMax = 500;
const dutyBatchesMax = 20;

/** One round of a duty. */
export interface DutyRound {
  readonly runtime: Runtime;
  /** Whether the keeper may still act: it leads and was not stopped. */
  readonly mayGoOn: () => boolean;
  /** Hears of a fault that kept some jobs from what they were due for, while others went on. */
  readonly onFault: (fault: StoreError) => void;
}

/** How much of a duty a round did, and whether it left some for the next. */
export interface DutyDone {
  readonly changed: number;
  readonly isFull: boolean;
}

/** Gives jobs that were found their commands. Gives those that took them, by id. */
type Give = (
  found: readonly DueJob[],
  using: Pick<DutyRound, "runtime" | "onFault">,
) => Promise<ReadonlySet<string>>;

/** Makes the command for a job that is due. */
type Make = (job: Job, due: DueJob, origin: Origin) => Command;

/** Gives every due job the command that `make` makes for it, in bounded batches. */
export function tend(round: DutyRound, ask: DueAsk, make: Make): Promise<DutyDone> {
  return tendWith(round, ask, (found, using) => giveCommands(using, found, make));
}

/** Has commands given to all due jobs, in bounded batches. */
export async function tendWith(round: DutyRound, ask: DueAsk, give: Give): Promise<DutyDone> {
  const { runtime, mayGoOn } = round;
  let changed = 0;
  // Jobs that did not take their command are passed over until the next round, so that they are in nobody's way.
  const passed = new Set<string>();
  for (let batches = 0; batches < dutyBatchesMax && mayGoOn(); batches++) {
    const due = await runtime.engine.due(ask, dutyBatchMax + passed.size);
    const found = due.filter(({ id }) => !passed.has(id));
    if (found.length === 0 || !mayGoOn()) return { changed, isFull: false };
    let isFailing = false;
    const onFault: DutyRound["onFault"] = (fault) => {
      isFailing = true;
      round.onFault(fault);
    };
    const took = await give(found, { runtime, onFault });
    changed += took.size;
    // A store that takes nothing is left alone until the next round.
    if (isFailing && took.size === 0) return { changed, isFull: false };
    for (const { id } of found) if (!took.has(id)) passed.add(id);
    if (found.length < dutyBatchMax) return { changed, isFull: false };
  }
  return { changed, isFull: changed > 0 && mayGoOn() };
}

/** Gives each of the jobs that were found the command that `make` makes for it, once. Gives those that took it, by id. */
export async function giveCommands(
  { runtime, onFault }: Pick<DutyRound, "runtime" | "onFault">,
  found: readonly DueJob[],
  make: Make,
): Promise<ReadonlySet<string>> {
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
  const fault = firstFault(outcomes);
  if (fault !== undefined) onFault(fault);
  return new Set([...dueById.keys()].filter((_, place) => outcomes[place]?.ok));
}
