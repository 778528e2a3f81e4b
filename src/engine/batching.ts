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

/** How heavy a batch may be, and what a call weighs. */
export interface BatcherOptions<Item> {
  readonly weightMax: number;
  readonly weigh: (item: Item) => number;
  /** How many batches may be under way. With two, one is carried out while the next is on its way to follow at once. */
  readonly inFlightMax?: 1 | 2;
}

/** A second batch is worth sending from this weight on; less waits for the first one, to become a larger one. */
const secondWeightMin = 16;

/** From so many calls on, an idle batcher that may send two sends half, so that callers get ready again while the others are served. */
const halveFrom = 32;

/** Gathers calls into batches. */
export class Batcher<Item, Answer> {
  readonly #send: SendBatch<Item, Answer>;
  readonly #options: BatcherOptions<Item>;
  readonly #inFlightMax: number;
  #waiting: Waiting<Item, Answer>[] = [];
  #waitingWeight = 0;
  #inFlight = 0;
  #isFlushing = false;
  #onIdle: (() => void)[] = [];

  constructor(send: SendBatch<Item, Answer>, options: BatcherOptions<Item>) {
    this.#send = send;
    this.#options = options;
    this.#inFlightMax = options.inFlightMax ?? 2;
  }

  /** How many calls wait for the batch under way. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** Asks for one item to be carried out with the next batch. */
  call(item: Item): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      this.#waitingWeight += this.#options.weigh(item);
      this.#flushSoon();
    });
  }

  /** Resolves when nothing waits and nothing is under way. */
  async idle(): Promise<void> {
    if (this.#inFlight === 0 && this.#waiting.length === 0) return;
    await new Promise<void>((resolve) => this.#onIdle.push(resolve));
  }

  /** Calls of the same turn go together. */
  #flushSoon(): void {
    if (this.#isFlushing || this.#inFlight === this.#inFlightMax) return;
    this.#isFlushing = true;
    queueMicrotask(() => {
      this.#isFlushing = false;
      this.#flush();
    });
  }

  #flush(): void {
    while (this.#waiting.length > 0 && this.#inFlight < this.#inFlightMax) {
      if (this.#inFlight > 0 && this.#waitingWeight < secondWeightMin) return;
      void this.#carryOut(this.#take());
    }
  }

  async #carryOut(batch: readonly Waiting<Item, Answer>[]): Promise<void> {
    this.#inFlight += 1;
    try {
      // Pushed, not mapped: V8 takes what map() makes for a list with gaps, which costs twice as much to send to a thread.
      const items: Item[] = [];
      for (const { item } of batch) items.push(item);
      const answers = await this.#send(items);
      for (let index = 0; index < batch.length; index++) deliver(batch[index], answers[index]);
    } catch (error) {
      for (const waiting of batch) waiting.reject(error);
    }
    this.#inFlight -= 1;
    this.#flush();
    if (this.#inFlight > 0) return;
    const idle = this.#onIdle;
    this.#onIdle = [];
    for (const resolve of idle) resolve();
  }

  /** The next calls, in order, up to the largest weight; a single heavier call goes alone. */
  #take(): readonly Waiting<Item, Answer>[] {
    const { weigh, weightMax } = this.#options;
    const all = this.#waiting.length;
    const isHalved = this.#inFlightMax > 1 && this.#inFlight === 0 && all >= halveFrom;
    const countMax = isHalved ? Math.ceil(all / 2) : all;
    let weight = 0;
    let count = 0;
    for (const { item } of this.#waiting) {
      const next = weigh(item);
      if (count === countMax || (count > 0 && weight + next > weightMax)) break;
      weight += next;
      count += 1;
    }
    this.#waitingWeight -= weight;
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
