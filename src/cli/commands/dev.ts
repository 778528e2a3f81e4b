/**
 * `millrace dev`: server, keeper and worker in one process.
 */
import type { Command } from "commander";
import { define, option, type Run } from "../define.js";
import type { DevOptions } from "../dev.js";
import { pairs } from "../values.js";

/** Adds the command. */
export function addDev(program: Command, run: Run): void {
  define<DevOptions>(program, run, {
    words: "dev [module]",
    says: "run server, keeper and a module's worker in one process, and watch them",
    examples: [
      "millrace dev ./worker.ts",
      "millrace dev ./worker.ts --bind 127.0.0.1:0 --until-done",
    ],
    options: [
      option("--until-done", "stop when the sample is over and every job of the service has ended"),
      option("--sample <name=value>", "an option of the module's sample (repeatable)", pairs),
    ],
    settings: "dev",
    run: async (session, { args: [module], options }) => {
      const { runDev } = await import("../dev.js");
      await runDev(session, module, options);
    },
  });
}
