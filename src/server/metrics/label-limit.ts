/**
 * Keeps label sets small. Anybody who may create jobs may make up types and queues, and each would be a series for ever.
 */

/** How many pairs of values are told apart. What comes later counts as `other`. */
export const pairsMax = 200;

/** The pairs of values that have series of their own, such as a service and a type: the first that were seen. */
export class LabelLimit<First extends string, Second extends string> {
  readonly #first: First;
  readonly #second: Second;
  readonly #known = new Map<string, Record<First | Second, string>>();
  readonly #other: Record<First | Second, string>;

  /** Takes the names of the two labels. */
  constructor(first: First, second: Second) {
    this.#first = first;
    this.#second = second;
    this.#other = this.#labels("other", "other");
  }

  /** The labels of a pair. */
  of(first: string, second: string): Record<First | Second, string> {
    const pair = `${first} ${second}`;
    const known = this.#known.get(pair);
    if (known !== undefined) return known;
    if (this.#known.size >= pairsMax) return this.#other;
    const labels = this.#labels(first, second);
    this.#known.set(pair, labels);
    return labels;
  }

  #labels(first: string, second: string): Record<First | Second, string> {
    return { [this.#first]: first, [this.#second]: second } as Record<First | Second, string>;
  }
}
