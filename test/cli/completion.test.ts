// Completion in real shells on a pseudo-terminal: a command, an option and a value, each finished by the tab key.
// A shell that the machine lacks is Debian's, unpacked in the cache folder.
import { execFile } from "node:child_process";
import { chmod, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { debianProgram } from "../../scripts/debian-packages.js";
import { freshPlace, main, type Place, programOnTerminal } from "./millrace.js";

/** The first run fetches shells. */
const fetchTimeoutMs = 120_000;

const prompt = "ready> ";

interface Shell {
  readonly name: string;
  /** Its packages, should it have to be fetched. */
  readonly packages: readonly [string, ...string[]];
  /** The command that starts it at a prompt of ours, with the completion loaded; `root` is where it was unpacked. */
  start(place: Place, program: readonly string[], root: string): Promise<readonly string[]>;
}

const shells: readonly Shell[] = [
  {
    name: "bash",
    packages: ["bash"],
    start: async ({ folder }, program) => {
      const settings = join(folder, "bashrc");
      await writeFile(settings, `PS1='${prompt}'\nsource <(millrace completion bash)\n`);
      return [...program, "--noprofile", "--rcfile", settings, "-i"];
    },
  },
  {
    name: "zsh",
    packages: ["zsh", "zsh-common"],
    start: async ({ folder }, program, root) => {
      // The first file that zsh reads, because it needs its own modules before it reads the next.
      const places = `module_path=(${root}/usr/lib/*/zsh/*(/N) $module_path)
fpath=(${root}/usr/share/zsh/functions/**/*(/N) $fpath)\n`;
      await writeFile(join(folder, ".zshenv"), root === "" ? "" : places);
      const settings = `PS1='${prompt}'\nautoload -Uz compinit && compinit -u -D
source <(millrace completion zsh)\n`;
      await writeFile(join(folder, ".zshrc"), settings);
      return [...program, "-i"];
    },
  },
  {
    name: "fish",
    packages: ["fish", "fish-common"],
    start: async (_, program, root) => {
      const functions = `set -g fish_function_path ${root}/usr/share/fish/functions`;
      const settings = [
        root === "" ? "" : functions,
        `function fish_prompt; echo -n '${prompt}'; end`,
        "millrace completion fish | source",
      ];
      return [...program, "--no-config", "-i", "-C", settings.join("; ")];
    },
  },
];

/** The words that start a shell of this machine or an unpacked one. */
async function found({ name, packages }: Shell): Promise<{ program: string[]; root: string }> {
  try {
    await promisify(execFile)(name, ["--version"]);
    return { program: [name], root: "" };
  } catch {
    const { root, libraryPath } = await debianProgram(...packages);
    const folder = name === "zsh" ? "bin" : "usr/bin";
    return { program: ["env", `LD_LIBRARY_PATH=${libraryPath}`, join(root, folder, name)], root };
  }
}

/** A place where `millrace` is the real one, but for commands that would be run: it says what they were. */
async function placeWithMillrace(): Promise<Place> {
  const place = await freshPlace();
  const folder = join(place.folder, "bin");
  await mkdir(folder);
  const command = join(folder, "millrace");
  const real = `exec "${process.execPath}" "${main}" "$@"`;
  await writeFile(
    command,
    `#!/bin/sh\ncase "$1" in complete|completion) ${real};; esac\necho "asked: $*"\n`,
  );
  await chmod(command, 0o755);
  return { ...place, environment: { PATH: `${folder}:${process.env.PATH}` } };
}

it.for(shells)(
  "$name completes a command, an option and a value",
  { timeout: fetchTimeoutMs },
  async (shell) => {
    const { program, root } = await found(shell);
    const place = await placeWithMillrace();
    const { text } = await programOnTerminal(place, await shell.start(place, program, root), {
      steps: [
        { after: prompt, type: "millrace job lis\t--sta\tdea\t\r" },
        { after: "asked: job list --state dead", type: "exit\r" },
      ],
    });
    expect(text).not.toContain("command not found");
  },
);
