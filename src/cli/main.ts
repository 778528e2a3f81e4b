#!/usr/bin/env node
/**
 * The command `millrace`: reads its words, runs one command, and ends with an exit code that says how it went.
 */
import { type Command, CommanderError } from "commander";
import { keepAlive } from "../client/keep-alive.js";
import { exitCodes, Failure, messageOf } from "./failure.js";
import { createProgram } from "./program.js";
import { outputOf, Session } from "./session.js";
import { storeFailure } from "./store-failure.js";

/** Signals that come this close together are one wish: a terminal tells every process, and npm its child once more. */
const sameSignalMs = 300;

/** The first signal to stop aborts, the second ends the process at once. */
function stopSignal(): AbortSignal {
  const stop = new AbortController();
  let stoppedAt = 0;
  const onSignal = () => {
    const now = performance.now();
    if (stop.signal.aborted && now - stoppedAt > sameSignalMs)
      process.exit(exitCodes.interrupted.code);
    if (!stop.signal.aborted) stoppedAt = now;
    stop.abort();
  };
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(name, onSignal);
  return stop.signal;
}

/** Runs one command, and lets go of what it opened. */
async function run(command: Command, carryOut: (session: Session) => Promise<void>): Promise<void> {
  const session = new Session(command.optsWithGlobals(), stopSignal());
  // A command that waits for nothing but time or a signal would be over otherwise.
  const letGo = keepAlive();
  try {
    await carryOut(session);
  } finally {
    await session.close();
    letGo();
  }
}

/** Tells what went wrong, without a stack trace, and gives the exit code. */
function failed(error: unknown): number {
  if (error instanceof CommanderError)
    return error.exitCode === 0 ? exitCodes.ok.code : exitCodes.usage.code;
  const failure = error instanceof Failure ? error : storeFailure(error);
  const words = process.argv.slice(2);
  const output = outputOf({
    json: words.includes("--json"),
    ndjson: words.includes("--ndjson"),
    color: !words.includes("--no-color"),
  });
  const { exit, code, details } = failure;
  if (exit !== "interrupted")
    output.problem(messageOf(failure), { code, ...(details && { details }) });
  return exitCodes[exit].code;
}

// A reader that has seen enough, such as `head`, is no reason to complain.
for (const stream of [process.stdout, process.stderr])
  stream.on("error", (error: { code?: string }) => {
    process.exit(error.code === "EPIPE" ? exitCodes.ok.code : exitCodes.failure.code);
  });

// What nobody waited for is told like everything else, without a stack trace.
for (const name of ["uncaughtException", "unhandledRejection"] as const)
  process.on(name, (error: unknown) => process.exit(failed(error)));

const program = createProgram(run);
program.exitOverride();
for (const command of everyCommand(program)) command.exitOverride();
try {
  await program.parseAsync();
} catch (error) {
  process.exitCode = failed(error);
}

function everyCommand(command: Command): readonly Command[] {
  return command.commands.flatMap((child) => [child, ...everyCommand(child)]);
}
