/**
 * `millrace worker`: runs a module's handlers until it is told to stop.
 */
import { once } from "node:events";
import type { Command } from "commander";
import { define, group, type Run } from "../define.js";
import { Failure, messageOf } from "../failure.js";
import { loggerOf } from "../logger.js";
import type { Session } from "../session.js";
import { storeFailure } from "../store-failure.js";
import { loadModule, type WorkerModule } from "../worker-module.js";
import { workerOptions } from "../worker-options.js";
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
    run: async (session, { args: [given = ""] }) => {
      const url = session.storeUrl("worker");
      const module = await loadModule(given);
      const service = await connected(session, module, url);
      try {
        await service.start();
        session.output.note(`${service.name} runs as ${service.instance}, until Ctrl-C.`);
        if (!session.signal.aborted) await once(session.signal, "abort");
        session.output.note("Stopping: running jobs finish, or go back to the queue.");
      } catch (error) {
        throw startFailure(error);
      } finally {
        await service.stop();
      }
    },
  });
  addWorkerList(worker, run);
}

async function connected(session: Session, module: WorkerModule, url: string) {
  try {
    return await module.connect({ ...workerOptions(session, loggerOf(session)), url });
  } catch (error) {
    throw startFailure(error);
  }
}

/** What keeps a service from starting: its store, its contract, or its handlers. */
export function startFailure(error: unknown): Failure {
  const isMigration = (error as { _tag?: string })._tag === "MigrationNotAccepted";
  if (!isMigration) return storeFailure(error);
  const { migration } = error as { migration?: string };
  return new Failure("conflict", `${messageOf(error)}\nHere: --accept-migration ${migration}`, {
    code: "migration_not_named",
  });
}
