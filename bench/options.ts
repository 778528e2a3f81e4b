// The command line of the benchmark: what may be asked for, and clear words when it is asked wrongly.
import { parseArgs } from "node:util";
import { type EngineName, engineNames } from "./bench.js";

/** What the user asked for. */
export interface Options {
  readonly engine: EngineName;
  /** The measures to run; all when it is `null`. */
  readonly only: readonly string[] | null;
  readonly quick: boolean;
  readonly jsonFile: string | null;
  readonly help: boolean;
}

/** The command line is wrong; the message says how. */
export class OptionsError extends Error {
  override readonly name = "OptionsError";
}

/** Reads the command line. */
export function parseOptions(words: readonly string[], measureNames: readonly string[]): Options {
  const { engine, only, quick, json, help } = parseWords(words);
  if (!isEngineName(engine)) {
    throw new OptionsError(`--engine ${engine} is not one of ${engineNames.join(", ")}`);
  }
  const names = only?.split(",").map((name) => name.trim()) ?? null;
  const unknown = names?.filter((name) => !measureNames.includes(name)) ?? [];
  if (unknown.length > 0) {
    throw new OptionsError(
      `--only names no measure with "${unknown.join('", "')}"; there are ${measureNames.join(", ")}`,
    );
  }
  return { engine, only: names, quick, jsonFile: json ?? null, help };
}

function parseWords(words: readonly string[]) {
  try {
    return parseArgs({
      args: [...words],
      options: {
        engine: { type: "string", default: "file" },
        only: { type: "string" },
        quick: { type: "boolean", default: false },
        json: { type: "string" },
        help: { type: "boolean", default: false, short: "h" },
      },
    }).values;
  } catch (error) {
    throw new OptionsError(error instanceof Error ? error.message : String(error));
  }
}

function isEngineName(name: string): name is EngineName {
  return engineNames.some((engine) => engine === name);
}
