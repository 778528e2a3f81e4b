/**
 * Running a module's handlers.
 */
import { once } from "node:events";
import { Failure, messageOf } from "./failure.js";
import { loggerOf } from "./logger.js";
import type { Session } from "./session.js";
import { storeFailure } from "./store-failure.js";
import { loadModule, type WorkerModule } from "./worker-module.js";
import { workerOptions } from "./worker-options.js";

/** Runs the handlers of a module until it is told to stop. */
export async function work(session: Session, given: string): Promise<void> {
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
