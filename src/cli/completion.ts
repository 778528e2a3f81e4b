/**
 * Completion for bash, zsh and fish: a script that the shell loads, and the answers that the script asks for.
 */
import tab from "@bomb.sh/tab/commander";
import type { Command } from "commander";
import { jobStates } from "../core/job.js";

/** The values of options that have but a few. */
const values: Readonly<Record<string, readonly string[]>> = {
  state: jobStates,
  auth: ["none", "token"],
  "log-level": ["debug", "info", "warn", "error", "silent"],
  "catch-up": ["none", "last", "all"],
  overlap: ["allow", "skip"],
  "idempotency-scope": ["any", "unfinished"],
};

/** What the script for bash takes from the package bash-completion, for machines that lack it. */
const bashWords = `if ! declare -F _get_comp_words_by_ref > /dev/null; then
    _get_comp_words_by_ref() {
        cword=$COMP_CWORD
        words=("\${COMP_WORDS[@]}")
        cur=\${COMP_WORDS[COMP_CWORD]}
        prev=\${COMP_WORDS[COMP_CWORD - 1]}
    }
fi`;

/** Adds `completion <shell>`, which prints the script, and the hidden `complete` that scripts call. */
export function addCompletion(program: Command): void {
  const root = tab(program, { completionCommandName: "completion" });
  for (const { options } of [root, ...root.commands.values()]) {
    for (const [name, option] of options) {
      const known = values[name];
      if (known === undefined) continue;
      option.handler = (complete) => {
        for (const value of known) complete(value, "");
      };
    }
  }
  const completion = program.commands.find((command) => command.name() === "completion");
  completion
    ?.hook("preAction", () => {
      if (completion.args[0] === "bash") console.log(bashWords);
    })
    .description("print a script that completes commands in your shell")
    .addHelpText(
      "after",
      [
        "\nExamples:",
        "  $ source <(millrace completion bash)",
        "  $ millrace completion zsh > ~/.zfunc/_millrace",
        "  $ millrace completion fish > ~/.config/fish/completions/millrace.fish",
      ].join("\n"),
    );
}
