/**
 * What a new job waits for, as a request names it: jobs and chains, each with its name where the job's type has names.
 */
import { z } from "zod";
import type { BlockerInput, BlockerInputs } from "../../../client/blockers.js";
import { badArgument } from "../refusal.js";
import { name } from "./common.js";

/** How many jobs and chains one job may wait for. */
const blockersMax = 1_000;

const example = '{ "name": "invoice", "id": "…" }';

const blockerIn = z
  .strictObject({
    id: name("id"),
    name: z.string().optional().meta({
      description:
        "Its name, for a job whose contract names what it waits for. Either each blocker has one, or none.",
    }),
    chain: z.boolean().optional().meta({ description: "Whether the id is that of a chain." }),
    onBadEnd: z.enum(["unreachable", "continue"]).optional().meta({
      description: "What becomes of the job when this one ends badly; unreachable by default.",
    }),
  })
  .meta({ id: "Blocker" });

/** The blockers of a job that is to be created. */
export const blockersIn = z
  .array(blockerIn, { error: `must be a list, such as [${example}]` })
  .max(blockersMax);

/** The blockers of a request in the words of the client: by name where they have names. */
export function blockersOf(blockers: z.output<typeof blockersIn>): BlockerInputs {
  const inputs: BlockerInput[] = [];
  const named = new Map<string, BlockerInput>();
  for (const { id, name: own, chain, onBadEnd = "unreachable" } of blockers) {
    const input = chain ? { chain: id, onBadEnd } : { job: id, onBadEnd };
    inputs.push(input);
    if (own === undefined) continue;
    if (named.has(own)) throw wrongNames(`two have the name ${own}; give each a name of its own`);
    named.set(own, input);
  }
  if (named.size === 0) return inputs;
  if (named.size === inputs.length) return Object.fromEntries(named);
  throw wrongNames(`some have a name and others none; name each, as in ${example}, or none`);
}

function wrongNames(problem: string): Error {
  return badArgument("option_invalid", `blockers: ${problem}.`, "blockers");
}
