/**
 * A program as a handler: the payload goes in on stdin or as a file, the result comes out on stdout, and the exit code
 * says how it went.
 */
import { writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { InvalidResult } from "../../client/errors.js";
import type { IsolateSettings } from "../../contract/isolate.js";
import { payloadLimits } from "../../core/json.js";
import type { ActiveJob } from "../active-job.js";
import { terminate } from "../outcome.js";
import { checkLeft, type Ending, endingSentence } from "./ending.js";
import { isCommand, type ProgramParts, type RunOutside } from "./outside-handler.js";
import { stopWhenAborted } from "./stopping.js";
import { makeFolder, type ProcessSurroundings, removeFolder, TryProcess } from "./try-process.js";

/** Stands in an argument for the path of a file that holds the payload. */
const payloadPlace = "{payload}";

/** What the programs of a worker share. */
export interface ProgramSurroundings extends ProcessSurroundings {
  readonly graceMs: number;
  /** Is told of every process. */
  readonly onStarted: (process: TryProcess) => void;
}

/** Makes the function that runs a program for a job. */
export function programRunner(
  parts: ProgramParts<unknown>,
  settings: IsolateSettings,
  surroundings: ProgramSurroundings,
): RunOutside {
  return async (job, prepared) => {
    const { exec, terminateCodes = [], output = "json" } = parts;
    const words: unknown = typeof exec === "function" ? await exec(job.payload, prepared) : exec;
    // A shell that is given nothing to run succeeds.
    if (!isCommand(words))
      throw new Error(
        `The exec of ${job.type} gave no program to run; it must give a list of texts, the program first.`,
      );
    const program = basename(words[0] ?? "");
    const { ending, printed } = await runProgram(words, job, settings, surroundings);
    if (ending.cause?.kind === "result")
      throw new InvalidResult({ type: job.type, message: endingSentence(program, ending) });
    const isOver = ending.cause === null && ending.signal === null;
    checkLeft(program, ending, isOver && ending.code === 0, job);
    if (isOver && ending.code === 0) return resultOf(printed, output, job.type, program);
    const message = endingSentence(program, ending);
    if (isOver && terminateCodes.includes(ending.code ?? 0)) return terminate(message);
    throw new Error(message);
  };
}

/** Runs a program to its end, and gives how it ended and what it printed on stdout. */
async function runProgram(
  words: readonly string[],
  job: ActiveJob<unknown>,
  settings: IsolateSettings,
  surroundings: ProgramSurroundings,
): Promise<{ readonly ending: Ending; readonly printed: string }> {
  const { clock, graceMs, onStarted } = surroundings;
  const payload = JSON.stringify(job.payload);
  const folder = await makeFolder();
  let started: TryProcess;
  try {
    const file = join(folder, "payload.json");
    const command = words.map((word) => word.replaceAll(payloadPlace, file));
    const takesFile = words.some((word) => word.includes(payloadPlace));
    if (takesFile) await writeFile(file, payload);
    job.signal.throwIfAborted();
    started = new TryProcess({ command, folder, settings, speaks: "pipes" }, surroundings);
    feed(started.stdin, takesFile ? "" : payload);
  } catch (error) {
    await removeFolder(folder);
    throw error;
  }
  onStarted(started);
  started.output.attach((message, level) => job.log(message, level));
  started.limitMemory();
  const callOff = stopWhenAborted(job.signal, {
    clock,
    graceMs,
    ask: () => started.interrupt(),
    kill: () => started.kill({ kind: "grace", graceMs }),
  });
  const printing = collect(started.stdout, () =>
    started.kill({ kind: "result", bytesMax: payloadLimits.bytesMax }),
  );
  const ending = await started.ended;
  callOff();
  return { ending, printed: printing() };
}

/** A program need not read what it is given. */
function feed(stdin: Writable, payload: string): void {
  stdin.on("error", () => {});
  stdin.end(payload);
}

/** Keeps what a program prints, up to the size of a result. */
function collect(stdout: Readable, onTooMuch: () => void): () => string {
  let bytes = 0;
  const chunks: Buffer[] = [];
  stdout.on("error", () => {});
  stdout.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes <= payloadLimits.bytesMax) chunks.push(chunk);
    else onTooMuch();
  });
  return () => Buffer.concat(chunks).toString("utf8");
}

function resultOf(
  printed: string,
  output: "json" | "text",
  type: string,
  program: string,
): unknown {
  if (output === "text") return printed.replace(/\r?\n$/, "");
  if (printed.trim() === "") return undefined;
  try {
    return JSON.parse(printed);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new InvalidResult({ type, message: `What ${program} printed is not JSON: ${why}.` });
  }
}
