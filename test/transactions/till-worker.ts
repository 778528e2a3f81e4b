// A worker that is killed at one step of its first attempt: `till-worker.ts URL STEP [TABLE]`.
import Database from "better-sqlite3";
import { betterSqliteTransactions, connect, pgTransactions } from "millrace";
import { Pool } from "pg";
import { charging, postgresLedger, type Step, sqliteLedger, till } from "./till-contract.js";

const [, , url = "", step = "", table = ""] = process.argv;
let isWritten = false;

function reached(here: Step): void {
  isWritten ||= here === "written";
  if (here === step) process.kill(process.pid, "SIGKILL");
}

const service = url.startsWith("postgres:") ? await onPostgres() : await onSqlite();
await service.start();
await service.wait();

/** The connection as it is, which tells of the moments before and after the commit of a charge. */
async function onSqlite() {
  const db = new Database(url.slice("file:".length));
  const exec = db.exec.bind(db);
  db.exec = (statement) => {
    const isLast = isWritten && statement === "COMMIT";
    if (isLast) reached("settled, not committed");
    exec(statement);
    if (isLast) reached("committed");
    return db;
  };
  const transactions = betterSqliteTransactions(db);
  const connected = await connect(till, { url, transactions, keeper: false });
  connected.jobs.charge.handle(charging(sqliteLedger, reached));
  return connected;
}

async function onPostgres() {
  const pool = new Pool({ connectionString: url });
  pool.on("connect", (client) => {
    const query = client.query.bind(client) as (...values: unknown[]) => Promise<unknown>;
    const watched = async (...values: unknown[]) => {
      const isLast = isWritten && values[0] === "COMMIT";
      if (isLast) reached("settled, not committed");
      const answer = await query(...values);
      if (isLast) reached("committed");
      return answer;
    };
    client.query = watched as typeof client.query;
  });
  const transactions = pgTransactions(pool);
  const connected = await connect(till, { url, transactions, keeper: false });
  connected.jobs.charge.handle(charging(postgresLedger(table), reached));
  return connected;
}
