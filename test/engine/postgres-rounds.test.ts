// Events that the jobs of one batch have in common stand once in a PostgreSQL store. Whoever reads a log or the feed
// gets them as if each had a row of its own, whatever becomes of the jobs afterwards.
import {
  connect,
  defineJob,
  defineService,
  type FeedItem,
  type JobEvent,
  openEngine,
  terminate,
} from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { laneOf } from "#millrace/core/order.js";
import { execute, freshSchema } from "../support/postgres.js";

const number = z.object({ number: z.number() });
const shop = defineService("shop", {
  print: defineJob({
    payload: number,
    result: z.string(),
    concurrency: 50,
    retry: { backoff: () => 0 },
  }),
});

const jobCount = 60;

/** A store with jobs that a worker has run in batches, of which each fifth failed once. */
async function workedStore() {
  const { url, schema, storeUrl } = await freshSchema();
  const service = await connect(shop, { url: storeUrl });
  onTestFinished(() => service.stop());
  const payloads = Array.from({ length: jobCount }, (_, place) => ({ payload: { number: place } }));
  const created = await service.jobs.print.createMany(payloads).orThrow();
  const refs = created.map((result) => result.unwrap());
  service.jobs.print.handle(({ payload, tries }) => {
    if (failsOnce(payload.number) && tries === 1) throw new Error("no paper");
    return `page ${payload.number}`;
  });
  await service.start();
  await Promise.all(refs.map((ref) => ref.wait().orThrow()));
  const engine = await openEngine(storeUrl);
  onTestFinished(() => engine.close());
  const ask = async (sql: string) => {
    const rows = await execute(url, sql.replaceAll("~", `${schema}.`));
    return rows as readonly Record<string, unknown>[];
  };
  return { service, refs, engine, ask };
}

function failsOnce(place: number): boolean {
  return place % 5 === 0;
}

async function namesOf(ref: { events(): { orThrow(): Promise<readonly JobEvent[]> } }) {
  return (await ref.events().orThrow()).map(({ name }) => name);
}

async function feedOf(
  engine: Awaited<ReturnType<typeof openEngine>>,
  cursor: string | null = null,
): Promise<readonly FeedItem[]> {
  const items: FeedItem[] = [];
  for await (const item of engine.tail(cursor, new AbortController().signal, "stored"))
    items.push(item);
  return items;
}

describe("events of a batch", () => {
  it("are stored once for all jobs of it, and read as each job's own", async () => {
    const { refs, ask } = await workedStore();
    const [counts] =
      await ask(`SELECT (SELECT sum(size) FROM ~rounds WHERE name = 'started')::int AS started,
      (SELECT count(*) FROM ~rounds)::int AS rounds,
      (SELECT count(*) FROM ~events WHERE name = 'started' AND version = 2)::int AS alone`);
    expect(counts).toMatchObject({ started: jobCount, alone: 0 });
    expect(counts?.rounds).toBeLessThan(jobCount);
    for (const [place, ref] of refs.entries()) {
      const events = await ref.events().orThrow();
      expect(events.map(({ name }) => name)).toEqual(
        failsOnce(place)
          ? ["created", "started", "retry", "started", "completed"]
          : ["created", "started", "completed"],
      );
      expect(events.map(({ version }) => version)).toEqual(events.map((_, index) => index + 1));
      expect(events.at(-1)).toMatchObject({ result: `page ${place}`, jobId: ref.id });
      expect(new Set(events.map(({ id }) => id)).size).toBe(events.length);
      expect((await ref.get().orThrow()).result).toBe(`page ${place}`);
    }
  });

  it("are told apart where outcomes of one batch have little in common", async () => {
    const { storeUrl } = await freshSchema();
    const service = await connect(shop, { url: storeUrl });
    onTestFinished(() => service.stop());
    const payloads = Array.from({ length: 6 }, (_, place) => ({ payload: { number: place } }));
    const created = await service.jobs.print.createMany(payloads).orThrow();
    const refs = created.map((result) => result.unwrap());
    service.jobs.print.handle(({ payload, tries }) => {
      if (payload.number % 3 === 1) return terminate(`no paper in tray ${payload.number}`);
      if (payload.number === 2 && tries === 1) throw new Error("jammed");
      return `page ${payload.number}`;
    });
    await service.start();
    await Promise.all(refs.map((ref) => ref.wait()));
    for (const [place, ref] of refs.entries()) {
      const last = (await ref.events().orThrow()).at(-1);
      expect(last).toMatchObject(
        place % 3 === 1
          ? { name: "failed", error: { message: `no paper in tray ${place}` } }
          : { name: "completed", result: `page ${place}`, version: place === 2 ? 5 : 3 },
      );
      expect((await ref.get().orThrow()).state).toBe(last?.state);
    }
  });

  it("come in the feed in the order of each job's log, and a reader may go on after any of them", async () => {
    const { refs, engine } = await workedStore();
    const items = await feedOf(engine);
    for (const ref of refs) {
      const own = items.flatMap(({ event }) => (event.jobId === ref.id ? [event] : []));
      expect(own).toEqual(await ref.events().orThrow());
    }
    const ids = items.map(({ event }) => event.id);
    for (const place of [0, 59, 60, 61, 75, 100, 119, 130, items.length - 1]) {
      const rest = await feedOf(engine, items[place]?.cursor);
      expect(rest.map(({ event }) => event.id)).toEqual(ids.slice(place + 1));
    }
  });

  it("outlast a new run of their job", async () => {
    const { service, refs } = await workedStore();
    const [, first] = refs;
    if (!first) throw new Error("no job");
    await first.retry({ force: true }).orThrow();
    await first.wait().orThrow();
    const names = ["created", "started", "completed"];
    expect(await namesOf(service.ref(first.id))).toEqual([
      ...names,
      "retried",
      "started",
      "completed",
    ]);
  });

  it("go with a deleted job, and stay for the others of their batch", async () => {
    const { refs, engine, ask } = await workedStore();
    const kept = refs.filter((_, place) => place % 2 === 1);
    const before = await Promise.all(kept.map((ref) => ref.events().orThrow()));
    for (const [place, ref] of refs.entries()) if (place % 2 === 0) await ref.delete().orThrow();
    expect(await Promise.all(kept.map((ref) => ref.events().orThrow()))).toEqual(before);
    const [left] = await ask(
      "SELECT string_agg(bodies::text || jobs::text, ' ') AS text FROM ~rounds",
    );
    expect(left?.text).toContain("page 7");
    expect(left?.text).not.toContain("page 8");
    const items = await feedOf(engine);
    const deleted = items.filter(({ event }) => event.name === "deleted");
    expect(deleted).toHaveLength(refs.length - kept.length);
    expect(items).toHaveLength(before.flat().length + deleted.length);
    for (const ref of kept) await ref.delete().orThrow();
    expect(await ask("SELECT seq FROM ~rounds UNION ALL SELECT job FROM ~rounds_of_job")).toEqual(
      [],
    );
  });

  it("are rewritten for many jobs at once when these are removed together", async () => {
    const { refs, ask } = await workedStore();
    await ask("CREATE TABLE ~rewrites (seq bigint)");
    await ask(`CREATE FUNCTION ~note_rewrite() RETURNS trigger LANGUAGE plpgsql
      AS 'BEGIN INSERT INTO ~rewrites VALUES (NEW.seq); RETURN NULL; END'`);
    await ask(
      "CREATE TRIGGER noted AFTER UPDATE ON ~rounds FOR EACH ROW EXECUTE FUNCTION ~note_rewrite()",
    );
    await Promise.all(refs.map((ref) => ref.delete().orThrow()));
    expect(await ask("SELECT seq FROM ~rounds UNION ALL SELECT job FROM ~rounds_of_job")).toEqual(
      [],
    );
    const [rewrites] = await ask("SELECT count(*)::int AS count FROM ~rewrites");
    // Each of the jobs is in two rounds.
    expect(rewrites?.count).toBeLessThan(jobCount);
  });

  it("never are more than there are positions for, however many jobs one claim takes", async () => {
    const { storeUrl } = await freshSchema();
    const service = await connect(shop, { url: storeUrl });
    onTestFinished(() => service.stop());
    const count = 4_200;
    for (let made = 0; made < count; made += 700) {
      const jobs = Array.from({ length: 700 }, (_, place) => ({ payload: { number: place } }));
      await service.jobs.print.createMany(jobs).orThrow();
    }
    const engine = await openEngine(storeUrl);
    onTestFinished(() => engine.close());
    const names = { service: "shop", queue: "print", type: "print" };
    const lane = { ...names, lane: laneOf({ ...names, typeVersion: 1 }), leaseMs: 60_000 };
    const lanes = [{ ...lane, free: count }];
    const { jobs } = await engine.claim({ worker: "w", lanes, limit: count });
    expect(jobs).toHaveLength(count);
    const last = await service.jobs.print.create({ number: 0 }).orThrow();
    const items = await feedOf(engine);
    expect(items).toHaveLength(2 * count + 1);
    expect(items.at(-1)?.event.jobId).toBe(last.id);
    expect(new Set(items.map(({ cursor }) => cursor)).size).toBe(items.length);
    expect(new Set(items.map(({ event }) => event.id)).size).toBe(items.length);
  });
});
