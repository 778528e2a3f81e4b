// The accepted contract of a service: updates are stored, migrations need consent, earlier processes change nothing.
import {
  type ConnectOptions,
  connect,
  defineJob,
  defineService,
  type JobOptions,
  type Json,
  MigrationNotAccepted,
  manifest,
  type Service,
  type ServiceContract,
} from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { recordId } from "#millrace/engine/record.js";
import { freshStoreUrl } from "../support/nats.js";
import { newSchema } from "../support/postgres.js";
import { type Store, stores } from "../support/stores.js";
import type { LoggedLine } from "../worker/workshop.js";

function shop(options: JobOptions = {}) {
  return defineService("shop", {
    send: defineJob({ payload: z.object({ tenant: z.string() }), ...options }),
  });
}

const first = shop();
const update = shop({ priority: 5 });
const migration = shop({ retry: { maxTries: 2 } });

const postgres: Store = {
  name: "postgres",
  freshUrl: async () => {
    const { url, remove } = await newSchema();
    onTestFinished(remove);
    return url;
  },
};

const jetstream: Store = {
  name: "jetstream",
  freshUrl: freshStoreUrl,
};

/** Services on one store. A store in memory is shared by sharing its engine. */
async function opener(store: Store) {
  const url = await store.freshUrl();
  const base = await connect(first, { url });
  onTestFinished(() => base.stop());
  return async (contract: ServiceContract, options: ConnectOptions = {}): Promise<Service> => {
    const place = url === "memory:" ? { engine: base.engine } : { url };
    const service = await connect(contract, { ...place, ...options });
    onTestFinished(() => service.stop());
    return service as unknown as Service;
  };
}

async function acceptedSignature(service: Service): Promise<string | undefined> {
  return (await service.contract.accepted().orThrow())?.manifest.signature;
}

async function refusedMigration(service: Service): Promise<string> {
  const refused = await service.start().then(
    () => null,
    (error: unknown) => error,
  );
  expect(refused).toBeInstanceOf(MigrationNotAccepted);
  return (refused as MigrationNotAccepted).migration;
}

function loggerInto(lines: LoggedLine[]) {
  const log = (level: LoggedLine["level"]) => (fields: object, message: string) => {
    lines.push({ level, fields: fields as LoggedLine["fields"], message });
  };
  return { info: log("info"), warn: log("warn"), error: log("error") };
}

describe.for([...stores, postgres, jetstream])("the contract of a service on $name", (store) => {
  it("is stored by the first process that starts, not by one that only creates", async () => {
    const open = await opener(store);
    const creator = await open(first);
    await creator.untyped.create("send", { tenant: "a" }).orThrow();
    expect(await creator.contract.accepted().orThrow()).toBeNull();
    expect(await creator.contract.standing().orThrow()).toEqual({ standing: "first" });
    const worker = await open(first, { instance: "w1" });
    await worker.start();
    expect(await creator.contract.accepted().orThrow()).toMatchObject({
      manifest: manifest(first),
      acceptedBy: "w1",
      earlier: [],
    });
    expect(await creator.contract.standing().orThrow()).toEqual({ standing: "accepted" });
  });

  it("takes updates silently and keeps the way back open", async () => {
    const open = await opener(store);
    await (await open(first)).start();
    const next = await open(update);
    expect(await next.contract.standing().orThrow()).toMatchObject({
      standing: "update",
      diff: { changes: [{ path: "jobs.send@1.priority", before: 0, after: 5 }], migration: null },
    });
    await next.start();
    expect(await next.contract.accepted().orThrow()).toMatchObject({
      manifest: { signature: manifest(update).signature },
      earlier: [manifest(first).signature],
    });
  });

  it("refuses a migration with all its changes, and stores it once it is accepted", async () => {
    const open = await opener(store);
    await (await open(first)).start();
    const both = shop({ retry: { maxTries: 2 }, priority: 5 });
    const refused = await open(both);
    const name = await refusedMigration(refused);
    await expect(refused.start()).rejects.toMatchObject({
      _tag: "MigrationNotAccepted",
      service: "shop",
      changes: [{ kind: "migration" }, { kind: "update" }],
    });
    await expect(refused.start()).rejects.toThrow(
      `send@1: retry.maxTries goes from 5 to 2: jobs are given up after fewer tries.\nIf that is intended, accept it: connect(contract, { acceptMigration: "${name}" }).`,
    );
    expect(await acceptedSignature(refused)).toBe(manifest(first).signature);
    await refusedMigration(await open(both, { acceptMigration: "0123456789abcdef" }));
    const accepted = await open(both, { acceptMigration: name });
    await accepted.start();
    expect(await acceptedSignature(accepted)).toBe(manifest(both).signature);
    await (await open(both)).start();
  });

  it("refuses to keep jobs of types that it does not name for a shorter time", async () => {
    const open = await opener(store);
    const keeping = (completed: number) => defineService("shop", {}, { retention: { completed } });
    await (await open(keeping(2_000))).start();
    await (await open(keeping(3_000))).start();
    const refused = await open(keeping(1_000));
    const name = await refusedMigration(refused);
    await expect(refused.start()).rejects.toMatchObject({
      changes: [{ path: "retention.completed", before: 3_000, after: 1_000, kind: "migration" }],
    });
    await (await open(keeping(1_000), { acceptMigration: name })).start();
    expect(await acceptedSignature(refused)).toBe(manifest(keeping(1_000)).signature);
  });

  it("is not flipped back by an earlier process that starts again, whatever that one accepts", async () => {
    const open = await opener(store);
    await (await open(migration)).start();
    const there = await refusedMigration(await open(shop({ retry: { maxTries: 1 } })));
    await (await open(shop({ retry: { maxTries: 1 } }), { acceptMigration: there })).start();
    const signature = manifest(shop({ retry: { maxTries: 1 } })).signature;
    const lines: LoggedLine[] = [];
    const earlier = await open(migration, { logger: loggerInto(lines), acceptMigration: there });
    expect(await earlier.contract.standing().orThrow()).toMatchObject({ standing: "earlier" });
    await earlier.start();
    expect(await acceptedSignature(earlier)).toBe(signature);
    expect(lines.filter(({ level }) => level === "warn")).toMatchObject([
      { message: "This process runs an earlier contract than the accepted one." },
    ]);
  });

  it("goes back to an earlier one by hand, and not forth again by itself", async () => {
    const open = await opener(store);
    await (await open(first)).start();
    const there = await refusedMigration(await open(migration));
    await (await open(migration, { acceptMigration: there })).start();
    const back = await open(first);
    await back.start();
    await back.contract.accept().orThrow();
    expect(await acceptedSignature(back)).toBe(manifest(first).signature);
    await (await open(migration, { acceptMigration: there })).start();
    expect(await acceptedSignature(back)).toBe(manifest(first).signature);
  });

  it("is stored once when ten processes start at once, and refused to all of them alike", async () => {
    const open = await opener(store);
    const ten = (contract: typeof first, options: ConnectOptions = {}) =>
      Promise.all(Array.from({ length: 10 }, () => open(contract, options)));
    const services = await ten(first);
    await Promise.all(services.map((service) => service.start()));
    const version = async () => {
      const [record] = await (await open(first)).engine.records([recordId.contract("shop")]);
      return record?.version;
    };
    expect(await version()).toBe(1);
    const refused = await Promise.all((await ten(migration)).map(refusedMigration));
    expect(new Set(refused).size).toBe(1);
    const accepting = await ten(migration, { acceptMigration: refused[0] as string });
    await Promise.all([
      ...accepting.map((service) => service.start()),
      ...(await ten(first)).map((service) => service.start()),
    ]);
    expect(await version()).toBe(2);
    expect(await acceptedSignature(accepting[0] as Service)).toBe(manifest(migration).signature);
  });
});

const [memory] = stores;
if (memory === undefined) throw new Error("There is a store in memory.");

it("says nothing of an earlier contract that does no harm", async () => {
  const open = await opener(memory);
  await (await open(first)).start();
  await (await open(update)).start();
  const lines: LoggedLine[] = [];
  await (await open(first, { logger: loggerInto(lines) })).start();
  expect(lines.filter(({ level }) => level === "warn")).toEqual([]);
});

it("is left alone by a version of Millrace that cannot read it", async () => {
  const open = await opener(memory);
  const service = await open(first);
  const id = recordId.contract("shop");
  const body = { manifest: { manifest: 99, service: "shop" } };
  await service.engine.swap([{ id, expect: 0, body }]);
  await service.start();
  expect((await service.engine.records([id]))[0]?.version).toBe(1);
  expect(await service.contract.standing().orThrow()).toEqual({ standing: "unreadable" });
  for (const read of [await service.contract.accepted(), await service.contract.accept()]) {
    expect(read.isErr() && read.error).toMatchObject({ _tag: "StoreTooNew", found: 99, known: 1 });
  }
});

const own = manifest(first);
const acceptance = { acceptedAt: 1, acceptedBy: "somebody", earlier: [] };
const [send] = own.jobs;
const strange = { ...send, settings: { ...send?.settings, backoff: "bogus" } };

it.each([
  { what: "a setting", manifest: { ...own, jobs: [strange] }, says: '"bogus" is not a backoff' },
  { what: "a job type", manifest: { ...own, jobs: [null] }, says: "manifest.jobs.0 is missing" },
  { what: "everything", manifest: "nothing", says: "manifest.manifest is missing" },
])("is refused, shown and replaced where $what of the stored one is broken", async (broken) => {
  const open = await opener(memory);
  const service = await open(update);
  const id = recordId.contract("shop");
  const body = { ...acceptance, manifest: broken.manifest } as unknown as Json;
  await service.engine.swap([{ id, expect: 0, body }]);
  const standing = await service.contract.standing().orThrow();
  const sentence = expect.stringContaining(broken.says);
  expect(standing).toMatchObject({ standing: "migration", diff: { changes: [{ sentence }] } });
  const named = await refusedMigration(service);
  expect(named).toBe(standing.standing === "migration" && standing.migration);
  await service.contract.accept().orThrow();
  expect(await acceptedSignature(service)).toBe(manifest(update).signature);
  await service.engine.swap([{ id, expect: 2, body }]);
  await (await open(update, { acceptMigration: named })).start();
  expect(await acceptedSignature(service)).toBe(manifest(update).signature);
});

it("says so when the stored one is asked for and is none", async () => {
  const service = await (await opener(memory))(first);
  const id = recordId.contract("shop");
  await service.engine.swap([{ id, expect: 0, body: [] }]);
  const read = await service.contract.accepted();
  expect(read.isErr() && read.error).toMatchObject({ _tag: "StoreCorrupt" });
});

it("forgets the oldest of a hundred earlier ones", async () => {
  const open = await opener(memory);
  for (let priority = 0; priority <= 101; priority++)
    await (await open(shop({ priority }))).start();
  const accepted = await (await open(first)).contract.accepted().orThrow();
  expect(accepted?.earlier).toHaveLength(100);
  expect(accepted?.earlier[0]).toBe(manifest(shop({ priority: 100 })).signature);
});

it("may be 512 KiB as JSON", async () => {
  const open = await opener(memory);
  const payload = z.object({ tenant: z.string().describe("x".repeat(600_000)) });
  const huge = defineService("shop", { send: defineJob({ payload }) });
  await expect((await open(huge as typeof first)).start()).rejects.toMatchObject({
    _tag: "InvalidDefinition",
    field: "jobs",
  });
});
