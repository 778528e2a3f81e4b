// Gives all tests of a run one PostgreSQL server.
import type { TestProject } from "vitest/node";
import { startPostgres } from "../../scripts/postgres-server.js";
import { offerServer } from "./shared-server.js";

declare module "vitest" {
  interface ProvidedContext {
    /** The port that answers with the URL of the run's PostgreSQL server. */
    readonly postgresPort: number;
  }
}

/** Runs before all tests; what it gives back runs after them. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const { port, stop } = await offerServer(startPostgres);
  project.provide("postgresPort", port);
  return stop;
}
