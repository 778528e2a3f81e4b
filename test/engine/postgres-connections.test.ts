// A process keeps a connection at hand for claims, for creates and for ends. Nobody waits for one that is only kept, and one
// that breaks meanwhile is replaced.
import { connect, defineJob, defineService, type Engine } from "millrace";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { execute, freshDatabase } from "../support/postgres.js";

const shop = defineService("shop", {
  print: defineJob({ payload: z.object({ number: z.number() }) }),
});

const lane = { lane: "shop/print/print@1", service: "shop", queue: "print", type: "print" };
const ask = { worker: "w", lanes: [{ ...lane, free: 10, leaseMs: 30_000 }], limit: 10 };

/** A service on so many connections. */
async function open(poolMax: number) {
  const url = new URL(await freshDatabase());
  url.searchParams.set("poolMax", String(poolMax));
  const service = await connect(shop, { url: url.href, keeper: false });
  onTestFinished(() => service.stop());
  return { service, engine: service.engine, url: url.href };
}

/** Ends every session of a database but those that listen, waits until they are gone, and gives how many there were. */
async function endSessions(url: string): Promise<number> {
  const plain = new URL(url);
  plain.search = "";
  const sessions = `FROM pg_stat_activity WHERE application_name = 'millrace' AND datname = current_database()`;
  const ended = await execute(plain.href, `SELECT pg_terminate_backend(pid) ${sessions}`);
  while ((await execute(plain.href, `SELECT pid ${sessions}`)).length > 0);
  return ended.length;
}

function claimedIds(engine: Engine): Promise<readonly string[]> {
  return engine.claim(ask).then(({ jobs }) => jobs.map(({ job }) => job.id));
}

it("two connections serve creates, claims, ends and looks", async () => {
  const { service } = await open(2);
  const numbers: number[] = [];
  service.jobs.print.handle(({ payload }) => void numbers.push(payload.number));
  await service.start();
  for (const number of [1, 2, 3]) {
    const job = await service.jobs.print.create({ number }).orThrow();
    await job.wait().orThrow();
    expect((await job.get().orThrow()).state).toBe("completed");
  }
  expect(numbers).toEqual([1, 2, 3]);
});

it("looks that come together share all connections, those that are kept included", async () => {
  const { service, engine } = await open(2);
  await service.jobs.print.create({ number: 1 }).orThrow();
  expect(await claimedIds(engine)).toHaveLength(1);
  const looks = Array.from({ length: 4 }, () => engine.records(["any"]));
  expect(await Promise.all(looks)).toEqual(looks.map(() => [null]));
  expect(await claimedIds(engine)).toEqual([]);
  expect(engine.health?.()).toMatchObject({ connectionsUsed: 0, connectionsWaitedFor: 0 });
});

it("connections that break while they are kept are replaced", async () => {
  const { service, engine, url } = await open(4);
  const first = await service.jobs.print.create({ number: 1 }).orThrow();
  expect(await claimedIds(engine)).toEqual([first.id]);
  expect(await endSessions(url)).toBeGreaterThan(1);
  const second = await service.jobs.print.create({ number: 2 }).orThrow();
  expect(await claimedIds(engine)).toEqual([second.id]);
});
