/**
 * What is wrong with a definition. A definition is code, so that a bad one is thrown, not returned.
 */
import { TaggedError } from "better-result";

/** A job or a service was defined in a way that cannot work. `field` names what to change. */
export class InvalidDefinition extends TaggedError("InvalidDefinition")<{
  readonly message: string;
  readonly field: string;
}> {}
