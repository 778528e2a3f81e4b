// Tours through commands: against a server in pipes and on a pseudo-terminal, and against a store.
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";
import { freshPlace, json, onTerminal, type Place, run, start } from "./millrace.js";

/** The module with the handlers that the tours use. */
export const bakeryModule = fileURLToPath(new URL("bakery.ts", import.meta.url));

/** What a command is expected to do. */
export interface Expected {
  /** The exit code; 0 unless something else is expected. */
  readonly code?: number;
  /** What its JSON has, in a pipe. */
  readonly has?: object;
  /** What stands on the terminal. */
  readonly shows?: string | RegExp;
  /** It asks before it does something: `y` is typed on the terminal, and `--yes` needed in a pipe. */
  readonly asks?: true;
}

/** One way to use the command line. */
export interface Tour {
  readonly place: Place;
  readonly url: string;
  /** Runs a command and looks at what it printed. Gives the JSON, in a pipe. */
  see(words: readonly string[], expected: Expected): Promise<void>;
  /** Asks for JSON, to learn what later commands need. */
  ask<Value>(...words: readonly string[]): Promise<Value>;
  /** Runs the module's handlers until the test ends. */
  work(): Promise<void>;
}

async function seeInPipe(place: Place, words: readonly string[], expected: Expected) {
  const { asks, code = 0, has } = expected;
  if (asks) {
    const unasked = await run(place, words);
    expect(unasked, words.join(" ")).toMatchObject({ code: 2, out: "" });
    expect(unasked.err).toContain("--yes");
  }
  const ended = await run(place, [...words, "--json", ...(asks ? ["--yes"] : [])]);
  expect(ended, words.join(" ")).toMatchObject({ code });
  // Whatever goes wrong is told as one line of JSON, and data is one document.
  if (code !== 0)
    expect(JSON.parse(ended.err.trim().split("\n").at(-1) ?? "")).toHaveProperty("error");
  if (has !== undefined) expect(JSON.parse(ended.out), words.join(" ")).toMatchObject(has);
}

async function seeOnTerminal(place: Place, words: readonly string[], expected: Expected) {
  const { asks, code = 0, shows } = expected;
  const shown = await onTerminal(place, words, asks ? { steps: [{ after: "?", type: "y" }] } : {});
  expect(shown, `${words.join(" ")}\n${shown.text}`).toMatchObject({ code });
  if (shows !== undefined) expect(shown.text, words.join(" ")).toMatch(shows);
  expect(shown.text).not.toMatch(/^ +at /m);
}

function tourOf(place: Place, url: string, see: typeof seeInPipe): Tour {
  return {
    place,
    url,
    see: (words, expected) => see(place, words, expected),
    ask: (...words) => json(place, ...words),
    work: async () => {
      const worker = start({ folder: place.folder }, ["worker", bakeryModule, "--url", url]);
      await worker.says("bakery runs");
    },
  };
}

async function openServer(see: typeof seeInPipe): Promise<Tour> {
  const { folder } = await freshPlace();
  const url = `file:${join(folder, "jobs.db")}`;
  const server = start({ folder }, ["server", "--bind", "127.0.0.1:0", "--url", url]);
  const address = await server.says(/(http:\/\/127\.0\.0\.1:\d+)/);
  return tourOf({ folder, environment: { MILLRACE_SERVER: address } }, url, see);
}

/** The ways over a server: in a pipe, and on a terminal. */
export const serverTours = [
  { name: "a server, in a pipe", open: () => openServer(seeInPipe) },
  { name: "a server, on a terminal", open: () => openServer(seeOnTerminal) },
] as const;

/** All ways. What asks the API does so in the same way on a store, so that some commands stand for the others there. */
export const tours = [
  ...serverTours,
  {
    name: "a store, in a pipe",
    open: async (): Promise<Tour> => {
      const { folder } = await freshPlace();
      const url = `file:${join(folder, "jobs.db")}`;
      return tourOf({ folder, environment: { MILLRACE_URL: url } }, url, seeInPipe);
    },
  },
] as const;
