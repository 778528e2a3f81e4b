/**
 * The resolver: lets blocked jobs go on when everything that they wait for has ended, and ends those that
 * can never run because a blocker ended badly. What it found is a hint and the append compares versions, so that
 * blockers that end at the same moment unblock a job once, and what a crash left undone is found again.
 */
import { blockerVerdict } from "../core/chains.js";
import type { Command, Origin } from "../core/command.js";
import type { DueJob } from "../engine/engine.js";
import type { BlockerRow } from "../engine/query.js";
import { type DutyDone, type DutyRound, giveCommands, tendWith } from "./duty.js";

/** Resolves the blocked jobs of a service. */
export async function resolve(round: DutyRound): Promise<DutyDone> {
  const { service, logger } = round.runtime;
  const done = await tendWith(round, { kind: "blocked", service }, resolveFound);
  if (done.changed > 0) logger.info({ jobs: done.changed }, "Blocked jobs were resolved.");
  return done;
}

type Resolution = (origin: Origin) => Command;

async function resolveFound(
  found: readonly DueJob[],
  using: Pick<DutyRound, "runtime" | "onFault">,
): Promise<ReadonlySet<string>> {
  const ids = found.map(({ id }) => id);
  const blockers = await using.runtime.engine.query("blockers", { ids });
  const resolutions = new Map<string, Resolution>();
  for (const [index, { id }] of found.entries()) {
    const resolution = resolutionOf(blockers[index] ?? []);
    if (resolution !== null) resolutions.set(id, resolution);
  }
  const resolved = found.filter(({ id }) => resolutions.has(id));
  return giveCommands(using, resolved, (job, _due, origin) => {
    const resolution = resolutions.get(job.id);
    if (resolution === undefined) throw new Error(`Job ${job.id} was not resolved.`);
    return resolution(origin);
  });
}

/** What the states of its blockers mean for a job; `null` while it has to wait. */
function resolutionOf(rows: readonly BlockerRow[]): Resolution | null {
  const blockers = rows.map(({ id, onBadEnd }) => ({ jobId: id, onBadEnd }));
  const verdict = blockerVerdict(blockers, (_, place) => rows[place]?.state);
  switch (verdict.verdict) {
    case "wait":
      return null;
    case "unblock":
      return (origin) => ({ command: "unblock", ...origin });
    case "unreachable": {
      const { blockerId } = verdict;
      return (origin) => ({ command: "blockerEndedBadly", blockerId, ...origin });
    }
  }
}
