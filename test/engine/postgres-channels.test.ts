// Wake-ups in schemas whose names are as long as PostgreSQL allows: the name of a channel may be no longer.
import { connect } from "millrace";
import { Client } from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { callerTransaction } from "#millrace/client/transactions/recognise.js";
import { openOutbox } from "#millrace/engine/open.js";
import { channelOf } from "#millrace/engine/postgres/wake.js";
import { contract, noWork } from "../crash/contract.js";
import { execute, freshSchema } from "../support/postgres.js";
import { gate } from "../worker/workshop.js";

/** The URL of a store in a schema whose name has 63 characters. */
async function longestSchema(): Promise<{ readonly server: string; readonly storeUrl: string }> {
  const { url, schema, storeUrl } = await freshSchema();
  const longest = schema.padEnd(63, "x");
  onTestFinished(async () => {
    await execute(url, `DROP SCHEMA IF EXISTS ${longest} CASCADE`);
  });
  const store = new URL(storeUrl);
  store.searchParams.set("schema", longest);
  return { server: url, storeUrl: store.href };
}

/** Waits until somebody listens, whose first call says so, and gives the next hint. */
async function heard(listen: (on: () => void) => unknown) {
  const [listening, hint] = [gate(), gate()];
  const calls = [listening.open, hint.open];
  listen(() => calls.shift()?.());
  await listening.opened;
  return { comes: hint.opened };
}

describe("a schema with the longest name", () => {
  it("wakes the workers of other processes", async () => {
    const { storeUrl } = await longestSchema();
    const [one, other] = [
      await connect(contract, { url: storeUrl }),
      await connect(contract, { url: storeUrl }),
    ];
    onTestFinished(() => one.stop());
    onTestFinished(() => other.stop());
    const hint = await heard((on) => other.engine.wake("ready", on));
    await one.jobs.quick.create(noWork).orThrow();
    await hint.comes;
  });

  it("wakes the relay of an outbox", async () => {
    const { server, storeUrl } = await longestSchema();
    const [one, other] = [await openOutbox(storeUrl), await openOutbox(storeUrl)];
    onTestFinished(() => one.close());
    onTestFinished(() => other.close());
    await one.provision();
    const client = new Client({ connectionString: server });
    await client.connect();
    onTestFinished(() => client.end());
    const hint = await heard((on) => other.wake(on));
    await client.query("BEGIN");
    const tx = callerTransaction(client);
    if (tx instanceof Error) throw tx;
    await one.put([{ service: "shop", body: "{}" }], tx);
    await client.query("COMMIT");
    await hint.comes;
  });

  it("has a channel of its own", () => {
    const [a, b] = ["a", "b"].map((end) => `${"x".repeat(62)}${end}`) as [string, string];
    const channels = [a, b].flatMap((schema) => [
      channelOf(schema),
      channelOf(schema, "millrace_outbox"),
    ]);
    expect(new Set(channels).size).toBe(4);
    expect(channels.every(({ length }) => length <= 63)).toBe(true);
    expect(channelOf("millrace")).toBe("millrace_millrace");
  });
});
