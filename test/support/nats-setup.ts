// Gives all tests of a run one NATS server.
import type { TestProject } from "vitest/node";
import { startNats } from "../../scripts/nats-server.js";
import { offerServer } from "./shared-server.js";

declare module "vitest" {
  interface ProvidedContext {
    /** The port that answers with the URL of the run's NATS server. */
    readonly natsPort: number;
  }
}

/** Runs before all tests; what it gives back runs after them. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const { port, stop } = await offerServer(startNats);
  project.provide("natsPort", port);
  return stop;
}
