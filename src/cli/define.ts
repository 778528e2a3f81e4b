/**
 * How a command is declared: its words, what it says of itself, examples for its help, options, and what it does.
 */
import type { Command } from "commander";
import { Option } from "commander";
import type { Session } from "./session.js";
import { type Setting, settings } from "./settings.js";

/** What a command is called with. */
export interface Call<Options> {
  readonly args: readonly string[];
  readonly options: Options;
}

/** Makes a session for a command that is about to run, and ends with it. */
export type Run = (command: Command, run: (session: Session) => Promise<void>) => Promise<void>;

/** A command. */
export interface Definition<Options> {
  /** Its words and arguments, such as `get <id>`. */
  readonly words: string;
  readonly says: string;
  /** Each shown in the help; the first word is always `millrace`. */
  readonly examples: readonly string[];
  readonly options?: readonly Option[];
  /** Adds `--yes`, because it destroys something. */
  readonly destroys?: true;
  /** Whether it runs when the group is called without the name of a command. */
  readonly isDefault?: true;
  /** The settings that it has beside those of all commands. */
  readonly settings?: "server" | "dev" | "worker";
  readonly run: (session: Session, call: Call<Options>) => Promise<void>;
}

/** An option of a command. */
export function option(
  flags: string,
  says: string,
  parse?: (text: string, before: never) => unknown,
) {
  const made = new Option(flags, says);
  return parse === undefined ? made : made.argParser(parse as (text: string) => unknown);
}

/** Adds a command to its group. */
export function define<Options>(parent: Command, run: Run, definition: Definition<Options>): void {
  const { words, says, examples, options = [], destroys, isDefault } = definition;
  const command = parent.command(words, { isDefault: isDefault === true }).description(says);
  for (const one of options) command.addOption(one);
  if (definition.settings !== undefined) addSettings(command, definition.settings);
  if (destroys) command.option("-y, --yes", "do not ask");
  command.addHelpText("after", examplesText(examples));
  command.action(() =>
    run(command, (session) =>
      definition.run(session, { args: command.args, options: command.opts() as Options }),
    ),
  );
}

/** Adds a group of commands. */
export function group(parent: Command, name: string, says: string): Command {
  return parent.command(name).description(says);
}

/** Adds the settings that all commands have, or those of one command. */
export function addSettings(command: Command, of: "all" | "server" | "dev" | "worker"): void {
  for (const setting of Object.values(settings) as Setting[]) {
    const isTheirs =
      setting.commands === "all" ? of === "all" : setting.commands.includes(of as "dev");
    if (setting.flag !== undefined && isTheirs) command.option(setting.flag, settingText(setting));
  }
}

function settingText({ says, variable }: Setting): string {
  return variable === undefined ? says : `${says} (${variable})`;
}

function examplesText(examples: readonly string[]): string {
  return `\nExamples:\n${examples.map((example) => `  $ ${example}`).join("\n")}`;
}
