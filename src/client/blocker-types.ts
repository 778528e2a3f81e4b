/**
 * The types of named blockers: a definition says of which type each is, and a create names it by an id that may be that
 * of any job. It is looked at when the create is made, and again before the handler is given what the blockers gave.
 */
import { type BlockerKind, blockerTypeProblem } from "./blockers.js";
import { InvalidBlocker } from "./errors.js";
import type { PreparedCreate } from "./prepare.js";
import { loadMany, type StoreStep } from "./store-steps.js";

/**
 * Of each create the named blocker that is of another type than its definition says, or `null`. A blocker that is not
 * there yet is left to the store.
 */
export function* wrongBlockers(
  creates: readonly PreparedCreate[],
): StoreStep<readonly (InvalidBlocker | null)[]> {
  const ids = new Set(
    creates.flatMap(({ event, blockerTypes }) =>
      blockerTypes === undefined ? [] : event.blockers.map(({ jobId }) => jobId),
    ),
  );
  if (ids.size === 0) return creates.map(() => null);
  // A job may wait for another of the same call.
  const types = new Map<string, BlockerKind>(creates.map(({ event }) => [event.jobId, event]));
  const unknown = [...ids].filter((id) => !types.has(id));
  const loaded = unknown.length === 0 ? [] : yield* loadMany(unknown);
  for (const [index, id] of unknown.entries()) {
    const found = loaded[index];
    if (found) types.set(id, found.job);
  }
  return creates.map((create) => wrongBlocker(create, types));
}

function wrongBlocker(
  { event, blockerTypes }: PreparedCreate,
  types: ReadonlyMap<string, BlockerKind>,
): InvalidBlocker | null {
  if (blockerTypes === undefined) return null;
  for (const { jobId, name } of event.blockers) {
    const found = types.get(jobId);
    if (name === undefined || found === undefined) continue;
    const problem = blockerTypeProblem(name, found, event.service, blockerTypes);
    if (problem === null) continue;
    const { jobId: id } = event;
    const message = `Job ${id} cannot wait for ${jobId}: ${problem}; name one of that type.`;
    return new InvalidBlocker({ id, blockerId: jobId, reason: "type", message });
  }
  return null;
}
