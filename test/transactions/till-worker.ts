// A worker that is killed at one step of its first attempt: `till-worker.ts PATH STEP`.
import Database from "better-sqlite3";
import { betterSqliteTransactions, connect } from "millrace";
import { charging, type Step, till } from "./till-contract.js";

const [, , path = "", step = ""] = process.argv;
const db = new Database(path);
let isWritten = false;

function reached(here: Step): void {
  isWritten ||= here === "written";
  if (here === step) process.kill(process.pid, "SIGKILL");
}

// The connection as it is, which tells of the moments before and after the commit of a charge.
const exec = db.exec.bind(db);
db.exec = (statement) => {
  const isLast = isWritten && statement === "COMMIT";
  if (isLast) reached("settled, not committed");
  exec(statement);
  if (isLast) reached("committed");
  return db;
};

const service = await connect(till, {
  url: `file:${path}`,
  transactions: betterSqliteTransactions(db),
  keeper: false,
});
service.jobs.charge.handle(charging(reached));
await service.start();
await service.wait();
