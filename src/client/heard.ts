/**
 * Promises that know whether anybody hears of their failure, for whoever gives them away and has to answer for what nobody waits for.
 */

/** The failures that nobody has heard of so far, in the order in which they came. */
export class Unheard {
  readonly #failures = new Map<object, unknown>();
  /** The promises that were given away, as they are settled. */
  readonly #given: Promise<void>[] = [];
  #isOver = false;

  /** A promise that is given away. What is made of it is watched, too. */
  watch<Value>(promise: Promise<Value>): Promise<Value> {
    const { heard, settled } = Heard.of(promise, this);
    this.#given.push(settled);
    return heard;
  }

  /** Waits until all that was given away is settled, and whoever waits for that has been told. */
  async settle(): Promise<void> {
    for (let next = this.#given.shift(); next; next = this.#given.shift()) await next;
  }

  /** Throws the first failure that nobody has heard of. Those that come later are nobody's any more, and go as they would anyway. */
  finish(): void {
    this.#isOver = true;
    for (const failure of this.#failures.values()) throw failure;
  }

  /** A promise has failed, and nobody has asked for it. */
  failed(promise: object, failure: unknown): void {
    if (this.#isOver) throw failure;
    this.#failures.set(promise, failure);
  }

  /** Somebody asks for a promise after all. */
  heard(promise: object): void {
    this.#failures.delete(promise);
  }
}

/** A promise of which `await`, `then` and all that is built on it are noticed. */
class Heard<Value> extends Promise<Value> {
  #unheard: Unheard | null = null;
  #isHeard = false;

  static of<Value>(promise: Promise<Value>, unheard: Unheard) {
    const heard = new Heard<Value>((resolve, reject) => promise.then(resolve, reject));
    return { heard, settled: heard.#watch(unheard) };
  }

  // biome-ignore lint/suspicious/noThenProperty: being awaited is what is noticed.
  override then<Then = Value, Otherwise = never>(
    onFulfilled?: ((value: Value) => Then | PromiseLike<Then>) | null,
    onRejected?: ((reason: unknown) => Otherwise | PromiseLike<Otherwise>) | null,
  ): Promise<Then | Otherwise> {
    this.#isHeard = true;
    this.#unheard?.heard(this);
    const next = super.then(onFulfilled, onRejected);
    if (this.#unheard !== null) void (next as Heard<Then | Otherwise>).#watch(this.#unheard);
    return next;
  }

  #watch(unheard: Unheard): Promise<void> {
    this.#unheard = unheard;
    return super.then(
      () => {},
      (failure) => {
        if (!this.#isHeard) unheard.failed(this, failure);
      },
    );
  }
}
