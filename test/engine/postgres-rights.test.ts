// Users who may not do everything on a PostgreSQL store: each message names the right that is missing and who lacks it,
// what it says to grant suffices, and a caller's transaction outlives the refusal.
import { connect, defineJob, defineService, openEngine, type StoreError } from "millrace";
import { Client } from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { openPostgresOutbox } from "#millrace/engine/postgres/outbox.js";
import { execute, type FreshSchema, freshDatabase, freshSchema } from "../support/postgres.js";

const contract = defineService("shop", {
  ship: defineJob({ payload: z.object({ orderId: z.string() }) }),
});
const payload = { orderId: "o-1" };

/** A user who may connect and no more. */
async function newUser({ storeUrl, url }: FreshSchema) {
  const name = `user_${process.hrtime.bigint()}`;
  await execute(url, `CREATE ROLE ${name} LOGIN PASSWORD 'known'`);
  onTestFinished(async () => {
    await execute(url, `DROP OWNED BY ${name}`, `DROP ROLE ${name}`);
  });
  const as = (of: string) => Object.assign(new URL(of), { username: name, password: "known" }).href;
  return { name, storeUrl: as(storeUrl), url: as(url) };
}

/** A store that the superuser has made. */
async function openStore() {
  const place = await freshSchema();
  const service = await connect(contract, { url: place.storeUrl });
  onTestFinished(() => service.stop());
  return { ...place, service, user: await newUser(place) };
}

async function faultOfOpening(url: string): Promise<StoreError> {
  try {
    await (await openEngine(url)).close();
  } catch (error) {
    return error as StoreError;
  }
  throw new Error("Nothing went wrong.");
}

/** The statements that a message says to run. */
function grantsIn(message: string): readonly string[] {
  return message.match(/GRANT [^;]+;/g) ?? [];
}

describe("a user of the store", () => {
  it("who may not make the schema is told to ask for CREATE on the database", async () => {
    const place = await freshSchema();
    const user = await newUser(place);
    const fault = await faultOfOpening(user.storeUrl);
    expect(fault._tag).toBe("StoreUnavailable");
    expect(fault.message).toMatch(/may not make the schema .*Grant CREATE on the database/);

    const outbox = await openPostgresOutbox(user.storeUrl);
    onTestFinished(() => outbox.close());
    await expect(outbox.provision()).rejects.toThrow(/Grant CREATE on the database/);
  });

  it("who may not connect to the database is told what its owner grants, and that suffices", async () => {
    const place = await freshSchema();
    const user = await newUser(place);
    const own = new URL(await freshDatabase());
    const name = own.pathname.slice(1);
    await execute(own.href, `REVOKE CONNECT ON DATABASE ${name} FROM PUBLIC`);
    onTestFinished(() => execute(own.href, `DROP OWNED BY ${user.name}`).then(() => {}));
    const url = Object.assign(own, { username: user.name, password: "known" }).href;
    const { _tag, message } = await faultOfOpening(url);
    expect(_tag).toBe("StoreUnavailable");
    expect(message).not.toContain("SCHEMA");
    expect(grantsIn(message)).toEqual([`GRANT CONNECT ON DATABASE "${name}" TO "${user.name}";`]);
    await execute(place.url, ...grantsIn(message));
    expect((await faultOfOpening(url)).message).toMatch(/Grant CREATE on the database/);
  });

  it("who was given a schema needs no right on the database", async () => {
    const place = await freshSchema();
    const user = await newUser(place);
    await execute(place.url, `CREATE SCHEMA ${place.schema} AUTHORIZATION ${user.name}`);
    const service = await connect(contract, { url: user.storeUrl });
    onTestFinished(() => service.stop());
    await service.jobs.ship.create(payload).orThrow();
    const outbox = await openPostgresOutbox(user.storeUrl);
    onTestFinished(() => outbox.close());
    await outbox.provision();
  });

  it("who may not change the schema is sent to its owner", async () => {
    const { url, schema, user } = await openStore();
    await execute(
      url,
      `GRANT ALL ON SCHEMA ${schema} TO ${user.name}`,
      `GRANT ALL ON ALL TABLES IN SCHEMA ${schema} TO ${user.name}`,
      `UPDATE ${schema}.store SET version = version - 1`,
    );
    const fault = await faultOfOpening(user.storeUrl);
    expect(fault._tag).toBe("StoreUnavailable");
    expect(fault.message).toMatch(/may not make or change tables .*Connect once as the owner/);
  });

  it("who may not use the schema is told what its owner grants, and that suffices", async () => {
    const { url, user } = await openStore();
    const { _tag, message } = await faultOfOpening(user.storeUrl);
    expect(_tag).toBe("StoreUnavailable");
    expect(message).not.toContain("CREATE");
    await execute(url, ...grantsIn(message));
    const service = await connect(contract, { url: user.storeUrl });
    onTestFinished(() => service.stop());
    service.jobs.ship.handle(() => {});
    await service.start();
    const ref = await service.jobs.ship.create(payload, { idempotencyKey: "k" }).orThrow();
    await ref.wait().orThrow();
    await ref.delete().orThrow();
  });
});

describe("the user of a caller's transaction", () => {
  /** A transaction of a user who has done something before. */
  async function begin({ user }: Awaited<ReturnType<typeof openStore>>) {
    const client = new Client({ connectionString: user.url });
    await client.connect();
    onTestFinished(() => client.end());
    await client.query("BEGIN");
    await client.query("CREATE TEMPORARY TABLE orders AS SELECT 'o-1' AS id");
    return client;
  }

  it("who may not use the schema is named, with what suffices, and the transaction goes on", async () => {
    const store = await openStore();
    const { service, user } = store;
    const client = await begin(store);
    const refused = await service.jobs.ship.create(payload, { tx: client });
    if (refused.isOk()) throw new Error("It was not refused.");
    expect(refused.error).toMatchObject({ _tag: "TransactionRefused", reason: "not_permitted" });
    expect(refused.error.message).toContain(`The transaction's user "${user.name}" lacks rights`);
    expect((await client.query("SELECT id FROM orders")).rows).toEqual([{ id: "o-1" }]);

    await execute(store.url, ...grantsIn(refused.error.message));
    const ref = await service.jobs.ship.create(payload, { tx: client }).orThrow();
    await client.query("COMMIT");
    expect((await ref.get().orThrow()).state).toBe("pending");
  });

  it("who may read but not write is named, too, and the transaction goes on", async () => {
    const store = await openStore();
    const { service, user, schema } = store;
    await execute(
      store.url,
      `GRANT USAGE ON SCHEMA ${schema} TO ${user.name}`,
      `GRANT SELECT ON ALL TABLES IN SCHEMA ${schema} TO ${user.name}`,
    );
    const client = await begin(store);
    const refused = await service.jobs.ship.create(payload, { tx: client });
    expect(refused.isErr() && refused.error).toMatchObject({
      reason: "not_permitted",
      message: expect.stringMatching(`"${user.name}" lacks rights .*permission denied.*GRANT`),
    });
    expect((await client.query("SELECT id FROM orders")).rows).toEqual([{ id: "o-1" }]);
  });
});
