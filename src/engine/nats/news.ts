/**
 * What hints have told since the last look: where there are new tickets. A worker that found nothing the last time looks
 * there alone, so that an idle one asks one consumer for a job that comes and not all that it has.
 */

/** The names of consumers with new tickets; `null` where anything may have come. */
export type Where = ReadonlySet<string> | null;

/** The most consumers that one hint names. Where there are more, it says that anything may have come. */
const namedMax = 16;

/** What stands between the names in a hint. No name holds it. */
const divider = " ";

/** A hint as it is sent: who sends it, and the consumers that it is about. */
export function hintText(from: string, where: Where): string {
  if (where === null || where.size > namedMax) return from;
  return [from, ...where].join(divider);
}

/** Who sent a hint, and the consumers that it is about. Versions before this one name none. */
export function readHint(text: string): { readonly from: string; readonly where: Where } {
  const [from = "", ...names] = text.split(divider);
  return { from, where: names.length === 0 ? null : new Set(names) };
}

/** Two wheres as one. */
export function joined(one: Where, other: Where): Where {
  return one === null || other === null ? null : new Set([...one, ...other]);
}

/** Whether whoever looks at one where has looked at the other, too. */
export function holds(one: Where, other: Where): boolean {
  if (one === null) return true;
  if (other === null) return false;
  for (const name of other) if (!one.has(name)) return false;
  return true;
}

/** What came since somebody last asked. */
export class News {
  #where: Where;

  /** At first anything may have come, unless whoever asks knows better. */
  constructor(where: Where = null) {
    this.#where = where;
  }

  /** A hint came. */
  add(where: Where): void {
    // Names are remembered while nobody claims, too, and anybody may send them.
    if (holds(this.#where, where)) return;
    const all = joined(this.#where, where);
    this.#where = all !== null && all.size > rememberedMax ? null : all;
  }

  /** Whether no hint came. */
  get isEmpty(): boolean {
    return this.#where !== null && this.#where.size === 0;
  }

  /** Where to look; an empty set if no hint came. It is forgotten with this. */
  take(): Where {
    const where = this.#where;
    this.#where = none;
    return where;
  }
}

/** Whether hints have told that anything may have come, since each of those who share them last asked. */
export class Told {
  #count = 0;
  readonly #seen = new Map<string, number>();

  /** Hints have told of something. */
  note(where: Where): void {
    if (where === null) this.#count += 1;
  }

  /** Whether that was anything since somebody last asked. */
  isNewTo(name: string): boolean {
    const seen = this.#seen.get(name) ?? 0;
    this.#seen.set(name, this.#count);
    return this.#count > seen;
  }
}

/** No news. */
export const none: ReadonlySet<string> = new Set();

/** The most names that are remembered. */
const rememberedMax = 256;
