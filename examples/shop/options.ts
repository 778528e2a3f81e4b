// The command line of the example: what may be asked for, and clear words when it is asked wrongly.
import { parseArgs } from "node:util";

export const help = `npm start -- [options]

Runs the example shop: creates jobs, carries them out, shows them live, and ends by itself.

  --jobs N      how many receipts are sent, besides the other jobs (default 2000)
  --seconds N   how long customers keep coming (default 10)
  --file PATH   where the jobs are stored; the file is kept, and what it holds goes on
                (default: a fresh file in a temporary folder, removed at the end)
  --help        this text

Ctrl-C stops gracefully: running jobs finish or go back to the queue. A second one exits at once.
Colours are left out where NO_COLOR is set, and the live view where the output is not a terminal.`;

/** What the user asked for. */
export interface Options {
  readonly receipts: number;
  readonly seconds: number;
  /** The file to use and to keep; `null` for one that is removed at the end. */
  readonly file: string | null;
  readonly help: boolean;
}

/** The command line is wrong; the message says how. */
export class OptionsError extends Error {
  override readonly name = "OptionsError";
}

const receiptsMax = 1_000_000;
const secondsMax = 3_600;

/** Reads the command line. */
export function parseOptions(words: readonly string[]): Options {
  const { jobs, seconds, file, help } = parseWords(words);
  return {
    receipts: wholeNumber("--jobs", jobs, 0, receiptsMax),
    seconds: wholeNumber("--seconds", seconds, 1, secondsMax),
    file: file ?? null,
    help,
  };
}

function parseWords(words: readonly string[]) {
  try {
    return parseArgs({
      args: [...words],
      options: {
        jobs: { type: "string", default: "2000" },
        seconds: { type: "string", default: "10" },
        file: { type: "string" },
        help: { type: "boolean", default: false, short: "h" },
      },
    }).values;
  } catch (error) {
    throw new OptionsError(error instanceof Error ? error.message : String(error));
  }
}

function wholeNumber(name: string, text: string, least: number, most: number): number {
  const value = Number(text);
  if (text.trim() !== "" && Number.isInteger(value) && value >= least && value <= most)
    return value;
  throw new OptionsError(`${name} ${text} is not a whole number from ${least} to ${most}`);
}
