// Runs the command line as users do: a process of its own, in a pipe or on a pseudo-terminal, away from the user's files.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";

/** The command itself. */
export const main = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));

const terminal = fileURLToPath(new URL("../support/terminal.py", import.meta.url));

/** Where and how a command is run. */
export interface Place {
  /** The working folder, which has the user's settings in it as well. */
  readonly folder: string;
  readonly environment?: Readonly<Record<string, string>>;
}

/** How a command ended. */
export interface Ended {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

/** A command that runs. */
export interface Running {
  readonly child: ChildProcess;
  /** Resolves when stdout or stderr holds a match, with its first group. */
  says(text: string | RegExp): Promise<string>;
  readonly ended: Promise<Ended>;
}

/** A folder of its own, gone after the test. */
export async function freshPlace(
  environment: Readonly<Record<string, string>> = {},
): Promise<Place> {
  const folder = await mkdtemp(join(tmpdir(), "millrace-cli-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return { folder, environment };
}

function environmentOf({ folder, environment = {} }: Place): NodeJS.ProcessEnv {
  const { PATH, NODE_OPTIONS } = process.env;
  return {
    ...{ PATH, HOME: folder, XDG_CONFIG_HOME: join(folder, "config"), TERM: "xterm-256color" },
    ...(NODE_OPTIONS !== undefined && { NODE_OPTIONS }),
    ...environment,
  };
}

/** Starts a command in a pipe. It is ended with the test if it has not ended before. */
export function start(place: Place, words: readonly string[], input?: string): Running {
  const child = spawn(process.execPath, [main, ...words], {
    cwd: place.folder,
    env: environmentOf(place),
    stdio: [input === undefined ? "ignore" : "pipe", "pipe", "pipe"],
  });
  child.stdin?.end(input);
  return running(child);
}

function running(child: ChildProcess): Running {
  onTestFinished(() => {
    child.kill("SIGKILL");
  });
  let out = "";
  let err = "";
  const listeners = new Set<() => void>();
  const onOutput = () => {
    for (const listener of listeners) listener();
  };
  child.stdout?.on("data", (data: Buffer) => {
    out += data.toString();
    onOutput();
  });
  child.stderr?.on("data", (data: Buffer) => {
    err += data.toString();
    onOutput();
  });
  const ended = once(child, "close").then(([code]) => ({ code, out, err }));
  const says = (text: string | RegExp) =>
    new Promise<string>((resolve, reject) => {
      const look = () => {
        const said = `${out}\n${err}`;
        const found = said.match(text);
        if (found === null) return;
        listeners.delete(look);
        resolve(found[1] ?? found[0]);
      };
      listeners.add(look);
      look();
      void ended.then(() => reject(new Error(`It ended before it said ${text}: ${out}${err}`)));
    });
  return { child, says, ended };
}

/** Runs a command in a pipe to its end. */
export function run(place: Place, words: readonly string[], input?: string): Promise<Ended> {
  return start(place, words, input).ended;
}

/** Runs a command with `--json` and reads what it printed. */
export async function json<Value = Record<string, unknown>>(
  place: Place,
  ...words: readonly string[]
): Promise<Value> {
  const { code, out, err } = await run(place, [...words, "--json"]);
  if (code !== 0) throw new Error(`millrace ${words.join(" ")} ended with ${code}: ${err}`);
  return JSON.parse(out) as Value;
}

/** What is typed once some text has come. */
export interface Step {
  readonly after: string;
  readonly type: string;
}

/** How a command on a terminal ended, and all that stood there. */
export interface Shown {
  readonly code: number;
  /** With the codes for colours and movements. */
  readonly raw: string;
  /** Without them. */
  readonly text: string;
}

/** Runs a command on a pseudo-terminal. */
export function onTerminal(
  place: Place,
  words: readonly string[],
  options: TerminalOptions = {},
): Promise<Shown> {
  return programOnTerminal(place, [process.execPath, main, ...words], options);
}

/** What a terminal is like, and what is typed there. */
interface TerminalOptions {
  readonly columns?: number;
  readonly rows?: number;
  readonly steps?: readonly Step[];
}

/** Runs any program on a pseudo-terminal. */
export async function programOnTerminal(
  place: Place,
  command: readonly string[],
  { columns = 100, rows = 30, steps = [] }: TerminalOptions,
): Promise<Shown> {
  const child = spawn("python3", [terminal, JSON.stringify({ command, columns, rows, steps })], {
    cwd: place.folder,
    env: environmentOf(place),
    stdio: ["ignore", "pipe", "pipe"],
  });
  const { out, err } = await running(child).ended;
  if (out === "") throw new Error(`The terminal ended early: ${err}`);
  const { code, text: raw, left } = JSON.parse(out) as { code: number; text: string; left: number };
  if (left > 0) throw new Error(`${left} steps were never reached: ${raw}`);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the codes are what is taken out.
  const text = raw.replaceAll(/\u001b\[[\d;?]*[A-Za-z]/g, "").replaceAll("\r", "");
  return { code, raw, text };
}
