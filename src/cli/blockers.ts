/**
 * What a new job waits for, as the command line names it: `id`, `name=id`, or either with `:continue` after it.
 */
import { InvalidArgumentError, type Option } from "commander";
import { option } from "./define.js";
import { Failure } from "./failure.js";

/** A blocker as the API takes it. */
interface Blocker {
  readonly id: string;
  readonly name?: string;
  readonly chain?: true;
  readonly onBadEnd?: string;
}

/** The options with which a command is given blockers. */
export interface BlockerOptions {
  readonly blocker?: readonly Blocker[];
  readonly blockerChain?: readonly Blocker[];
}

/** The options of a command that makes a job. */
export const blockerOptions = (): readonly Option[] => [
  option(
    "--blocker <blockers>",
    "wait for these jobs first: id, or name=id where the type names its blockers; id:continue goes on however it ends (repeatable)",
    blockers,
  ),
  option("--blocker-chain <blockers>", "the same with chains (repeatable)", blockers),
];

/** Collects blockers, also as a comma list. An empty one is refused: a job that should wait must not run at once. */
function blockers(text: string, before: readonly Blocker[] = []): readonly Blocker[] {
  return [...before, ...text.split(",").map(blockerOf)];
}

/** An id has neither `=` nor `:`, so that a name may have them. */
function blockerOf(text: string): Blocker {
  const parts = /^(?:(.+)=)?([^=:]+)(?::(continue|unreachable))?$/.exec(text);
  if (parts === null) {
    const message = "Give id or name=id, and :continue after it where a bad end does no harm.";
    throw new InvalidArgumentError(message);
  }
  const [, name, id = "", onBadEnd] = parts;
  return {
    id,
    ...(name !== undefined && { name }),
    ...(onBadEnd !== undefined && { onBadEnd }),
  };
}

/** The blockers for the body of a request; nothing where there are none. */
export function blockersBody({ blocker = [], blockerChain = [] }: BlockerOptions): object {
  const all = [...blocker, ...blockerChain.map((one) => ({ ...one, chain: true as const }))];
  return all.length === 0 ? {} : { blockers: all };
}

/** Says of a refusal of blockers how they are given here. */
export function refusedBlockers(error: unknown): never {
  if (!(error instanceof Failure) || error.exit !== "usage") throw error;
  const { code, message, details = {} } = error;
  if (!("field" in details) || details.field !== "blockers") throw error;
  const remedy = "By name it is --blocker name=id, without one --blocker id.";
  throw new Failure("usage", `${message} ${remedy}`, { code, details });
}
