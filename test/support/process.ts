// Child processes that run a script of the tests and speak in lines.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";

export interface Script {
  readonly child: ChildProcess;
  /** The next line that the script prints; an error when it ends before. */
  nextLine(): Promise<string>;
  /** How the script ended. */
  readonly exited: Promise<{ readonly code: number | null; readonly signal: string | null }>;
}

/** Runs a TypeScript file in a process of its own, which is ended with the test if it has not ended before. */
export function runScript(file: URL, ...parameters: readonly string[]): Script {
  const child = spawn(process.execPath, ["--import", "tsx", fileURLToPath(file), ...parameters], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  onTestFinished(() => {
    child.kill("SIGKILL");
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const exited = once(child, "exit").then(([code, signal]) => ({ code, signal }));
  return {
    child,
    exited,
    nextLine: async () => {
      const { value, done } = await lines.next();
      if (done) throw new Error("The script ended before it printed a line.");
      return value;
    },
  };
}
