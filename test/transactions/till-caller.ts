// A caller that competes with others: `till-caller.ts URL NAME [TABLE]`. It creates keyed and idempotent jobs together with
// rows of its own, and rolls some of its transactions back after the job was created.
import Database from "better-sqlite3";
import { connect, TransactionConflict } from "millrace";
import { Pool, type PoolClient } from "pg";
import { till } from "./till-contract.js";

const [, , url = "", name = "", table = ""] = process.argv;
const counters = 15;
const rounds = 3;

class Undone extends Error {}

/** What a create was told. */
interface Told {
  readonly outcome: string;
  readonly job?: { readonly id: string };
}

const service = await connect(till, { url, keeper: false });
const call = url.startsWith("postgres:") ? onPostgres() : onSqlite();
console.log("ready");
process.stdin.once("data", () => void callAll());

async function callAll(): Promise<void> {
  for (let round = 0; round < rounds; round++) await call(round);
  await service.stop();
  process.stdin.destroy();
}

const isUndone = (counter: number, round: number) => (counter + round) % 3 === 0;
const charge = (counter: number) => ({ orderId: String(counter), mode: "staged" }) as const;
const once = (counter: number) => ({ idempotencyKey: `once-${counter}` });

/** One transaction after the other, because nothing can be awaited inside. */
function onSqlite(): (round: number) => Promise<void> {
  const db = new Database(url.slice("file:".length));
  const note = db.prepare("INSERT INTO notes VALUES (?, ?, ?)");
  const attempt = (what: string, takesBack: boolean, submit: () => Told) => {
    const inTransaction = db.transaction(() => {
      const { outcome, job } = submit();
      if (outcome === "accepted") note.run(what, name, job?.id ?? "");
      if (takesBack) throw new Undone();
    });
    try {
      inTransaction.immediate();
    } catch (error) {
      if (!(error instanceof Undone)) throw error;
    }
  };
  const { open, charge: charges } = service.jobs;
  return async (round) => {
    for (let counter = 0; counter < counters; counter++) {
      const takesBack = isUndone(counter, round);
      attempt(`keyed-${counter}`, takesBack, () =>
        open.submitSync({ counter: String(counter) }, { tx: db }).unwrap(),
      );
      attempt(`once-${counter}`, takesBack, () =>
        charges.submitSync(charge(counter), { tx: db, ...once(counter) }).unwrap(),
      );
      // The other caller gets its turn.
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
    if (round === rounds - 1) db.close();
  };
}

/** As many transactions at once as there are connections, half of which see the database as it was when they began. */
function onPostgres(): (round: number) => Promise<void> {
  const pool = new Pool({ connectionString: url, max: 4 });
  const attempt = async (
    what: string,
    takesBack: boolean,
    submit: (tx: PoolClient) => Promise<Told>,
  ) => {
    const client = await pool.connect();
    const level = what.length % 2 === 0 ? "READ COMMITTED" : "REPEATABLE READ";
    for (let hasEnded = false; !hasEnded; ) {
      try {
        await client.query(`BEGIN ISOLATION LEVEL ${level}`);
        const { outcome, job } = await submit(client);
        if (outcome === "accepted")
          await client.query(`INSERT INTO ${table} VALUES ($1, $2, $3)`, [what, name, job?.id]);
        await client.query(takesBack ? "ROLLBACK" : "COMMIT");
        hasEnded = true;
      } catch (error) {
        if (!TransactionConflict.is(error)) throw error;
        await client.query("ROLLBACK");
      }
    }
    client.release();
  };
  const { open, charge: charges } = service.jobs;
  return async (round) => {
    const attempts = Array.from({ length: counters }, (_, counter) => [
      attempt(`keyed-${counter}`, isUndone(counter, round), (tx) =>
        open.submit({ counter: String(counter) }, { tx }).orThrow(),
      ),
      attempt(`once-${counter}`, isUndone(counter, round), (tx) =>
        charges.submit(charge(counter), { tx, ...once(counter) }).orThrow(),
      ),
    ]);
    await Promise.all(attempts.flat());
    if (round === rounds - 1) await pool.end();
  };
}
