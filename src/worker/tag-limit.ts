/**
 * A limit on how many jobs with a tag may run at once, over all processes.
 */
import { canonicalHash } from "../core/json.js";
import type { Engine } from "../engine/engine.js";
import { recordId } from "../engine/record.js";
import type { Middleware, MiddlewareContext, Next } from "./middleware.js";
import { snooze } from "./outcome.js";
import { type Place, Places } from "./places.js";

/** How long a job waits for a place before it is given back, and for how long it is given back at least. */
const waitMs = 2_000;
const snoozeMs = 1_000;

/** The most jobs of a tag that may run at once, and the most tags of one limit. */
const maxActiveMost = 1_000;
const tagsMax = 100;

/** How many jobs with each tag may run at once. */
export type TagLimits = { readonly [tag: string]: number };

/**
 * Lets at most so many jobs with a tag run at once, over all processes of the service. A job that finds no place within
 * two seconds is given back for a second or two, which costs no try. A job with several limited tags needs a place for each.
 *
 * @example
 * service.use(limitByTag({ "api:zendesk": 4 }));
 */
export function limitByTag(limits: TagLimits): Middleware {
  const tags = checked(limits);
  const byEngine = new WeakMap<Engine, Map<string, Places>>();
  const placesOf = (context: MiddlewareContext, tag: string, max: number) => {
    const byTag = byEngine.get(context.engine) ?? new Map<string, Places>();
    byEngine.set(context.engine, byTag);
    const id = recordId.places(context.service, canonicalHash({ tag }));
    const places = byTag.get(tag) ?? new Places(context, id, max);
    byTag.set(tag, places);
    return places;
  };
  return (job, next, context) => {
    const limited = tags.filter(([tag]) => job.tags.includes(tag));
    if (limited.length === 0) return next();
    const all = limited.map(([tag, max]) => placesOf(context, tag, max));
    return within(all, job.signal, next, () => {
      const delayMs = snoozeMs + Math.round(context.ids.random() * snoozeMs);
      return snooze(delayMs, `limited by tag: ${limited.map(([tag]) => tag).join(", ")}`);
    });
  };
}

/** Takes a place under each limit in turn. All take them in the same order, so that nobody waits in a circle. */
async function within(
  all: readonly Places[],
  signal: AbortSignal,
  next: Next,
  otherwise: () => unknown,
): Promise<unknown> {
  const taken: (readonly [Places, Place])[] = [];
  try {
    for (const places of all) {
      const place = await places.take(waitMs, signal);
      if (place !== null) taken.push([places, place]);
      signal.throwIfAborted();
      if (place === null) return otherwise();
    }
    return await next();
  } finally {
    for (const [places, place] of taken.reverse()) await places.give(place);
  }
}

function checked(limits: TagLimits): readonly (readonly [tag: string, max: number])[] {
  const tags = Object.entries(limits).sort(([a], [b]) => (a < b ? -1 : 1));
  if (tags.length > tagsMax)
    throw new RangeError(`limitByTag takes at most ${tagsMax} tags, not ${tags.length}.`);
  for (const [tag, max] of tags) {
    if (Number.isSafeInteger(max) && max >= 1 && max <= maxActiveMost) continue;
    throw new RangeError(
      `limitByTag: the limit of ${tag} is ${max}; it must be a whole number from 1 to ${maxActiveMost}.`,
    );
  }
  return tags;
}
