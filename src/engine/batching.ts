/**
 * Natural batching: while one batch is being carried out, calls queue up and go as the next.
 * There are no timers, so that an idle caller waits for nobody and a busy one gets bulk speed.
 */

/** A call that waits for its answer. */
interface Waiting<Item, Answer> {
  readonly item: Item;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
}

/** What a batch gave for one of its items: an answer, or the fault of that item alone. */
export type BatchAnswer<Answer> = { readonly answer: Answer } | { readonly fault: unknown };

/** Sends a batch; gives one answer per item, in order. A rejection is the fault of every item. */
export type SendBatch<Item, Answer> = (
  items: readonly Item[],
) => Promise<readonly BatchAnswer<Answer>[]>;

/** Gathers calls into batches. */
export class Batcher<Item, Answer> {
  readonly #send: SendBatch<Item, Answer>;
  readonly #weightMax: number;
  readonly #weigh: (item: Item) => number;
  #waiting: Waiting<Item, Answer>[] = [];
  #inFlight: Promise<void> | null = null;

  constructor(
    send: SendBatch<Item, Answer>,
    options: { readonly weightMax: number; readonly weigh: (item: Item) => number },
  ) {
    this.#send = send;
    this.#weightMax = options.weightMax;
    this.#weigh = options.weigh;
  }

  /** Asks for one item to be carried out with the next batch. */
  call(item: Item): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      this.#inFlight ??= Promise.resolve().then(() => this.#run());
    });
  }

  /** Resolves when nothing waits any more. */
  async idle(): Promise<void> {
    while (await this.#inFlight) await this.#inFlight;
  }

  /** Sends batch after batch until nothing waits. The first one takes all calls of the same turn. */
  async #run(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = this.#next();
      try {
        const answers = await this.#send(batch.map((waiting) => waiting.item));
        for (let index = 0; index < batch.length; index++) deliver(batch[index], answers[index]);
      } catch (error) {
        for (const waiting of batch) waiting.reject(error);
      }
    }
    this.#inFlight = null;
  }

  /** The next calls, in order, up to the largest weight; a single heavier call goes alone. */
  #next(): readonly Waiting<Item, Answer>[] {
    let weight = 0;
    let count = 0;
    for (const waiting of this.#waiting) {
      weight += this.#weigh(waiting.item);
      if (count > 0 && weight > this.#weightMax) break;
      count += 1;
    }
    if (count === this.#waiting.length) {
      const all = this.#waiting;
      this.#waiting = [];
      return all;
    }
    return this.#waiting.splice(0, count);
  }
}

function deliver<Item, Answer>(
  waiting: Waiting<Item, Answer> | undefined,
  answer: BatchAnswer<Answer> | undefined,
): void {
  if (!waiting) return;
  if (!answer) waiting.reject(new Error("A batch gave fewer answers than it was asked for."));
  else if ("fault" in answer) waiting.reject(answer.fault);
  else waiting.resolve(answer.answer);
}
