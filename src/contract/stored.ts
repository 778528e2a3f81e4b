/**
 * The type of a value after it was stored: what JSON makes of it.
 */

/** What a value is once it went through JSON: a `Date` is a string, everything plain is itself. */
export type Stored<Value> = unknown extends Value
  ? Value
  : Value extends string | number | boolean | null | undefined
    ? Value
    : Value extends { toJSON(): infer Text }
      ? Text
      : { [Name in keyof Value]: Stored<Value[Name]> };
