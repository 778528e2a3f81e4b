/**
 * `millrace server`: serves the HTTP API on a store until it is told to stop.
 */
import type { Command } from "commander";
import { define, type Run } from "../define.js";

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
      const { serveStore } = await import("../serving.js");
      await serveStore(session);
    },
  });
}
