// The admin runtime in trouble: what it lives from is late, silent or away. It says so, and never calls a change failed that
// was stored.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect, defineJob, defineService } from "millrace";
import { JobsClient, startAdmin } from "millrace/nats";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { systemIds } from "#millrace/client/ids.js";
import type { Engine } from "#millrace/engine/engine.js";
import { StoreBusy, StoreUnavailable } from "#millrace/engine/errors.js";
import { openEngine } from "#millrace/engine/open.js";
import { carryOut, type JobsBackend } from "#millrace/server/handlers.js";
import { FakeClock } from "#millrace/testing/fake-clock.js";
import { freshPrefix, natsConnection, ownNats } from "../support/nats.js";
import { ownPostgres } from "../support/postgres.js";

const shop = defineService("shop", { mail: defineJob({ payload: z.object({}) }) });

/** A store in memory with one job, and the calls over it, where some methods of its engine answer in another way. */
async function scene(changes: Partial<Engine> = {}, checks?: JobsBackend["checks"]) {
  const clock = new FakeClock();
  const engine = await openEngine("memory:", { clock });
  onTestFinished(() => engine.close());
  const service = await connect(shop, { engine });
  onTestFinished(() => service.stop());
  const { id } = await service.jobs.mail.create({}).orThrow();
  const told: object[] = [];
  const tell = (fields: object) => void told.push(fields);
  const troubled = new Proxy(engine, {
    get: (target, name) => {
      const found: unknown = Reflect.get(changes, name) ?? Reflect.get(target, name);
      return typeof found === "function" ? found.bind(target) : found;
    },
  });
  const backend: JobsBackend = {
    ...{ engine: troubled, clock, ids: systemIds, instance: "one", version: "1", startedAt: 0 },
    logger: { info: tell, warn: tell, error: tell },
    ...(checks && { checks }),
  };
  const call = (name: "Cancel" | "Health") =>
    carryOut(backend, name, name === "Cancel" ? { id } : {}, "admin:anna");
  return { call, clock, service, id, told };
}

const never = () => new Promise<never>(() => {});

/** Calls back when it is asked, and gives no answer. */
function silent() {
  let isAsked = () => {};
  const asked = new Promise<void>((resolve) => {
    isAsked = resolve;
  });
  const look = () => {
    isAsked();
    return never();
  };
  return { asked, look };
}

it("is unhealthy, with a failed check, where a check fails", async () => {
  const away = new StoreUnavailable({ url: "x:", message: "The database is away." });
  const { call, told } = await scene({}, () => Promise.reject(away));
  expect(await call("Health")).toMatchObject({
    status: "unhealthy",
    checks: [
      { name: "store", status: "ok" },
      { name: "checks", status: "failed", detail: "The database is away." },
    ],
  });
  expect(told).toEqual([]);
});

it("keeps for its log what callers are not to be told", async () => {
  const { call, told } = await scene({}, () => Promise.reject(new Error("secret")));
  const answer = await call("Health");
  expect(answer).toMatchObject({ checks: [{}, { name: "checks", status: "failed" }] });
  expect(JSON.stringify(answer)).not.toContain("secret");
  expect(told).toMatchObject([{ error: { message: "secret" } }]);
});

it("is unhealthy where the store or a check gives no answer", async () => {
  const { asked, look } = silent();
  const { call, clock } = await scene({ head: never }, look);
  const answer = call("Health");
  await asked;
  await clock.advance(5_000);
  const detail = "It has not answered within 5 s.";
  expect(await answer).toMatchObject({
    status: "unhealthy",
    checks: [
      { name: "store", status: "failed", detail },
      { name: "checks", status: "failed", detail },
    ],
  });
});

it.for([
  ["late", new StoreBusy({ url: "x:", message: "The read model is behind." })],
  ["away", new Error("The connection was lost.")],
] as const)("answers with what was stored where the views are %s", async ([, fault]) => {
  const { call, service, id, told } = await scene({ query: () => Promise.reject(fault) });
  expect(await call("Cancel")).toMatchObject({ job: { id, state: "cancelled", version: 2 } });
  expect(await service.ref(id).get().orThrow()).toMatchObject({ state: "cancelled" });
  expect(told).toMatchObject([{ error: { message: fault.message }, jobId: id }]);
});

it("answers after 5 s with the job as it is then, where the views are silent", async () => {
  const { asked, look } = silent();
  const { call, clock, service, id } = await scene({ query: look });
  const answer = call("Cancel");
  await asked;
  await service.ref(id).retry({ force: true }).orThrow();
  await clock.advance(5_000);
  expect(await answer).toMatchObject({ job: { id, state: "pending", run: 2, version: 3 } });
});

it("says that its view is away, and tends jobs nevertheless", async () => {
  const database = await ownPostgres();
  const { url, prefix, storeUrl } = await freshPrefix();
  const projection = encodeURIComponent(database.url);
  const admin = await startAdmin(`${storeUrl}&projection=${projection}`);
  onTestFinished(() => admin.stop());
  const folder = await mkdtemp(join(tmpdir(), "millrace-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const service = await connect(shop, { url: `${storeUrl}&projection=file:${folder}/shop.db` });
  onTestFinished(() => service.stop());
  const { id } = await service.jobs.mail.create({}).orThrow();
  const jobs = new JobsClient(await natsConnection(url), { prefix });
  expect(await jobs.health().orThrow()).toMatchObject({ status: "healthy" });
  await database.stop();
  expect(await jobs.health().orThrow()).toMatchObject({
    status: "unhealthy",
    checks: [
      { name: "store", status: "ok" },
      { name: "projection", status: "failed" },
    ],
  });
  expect(await jobs.cancel(id).orThrow()).toMatchObject({ job: { id, state: "cancelled" } });
  expect(await service.ref(id).get().orThrow()).toMatchObject({ state: "cancelled" });
});

it("leaves no connection behind where it cannot start", async () => {
  const server = await ownNats();
  const nowhere = encodeURIComponent("postgres://nobody@127.0.0.1:1/nothing");
  const starting = startAdmin(`${server.url}?projection=${nowhere}`);
  await expect(starting).rejects.toMatchObject({ _tag: "StoreUnavailable" });
  // The server learns of the end of a connection a moment later.
  await expect
    .poll(() => server.monitor("connz"), { timeout: 5_000 })
    .toMatchObject({ num_connections: 0 });
});
