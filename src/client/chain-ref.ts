/**
 * The name of a chain, as callers hold it.
 */

/** Names a chain, and remembers the type of its first job for the compiler. Holding one costs nothing. */
export class ChainRef<Type extends string = string> {
  readonly id: string;
  /** The type of the chain's first job. */
  readonly type: Type;
  /** Whether the chain was there before the call that gave this ref. */
  readonly existing: boolean;

  constructor(id: string, type: Type, existing = false) {
    this.id = id;
    this.type = type;
    this.existing = existing;
  }
}
