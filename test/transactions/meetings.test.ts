// What meets in PostgreSQL while a transaction of the caller's is open: claims by workers, clients that rename columns,
// and databases whose transactions see less than usual.
import { connect, defineJob, defineService } from "millrace";
import { Client } from "pg";
import postgres from "postgres";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { execute, freshDatabase, freshSchema } from "../support/postgres.js";
import { gate } from "../worker/workshop.js";

const stock = z.object({ branch: z.string() });

const contract = defineService("stock", {
  sync: defineJob({
    payload: stock,
    keyConcurrency: { key: ["/branch"] },
    queue: { maxQueuedPerKey: 1, whenFull: "replace-oldest" },
  }),
  report: defineJob({ payload: stock }),
});

const payload = { branch: "north" };

async function connected(url: string) {
  const service = await connect(contract, { url });
  onTestFinished(() => service.stop());
  return service;
}

/** A client after BEGIN. */
async function begun(url: string): Promise<Client> {
  const client = new Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  await client.query("BEGIN");
  return client;
}

it("a job that ends while it is to be replaced stays as it ended, and the line is looked at again", async () => {
  const { url, storeUrl } = await freshSchema();
  const [service, worker] = [await connected(storeUrl), await connected(storeUrl)];
  const held = gate();
  worker.jobs.sync.handle(({ id }) => (id === "first" ? undefined : held.opened));
  const first = await service.jobs.sync.create(payload, { id: "first" }).orThrow();
  const queued = await service.jobs.sync.create(payload).orThrow();

  const client = await begun(url);
  let hasEnded = false;
  const tx = {
    executeSql: async (text: string, values: readonly (string | number | null)[]) => {
      const { rows } = await client.query(text, [...values]);
      // The line has been looked at: now the first in it runs.
      if (!hasEnded && /UNION ALL SELECT r\.n, r\.id/.test(text)) {
        hasEnded = true;
        await worker.start();
        await first.wait().orThrow();
      }
      return rows;
    },
  };
  const submitted = await service.jobs.sync.submit(payload, { tx }).orThrow();
  await client.query("COMMIT");
  held.open();
  expect(hasEnded).toBe(true);
  expect(submitted.outcome).toBe("accepted");
  expect((await first.get().orThrow()).state).toBe("completed");
  await queued.wait().orThrow();
});

it.for([
  ["camel", postgres.camel],
  ["pascal", postgres.pascal],
  ["kebab", postgres.kebab],
] as const)(
  "a client that writes the names of columns in %s case holds keys and idempotency keys",
  async ([, transform]) => {
    const { url, storeUrl } = await freshSchema();
    const service = await connected(storeUrl);
    const sql = postgres(url, { transform });
    onTestFinished(() => sql.end());
    const once = { idempotencyKey: { key: "o-1", scope: "unfinished" } } as const;
    const outcomes = await sql.begin(async (tx) => {
      const told: string[] = [];
      for (let count = 0; count < 3; count++) {
        told.push((await service.jobs.sync.submit(payload, { tx }).orThrow()).outcome);
        told.push((await service.jobs.report.submit(payload, { tx, ...once }).orThrow()).outcome);
      }
      return told.join(" ");
    });
    expect(outcomes).toBe("accepted accepted accepted existing replaced existing");
  },
);

it("the store's own transactions see what others commit, whatever the database's default is", async () => {
  const url = await freshDatabase();
  const database = new URL(url).pathname.slice(1);
  const service = await connected(url);
  await service.stop();
  await execute(
    url,
    `ALTER DATABASE ${database} SET default_transaction_isolation = 'serializable'`,
    `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF current_setting('transaction_isolation') <> 'read committed' THEN RAISE 'not committed reads'; END IF;
      RETURN NEW; END $$`,
    `CREATE TRIGGER refuse BEFORE INSERT ON millrace.keys FOR EACH ROW EXECUTE FUNCTION refuse()`,
  );
  const again = await connected(url);
  const { outcome } = await again.jobs.sync.submit(payload).orThrow();
  expect(outcome).toBe("accepted");
});
