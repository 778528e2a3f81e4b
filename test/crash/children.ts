// Real processes for the crash tests: started, listened to, killed and paused.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";

export interface Child {
  readonly child: ChildProcess;
  /** Resolves with the first line that is exactly this; rejects when the process ends before. */
  said(line: string): Promise<void>;
  /** Sends a line to the process. */
  tell(line: string): void;
  /** Resolves with everything that the process printed once it has ended. */
  readonly ended: Promise<Ending>;
}

export interface Ending {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly lines: readonly string[];
  readonly errors: string;
}

export interface ChildOptions {
  readonly environment?: Readonly<Record<string, string>>;
  /** A program that starts Node.js in its place, such as a shell with limits. */
  readonly through?: readonly [string, ...string[]];
}

/** Starts a TypeScript file of this folder. It is killed with the test if it has not ended before. */
export function startChild(
  file: string,
  parameters: readonly string[],
  { environment = {}, through }: ChildOptions = {},
): Child {
  const path = fileURLToPath(new URL(file, import.meta.url));
  const node = [process.execPath, "--import", "tsx", path, ...parameters];
  const [command = process.execPath, ...rest] = [...(through ?? []), ...node];
  const child = spawn(command, rest, {
    env: { ...process.env, ...environment },
    stdio: ["pipe", "pipe", "pipe"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  const lines: string[] = [];
  const listeners = new Set<() => void>();
  createInterface({ input: child.stdout }).on("line", (line) => {
    lines.push(line);
    for (const call of listeners) call();
  });
  let errors = "";
  child.stderr.on("data", (chunk) => {
    errors += chunk;
  });
  const ended = once(child, "close").then(([code, signal]) => ({ code, signal, lines, errors }));
  const said = (wanted: string) =>
    new Promise<void>((resolve, reject) => {
      const look = () => {
        if (lines.includes(wanted)) resolve();
      };
      listeners.add(look);
      look();
      void ended.then(({ code, signal }) => {
        const end = `ended (${code ?? signal}) before it said "${wanted}"`;
        reject(new Error(`${file} ${end}: ${errors}`));
      });
    });
  const tell = (line: string) => void child.stdin.write(`${line}\n`);
  return { child, said, tell, ended };
}
