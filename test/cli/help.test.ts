// Help: every command has some with examples, wrong words are told what is right, and the guide lists all of them.
import { readFile } from "node:fs/promises";
import type { Command } from "commander";
import { describe, expect, it } from "vitest";
import { exitCodes } from "#millrace/cli/failure.js";
import { createProgram } from "#millrace/cli/program.js";
import { freshPlace, onTerminal, run } from "./millrace.js";

interface Known {
  readonly words: string;
  readonly command: Command;
}

/** Every command that does something, by its words. */
function commandsOf(parent: Command, before = ""): readonly Known[] {
  return parent.commands
    .filter((command) => command.name() !== "help" && `${before}${command.name()}` !== "complete")
    .flatMap((command) => {
      const words = `${before}${command.name()}`;
      return command.commands.length > 0 ? commandsOf(command, `${words} `) : [{ words, command }];
    });
}

const commands = commandsOf(createProgram(async () => {}));

async function helpOf({ command }: Known): Promise<string> {
  let text = "";
  command.configureOutput({
    writeOut: (part) => {
      text += part;
    },
  });
  command.outputHelp();
  return text;
}

describe("the help", () => {
  it.for(commands)("of $words has examples that begin as they should", async (known) => {
    const examples = (await helpOf(known)).split("\n").filter((line) => line.startsWith("  $ "));
    expect(examples.length).toBeGreaterThan(0);
    const words = known.words.replace("worker run", "worker");
    for (const example of examples) expect(example).toContain(`millrace ${words}`);
  });

  it("of all commands is shown in a pipe and on a terminal", async () => {
    const place = await freshPlace();
    const piped = await run(place, ["--help"]);
    expect(piped).toMatchObject({ code: 0, err: "" });
    const shown = await onTerminal(place, ["job", "create", "--help"], { columns: 60 });
    expect(shown.code).toBe(0);
    expect(shown.text).toContain("Examples:");
    for (const { code, meaning } of Object.values(exitCodes))
      expect(piped.out).toContain(`${code}  ${meaning}`);
  });
});

it("wrong words are told what is right, on stderr, with exit code 2", async () => {
  const place = await freshPlace();
  const wrong = [
    { words: ["jbo"], says: "Did you mean job?" },
    { words: ["job", "lst"], says: "Did you mean list?" },
    { words: ["job", "list", "--stat", "dead"], says: "Did you mean --state?" },
    { words: ["job", "list", "--limit", "many"], says: "Give a whole number" },
    { words: ["job", "create", "a", "b", "--delay", "soon"], says: "Give a duration such as" },
    { words: ["job", "create", "a", "b", "--blocker", "c=d:e"], says: "Give id or name=id" },
    { words: ["chain", "start", "a", "b", "--idempotency-scope", "c"], says: "any, unfinished" },
    { words: ["job", "get"], says: "missing required argument 'id'" },
    { words: ["job", "list", "extra"], says: "too many arguments" },
  ];
  for (const { words, says } of wrong) {
    const { code, out, err } = await run(place, words);
    expect({ code, out }, words.join(" ")).toEqual({ code: 2, out: "" });
    expect(err).toContain(says);
  }
});

describe("completion", () => {
  it("names commands and their options", async () => {
    const place = await freshPlace();
    const asked = async (...words: string[]) =>
      (await run(place, ["complete", "--", ...words])).out;
    expect(await asked("")).toContain("job\t");
    expect(await asked("job", "")).toContain("create\t");
    const scopes = await asked("chain", "start", "--idempotency-scope", "");
    expect(scopes).toBe("any\t\nunfinished\t\n:4\n");
    expect(await asked("job", "list", "--st")).toContain("--state\t");
    expect(await asked("job", "list", "--state", "d")).toBe("dead\t\ndismissed\t\n:4\n");
  });
});

describe("the guide", () => {
  const read = () =>
    readFile(new URL("../../docs/guides/command-line.md", import.meta.url), "utf8");

  it("lists every command and no other", async () => {
    const listed = [...(await read()).matchAll(/^\| `millrace ([^`<[]+?)(?: [<[][^`]*)?` \|/gm)];
    expect(listed.map(([, words]) => words).sort()).toEqual(
      [...commands.map(({ words }) => words.replace("worker run", "worker"))].sort(),
    );
  });

  it("lists every exit code", async () => {
    const guide = await read();
    for (const { code, meaning } of Object.values(exitCodes))
      expect(guide).toContain(`| ${code} | ${meaning} |`);
  });
});
