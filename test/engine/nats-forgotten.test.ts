// Deletions that the log has forgotten: a view that has not read them begins anew and shows no job that is gone.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { jetstreamManager } from "@nats-io/jetstream";
import { openEngine } from "millrace";
import { expect, it, onTestFinished } from "vitest";
import { systemIds } from "#millrace/client/ids.js";
import type { Runtime } from "#millrace/client/runtime.js";
import { defineService } from "#millrace/contract/define.js";
import type { Engine } from "#millrace/engine/engine.js";
import { silentLogger } from "#millrace/engine/logger.js";
import { dutyBatchMax } from "#millrace/keeper/duty.js";
import { createKeeper } from "#millrace/keeper/keeper.js";
import { natsConnection } from "../support/nats.js";
import { Deployment, signal } from "../support/nats-engine.js";

const remove = { command: "delete", reason: "manual", force: true } as const;

/** Everything that a view shows. */
async function shown(engine: Engine) {
  const { count, entries } = await engine.query("jobs", { limit: 100 });
  return {
    count,
    ids: entries.map(({ id }) => id).sort(),
    counts: await engine.query("counts", {}),
  };
}

/** Deletes jobs and forgets that, but for the newest event of the log. */
async function deleteAndForget({ env }: Deployment, ids: readonly string[]): Promise<void> {
  for (const id of ids) await env.command(id, remove);
  await env.create({ id: "newest" });
  env.clock.advance(1);
  expect(await env.engine.prune(env.now)).toBe(ids.length);
}

it("begins anew where deletions were forgotten that it had not read", async () => {
  const deployment = await Deployment.make();
  const { env } = deployment;
  for (const id of ["a", "b", "c"]) await env.create({ id });
  const away = await deployment.viewer("away.db");
  expect(await shown(away)).toMatchObject({ count: 3 });
  await away.close();
  await deleteAndForget(deployment, ["a", "b"]);
  const back = await deployment.viewer("away.db");
  onTestFinished(() => back.close());
  const before = await shown(back);
  expect(before).toMatchObject({ count: 2, ids: ["c", "newest"] });
  await back.rebuildView();
  expect(await shown(back)).toEqual(before);
});

it("begins a rebuild anew that has read of jobs whose deletion is forgotten before it is read", async () => {
  const deployment = await Deployment.make();
  const { env } = deployment;
  for (const id of ["a", "b", "c"]) await env.create({ id });
  const [read, goOn] = [signal(), signal()];
  const viewer = await deployment.viewer("rebuilt.db", () => {
    read.give();
    return goOn.given;
  });
  onTestFinished(() => viewer.close());
  const rebuilt = viewer.rebuildView();
  await read.given;
  await deleteAndForget(deployment, ["a", "b"]);
  goOn.give();
  await rebuilt;
  expect(await shown(viewer)).toMatchObject({ count: 2, ids: ["c", "newest"] });
});

it("goes on where it is when it has read what is forgotten", async () => {
  const deployment = await Deployment.make();
  const { env } = deployment;
  for (const id of ["a", "b"]) await env.create({ id });
  let batches = 0;
  const viewer = await deployment.viewer("own.db", async () => {
    batches += 1;
  });
  onTestFinished(() => viewer.close());
  await env.command("a", remove);
  await shown(viewer);
  await env.create({ id: "newest" });
  env.clock.advance(1);
  expect(await env.engine.prune(env.now)).toBe(1);
  await shown(viewer);
  const { position } = await viewer.viewStatus();
  const read = batches;
  await env.create({ id: "next" });
  expect(await shown(viewer)).toMatchObject({ ids: ["b", "newest", "next"] });
  expect((await viewer.viewStatus()).position).toBe(position + 1);
  // Not one more than for the new job.
  expect(batches).toBe(read + 1);
});

it("keeps the newest event of each service, so that no head falls", async () => {
  const { env, url, prefix } = await Deployment.make();
  const folder = await mkdtemp(join(tmpdir(), "millrace-forgotten-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const own = `${url}?prefix=${prefix}&service=shop&projection=file:${join(folder, "own.db")}`;
  const scoped = await openEngine(own, { clock: env.clock });
  onTestFinished(() => scoped.close());
  await env.create({ id: "a" });
  await env.command("a", remove);
  const head = await scoped.head();
  await env.create({ id: "elsewhere", service: "other" });
  env.clock.advance(1);
  expect(await env.engine.prune(env.now)).toBe(0);
  expect(await scoped.head()).toBe(head);
  await env.create({ id: "b" });
  expect(await env.engine.prune(env.now)).toBe(1);
});

it("lets retention reach what stands behind many jobs that are gone", async () => {
  const { env, url, prefix } = await Deployment.make();
  const { engine, clock } = env;
  const gone = await env.createMany(dutyBatchMax);
  for (const { id } of gone) await env.command(id, { command: "cancel" });
  clock.advance(1);
  await env.create({ id: "behind" });
  await env.command("behind", { command: "cancel" });
  expect(await engine.query("jobs", {})).toMatchObject({ count: dutyBatchMax + 1 });
  // Somebody has removed their logs by hand, so that the view shows what is not there.
  const { streams } = await jetstreamManager(await natsConnection(url));
  for (const { id } of gone)
    await streams.purge(`${prefix.toUpperCase()}_JOBS`, { filter: `${prefix}.jobs.*.*.${id}.>` });
  const runtime: Runtime = {
    ...{ engine, clock, ids: systemIds, logger: silentLogger, instance: "keeper", service: "shop" },
  };
  const contract = defineService("shop", {}, { retention: { cancelled: 1 } });
  clock.advance(10);
  await createKeeper({ runtime, contract }).tick();
  expect(await env.find("behind")).toBeNull();
});
