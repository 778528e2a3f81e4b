// `npm run services`: the servers are there while the script runs, and end with it however it ends.
import { once } from "node:events";
import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import { natsConnection } from "./nats.js";
import { execute } from "./postgres.js";
import { runScript } from "./process.js";

const script = new URL("../../scripts/services.ts", import.meta.url);

/** How often to look whether a server has ended, and how long to wait between two looks. */
const looksMax = 200;
const lookPauseMs = 50;

describe("the services", () => {
  it.each(["SIGINT", "SIGTERM", "SIGKILL"] as const)("end with %s", async (signal) => {
    const { child, nextLine, exited } = runScript(script);
    const postgres = (await nextLine()).replace("PostgreSQL", "").trim();
    const nats = (await nextLine()).replace("NATS", "").trim();
    expect(await execute(postgres, "SELECT 1 AS one")).toEqual([{ one: 1 }]);
    expect((await natsConnection(nats)).info?.jetstream).toBe(true);
    child.kill(signal);
    expect(await exited).toEqual(
      signal === "SIGKILL" ? { code: null, signal } : { code: 0, signal: null },
    );
    await ended(postgres);
    await ended(nats);
  });
});

/** A killed script does not wait for its servers, so that they may be there for a moment. */
async function ended(url: string): Promise<void> {
  const { port, hostname } = new URL(url);
  for (let look = 0; look < looksMax; look++) {
    const socket = connect(Number(port), hostname);
    const isThere = await once(socket, "connect").then(
      () => true,
      () => false,
    );
    socket.destroy();
    if (!isThere) return;
    await new Promise((resolve) => setTimeout(resolve, lookPauseMs)); // clock: looks until another process has ended
  }
  throw new Error("The server is still there.");
}
