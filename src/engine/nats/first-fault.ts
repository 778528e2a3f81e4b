/**
 * What went wrong first among things that do not depend on one another, so that all of them are done before it is told.
 */
import { mayPass } from "./faults.js";

/** The first fault of several things that are done. */
export class FirstFault {
  #first: { readonly error: unknown } | null = null;
  #isAway = false;

  get isEmpty(): boolean {
    return this.#first === null;
  }

  /** Whether the server is away, so that nothing more is attempted. */
  get isAway(): boolean {
    return this.#isAway;
  }

  note(error: unknown): void {
    this.#first ??= { error };
    this.#isAway ||= mayPass(error);
  }

  /** Does one of the things. While the server is away each would wait for it, and so none is done any more. */
  async attempt(work: () => Promise<unknown>): Promise<void> {
    if (this.#isAway) return;
    try {
      await work();
    } catch (error) {
      this.note(error);
    }
  }

  /** Throws what went wrong first, if anything did. */
  rethrow(): void {
    if (this.#first !== null) throw this.#first.error;
  }
}
