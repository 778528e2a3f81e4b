// The crash test on PostgreSQL, where the server itself is killed and started again as well, and many
// processes that create and work at once on a server that stays up. In both, callers create and complete in transactions
// of their own, and some handlers work in them.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import type { PostgresServer } from "../../scripts/postgres-server.js";
import type { Random } from "../simulation/random.js";
import { freshSchema, ownPostgres } from "../support/postgres.js";
import { runCrash } from "./crash.js";
import { pass } from "./time.js";

const serverKills = 3;

/** What each creator creates at least, beside callers that hold keys in transactions. */
const createsPerSecondMin = 10;

/** For how long twelve processes create and work: a whole minute, or what is asked for by hand. */
const twelveMs = Number(process.env.MILLRACE_TWELVE_SECONDS ?? 60) * 1_000;

it("loses nothing and exceeds nothing while workers and the server are killed", {
  timeout: 240_000,
}, async () => {
  const [workers, jobs] = [3, 2_000];
  const server = await ownPostgres();
  const { engine, fleet, acknowledged } = await runCrash({
    url: server.url,
    folder: await freshFolder(),
    workers,
    creators: 1,
    jobs,
    excused: ["StoreUnavailable", "StoreBusy", "ConnectionLost"],
    trouble: (fleet, random) =>
      Promise.all([fleet.trouble(random.fork()), killServer(server, random.fork())]),
  });
  expect(acknowledged).toBeGreaterThan(jobs / 4);
  expect(fleet.killed).toHaveLength(3 * workers);
  expect(fleet.pauses).toBe(4 * workers);
  await engine.close();
});

it("keeps every limit and shows nobody a deadlock while twelve processes create and work", {
  timeout: twelveMs + 240_000,
}, async () => {
  const [workers, creators] = [6, 6];
  const { storeUrl } = await freshSchema();
  const { engine, acknowledged } = await runCrash({
    url: storeUrl,
    folder: await freshFolder(),
    workers,
    creators,
    jobs: 0,
    // Nobody is killed here. Commands meet handlers that work inside transactions, and creators take that for an answer.
    excused: [],
    trouble: () => pass(twelveMs),
  });
  expect(acknowledged).toBeGreaterThan(creators * (twelveMs / 1_000) * createsPerSecondMin);
  await engine.close();
});

/** Kills the server under load, a few times, and starts it again soon or after leases have run out. */
async function killServer(server: PostgresServer, random: Random): Promise<void> {
  for (let kill = 0; kill < serverKills; kill++) {
    await pass(random.whole(1_500, 3_000));
    await server.kill("SIGKILL");
    await pass(random.whole(0, 2_500));
    await server.restart();
  }
}

async function freshFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "millrace-crash-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}
