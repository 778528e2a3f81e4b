/**
 * `millrace worker`: runs a module's handlers, and lists workers.
 */
import type { Command } from "commander";
import { define, group, type Run } from "../define.js";
import { addWorkerList } from "./service.js";

/** Adds the commands. */
export function addWorker(program: Command, run: Run): void {
  const worker = group(program, "worker", "run a module's handlers, or list workers");
  define(worker, run, {
    words: "run <module>",
    says: "run the handlers that a module exports; `run` may be left out",
    examples: [
      "millrace worker ./worker.ts --url file:jobs.db",
      "millrace worker ./worker.js --concurrency 50",
    ],
    isDefault: true,
    settings: "worker",
    run: async (session, { args: [module = ""] }) => {
      const { work } = await import("../work.js");
      await work(session, module);
    },
  });
  addWorkerList(worker, run);
}
