/**
 * `millrace server`: serves the HTTP API on a store until it is told to stop.
 */
import { once } from "node:events";
import type { Command } from "commander";
import { openEngine } from "../../engine/open.js";
import { define, type Run } from "../define.js";
import { loggerOf } from "../logger.js";
import { serve } from "../serving.js";
import { storeFailure } from "../store-failure.js";

/** Adds the command. */
export function addServer(program: Command, run: Run): void {
  define(program, run, {
    words: "server",
    says: "serve the HTTP API on a store",
    examples: [
      "millrace server --url postgres://localhost/app",
      "millrace server --bind 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem",
    ],
    settings: "server",
    run: async (session) => {
      const url = session.storeUrl("server");
      const logger = loggerOf(session);
      const engine = await openEngine(url, { logger }).catch((error: unknown) => {
        throw storeFailure(error);
      });
      try {
        const server = await serve(session, { engine, logger });
        session.output.document({ url: server.url, store: engine.url }, () => server.url);
        session.output.note(`Serving ${engine.url}, until Ctrl-C.`);
        if (!session.signal.aborted) await once(session.signal, "abort");
        await server.stop();
      } finally {
        await engine.close();
      }
    },
  });
}
