// Gives all tests of a run one PostgreSQL server, started when the first of them asks for it:
// most test files need none. It listens on a port of its own and answers each caller with the URL.
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import type { TestProject } from "vitest/node";
import { type PostgresServer, startPostgres } from "../../scripts/postgres-server.js";

declare module "vitest" {
  interface ProvidedContext {
    /** The port that answers with the URL of the run's PostgreSQL server. */
    readonly postgresPort: number;
  }
}

/** Runs before all tests; what it gives back runs after them. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  let server: Promise<PostgresServer> | undefined;
  const listener = createServer((socket) => {
    // A caller that has gone needs no answer.
    socket.on("error", () => undefined);
    server ??= startPostgres();
    server.then(
      ({ url }) => socket.end(url),
      (error) => socket.end(String(error)),
    );
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  project.provide("postgresPort", (listener.address() as AddressInfo).port);
  return async () => {
    listener.close();
    await server?.then((started) => started.stop());
  };
}
