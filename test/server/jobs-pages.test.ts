// Pages of the admin calls, while jobs that they list are removed or moved on: each job is shown once, in its own state.
import { connect, defineJob, defineService } from "millrace";
import { JobsClient, JobsServer } from "millrace/nats";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import type { Engine } from "#millrace/engine/engine.js";
import { openEngine } from "#millrace/engine/open.js";
import { freshPrefix, natsConnection } from "../support/nats.js";

const shop = defineService("shop", {
  mail: defineJob({ payload: z.object({ to: z.string() }), retry: { maxTries: 1 } }),
});

/** A service in memory, and the calls over it; `load` stands between a list and the jobs that it shows. */
async function scene(load: (engine: Engine, ids: readonly string[]) => ReturnType<Engine["load"]>) {
  const { url, prefix } = await freshPrefix();
  const engine = await openEngine("memory:");
  onTestFinished(() => engine.close());
  const service = await connect(shop, { engine });
  onTestFinished(() => service.stop());
  const seen = new Proxy(engine, {
    get: (target, name) => {
      const found: unknown = Reflect.get(target, name);
      if (name === "load") return (ids: readonly string[]) => load(engine, ids);
      return typeof found === "function" ? found.bind(target) : found;
    },
  });
  const server = new JobsServer({ connection: await natsConnection(url), engine: seen, prefix });
  onTestFinished(() => server.stop());
  await server.start();
  return { service, jobs: new JobsClient(await natsConnection(url), { prefix }) };
}

it("shows each job once where a page ends early and jobs of it were removed meanwhile", async () => {
  const gone = new Set<string>();
  const { service, jobs } = await scene(async (engine, ids) => {
    const loaded = await engine.load(ids);
    return loaded.map((each, index) => (gone.has(ids[index] ?? "") ? null : each));
  });
  const to = "x".repeat(200_000);
  const ids: string[] = [];
  for (let n = 0; n < 9; n++) ids.unshift((await service.jobs.mail.create({ to }).orThrow()).id);
  for (const place of [0, 2, 8]) gone.add(ids[place] ?? "");
  const seen: string[] = [];
  const offsets: number[] = [];
  for (let offset: number | undefined = 0; offset !== undefined; ) {
    offsets.push(offset);
    const page = await jobs.list({ limit: 100, offset }).orThrow();
    seen.push(...page.entries.map(({ id }) => id));
    offset = page.nextOffset;
  }
  expect(seen).toEqual(ids.filter((id) => !gone.has(id)));
  expect(offsets).toEqual([0, 7]);
});

it("lists no job as dead that was replayed while it was being listed", async () => {
  let meanwhile = async () => {};
  const { service, jobs } = await scene(async (engine, ids) => {
    await meanwhile();
    return engine.load(ids);
  });
  service.jobs.mail.handle(async () => {
    throw new Error("broken");
  });
  await service.start();
  const refs = [];
  for (const to of ["a", "b"]) refs.push(await service.jobs.mail.create({ to }).orThrow());
  for (const ref of refs) expect((await ref.wait()).isErr()).toBe(true);
  await service.queues.pause("mail").orThrow();
  const list = async () =>
    (await jobs.listDLQ({ limit: 10 }).orThrow()).entries.map(({ id, state }) => ({ id, state }));
  expect(await list()).toHaveLength(2);
  const [first, second] = refs;
  meanwhile = async () => {
    meanwhile = async () => {};
    await first?.replay().orThrow();
  };
  expect(await list()).toEqual([{ id: second?.id, state: "dead" }]);
});

it("lists a service that is known by its contract alone", async () => {
  const { service, jobs } = await scene((engine, ids) => engine.load(ids));
  await service.contract.accept().orThrow();
  expect((await jobs.listServices({ limit: 10 }).orThrow()).entries).toEqual([
    { name: "shop", instances: 0, workers: [], jobs: {} },
  ]);
});
