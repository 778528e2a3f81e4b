/**
 * Completion for bash, zsh and fish: a script that the shell loads, and the answers that the script asks for.
 */
import tab from "@bomb.sh/tab/commander";
import type { Command } from "commander";

/** Adds `completion <shell>`, which prints the script, and the hidden `complete` that scripts call. */
export function addCompletion(program: Command): void {
  tab(program, { completionCommandName: "completion" });
  const completion = program.commands.find((command) => command.name() === "completion");
  completion
    ?.description("print a script that completes commands in your shell")
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
