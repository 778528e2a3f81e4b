/**
 * A whole chain as the API gives it, and as text.
 */
import type { JobAnswer, JobRowAnswer } from "./answers.js";
import type { Output } from "./output.js";
import { fields, jobColumns, paintState } from "./words.js";

/** A chain. */
export interface ChainAnswer {
  readonly id: string;
  readonly state: JobAnswer["state"];
  readonly output?: unknown;
  /** The job that it has come to. */
  readonly current: JobAnswer;
  readonly jobs: readonly JobRowAnswer[];
  readonly count: number;
}

/** A chain, line by line, and a table of its jobs. */
export function chainText(chain: ChainAnswer, output: Output): string {
  const { id, state, output: given, jobs } = chain;
  const { colors } = output;
  return [
    fields(
      [
        ["id", id],
        ["state", paintState(state, state, colors)],
        ["output", given === undefined ? undefined : JSON.stringify(given)],
      ],
      colors,
    ),
    output.table(jobs, jobColumns),
  ].join("\n\n");
}
