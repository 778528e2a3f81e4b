/**
 * Changes of one call in groups that go together. Most calls are one group. A job is looked at after those of its call that are
 * before it, and before those that are behind it, where it waits for them; and a continuation that waits for others goes alone,
 * because all others of the call may stand in a circle with it.
 */
import type { Blocker } from "../../core/job.js";
import type { Change } from "../engine.js";

/** Parts changes, in their order. */
export function inGroups(changes: readonly Change[]): readonly (readonly Change[])[] {
  if (!changes.some((change) => isLinked(change) || waits(change))) return [changes];
  const groups: Change[][] = [[]];
  // The ids of what the newest group makes, and of what it waits for.
  const [made, awaited] = [new Set<string>(), new Set<string>()];
  const next = () => {
    groups.push([]);
    made.clear();
    awaited.clear();
  };
  for (const change of changes) {
    const isAlone = isLinked(change);
    const ids = [...madeBy(change)];
    const blockers = blockersOf(change).map(({ jobId }) => jobId);
    const speaksOfOthers = ids.some((id) => awaited.has(id)) || blockers.some((id) => made.has(id));
    if (isAlone || speaksOfOthers) next();
    groups.at(-1)?.push(change);
    for (const id of ids) made.add(id);
    for (const id of blockers) awaited.add(id);
    if (isAlone) next();
  }
  return groups.filter(({ length }) => length > 0);
}

/** Whether something that follows from a change waits for others. */
function isLinked({ follow }: Change): boolean {
  return follow?.some(waits) ?? false;
}

function waits(change: Change): boolean {
  return blockersOf(change).length > 0;
}

function blockersOf({ event }: Change): readonly Blocker[] {
  return event.name === "created" ? event.blockers : [];
}

/** The ids of the jobs that a change creates, the first of which may be that of a chain. */
function* madeBy({ event, follow = [] }: Change): Iterable<string> {
  if (event.name === "created") yield event.jobId;
  for (const change of follow) yield* madeBy(change);
}
