/**
 * Ends for one process: those of jobs that share leases at once, then those of all others, and what was left is told.
 */
import type { AppendOutcome } from "../engine.js";
import type { PlainEnd } from "../sql/plain.js";
import { isOfOneItem } from "./faults.js";
import { type EndBatch, endBatch, endPlain, endShared, mayEndTogether } from "./plain-end.js";
import type { SharedLeases, SharedPlace } from "./shared-leases.js";
import type { Transactions } from "./transactions.js";

/** What became of outcomes so far; `null` for those that have to be looked at again. */
type Outcomes = (AppendOutcome | null)[];

export class Ender {
  readonly #transactions: Transactions;
  readonly #sharedLeases: SharedLeases;
  /** The last outcomes that were looked at for keys had some. */
  #areKeyed = false;

  constructor(transactions: Transactions, sharedLeases: SharedLeases) {
    this.#transactions = transactions;
    this.#sharedLeases = sharedLeases;
  }

  /** Ends jobs. What gets no outcome has to be looked at alone. */
  async end(items: readonly PlainEnd[]): Promise<readonly (AppendOutcome | null)[]> {
    const outcomes: Outcomes = new Array(items.length).fill(null);
    await unlessOfOneItem(async () => {
      await this.#endShared(items, outcomes);
      await this.#endOwn(items, outcomes);
    });
    const left = openOf(items, outcomes);
    if (left.length > 0) {
      await this.#sharedLeases.spread(left.map(({ item }) => item[0]));
      await unlessOfOneItem(() => this.#endOwn(items, outcomes));
    }
    return outcomes;
  }

  /** Ends jobs of which this process knows that they share leases. Those whose outcomes are of many kinds get their own. */
  async #endShared(items: readonly PlainEnd[], outcomes: Outcomes): Promise<void> {
    const { known, places, indexes } = knownOf(items, this.#sharedLeases);
    if (known.length === 0) return;
    const ends = endBatch(known);
    if (mayEndTogether(ends)) {
      const ended = await this.#transactions.again((tx) => endShared(tx, ends, places), {
        purpose: "end",
      });
      for (const [place, index] of indexes.entries()) outcomes[index] = ended[place] ?? null;
    }
    // Where somebody spreads them just now, this waits until they are there.
    const left = known.filter((_, place) => outcomes[indexes[place] as number] === null);
    if (left.length > 0) await this.#sharedLeases.spread(left.map(([id]) => id));
  }

  /** Ends jobs with leases of their own. As long as there are keys among them, transactions go on to let the next jobs in. */
  async #endOwn(items: readonly PlainEnd[], outcomes: Outcomes): Promise<void> {
    for (const keyed of this.#areKeyed ? [true] : [false, true]) {
      const open = openOf(items, outcomes);
      if (open.length === 0) return;
      const ends: EndBatch = endBatch(open.map(({ item }) => item));
      const ended = await this.#transactions.again((tx) => endPlain(tx, ends, keyed), {
        purpose: "end",
      });
      for (const [place, { index }] of open.entries())
        outcomes[index] = ended.outcomes[place] ?? null;
      if (keyed) this.#areKeyed = ended.areKeyed;
    }
  }
}

/** The items of which it is known where they stand in shared leases, and which of all items they are. */
function knownOf(items: readonly PlainEnd[], sharedLeases: SharedLeases) {
  const known: PlainEnd[] = [];
  const places: SharedPlace[] = [];
  const indexes: number[] = [];
  for (let index = 0; index < items.length; index++) {
    const item = items[index] as PlainEnd;
    const place = sharedLeases.take(item[0]);
    if (!place) continue;
    known.push(item);
    places.push(place);
    indexes.push(index);
  }
  return { known, places, indexes };
}

/** The items without an outcome. */
function openOf(
  items: readonly PlainEnd[],
  outcomes: Outcomes,
): readonly { readonly item: PlainEnd; readonly index: number }[] {
  if (!outcomes.includes(null)) return [];
  return items.flatMap((item, index) => (outcomes[index] === null ? [{ item, index }] : []));
}

/** What fails because of one item says nothing of the others. */
async function unlessOfOneItem(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!isOfOneItem(error)) throw error;
  }
}
