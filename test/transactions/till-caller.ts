// A caller that competes with others: `till-caller.ts PATH NAME`. It creates keyed and idempotent jobs together with
// rows of its own, and rolls some of its transactions back after the job was created.
import Database from "better-sqlite3";
import { connect } from "millrace";
import { till } from "./till-contract.js";

const [, , path = "", name = ""] = process.argv;
const counters = 15;
const rounds = 3;

class Undone extends Error {}

const service = await connect(till, { url: `file:${path}`, keeper: false });
const db = new Database(path);
const note = db.prepare("INSERT INTO notes VALUES (?, ?, ?)");
console.log("ready");
process.stdin.once("data", () => void call());

async function call(): Promise<void> {
  for (let round = 0; round < rounds; round++) {
    for (let counter = 0; counter < counters; counter++) {
      const isUndone = (counter + round) % 3 === 0;
      attempt(`keyed-${counter}`, isUndone, () =>
        service.jobs.open.submitSync({ counter: String(counter) }, { tx: db }).unwrap(),
      );
      attempt(`once-${counter}`, isUndone, () =>
        service.jobs.charge
          .submitSync(
            { orderId: String(counter), mode: "staged" },
            { tx: db, idempotencyKey: `once-${counter}` },
          )
          .unwrap(),
      );
      // The other caller gets its turn.
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
  }
  db.close();
  await service.stop();
  process.stdin.destroy();
}

/** Writes down which job a transaction created, in that transaction. */
function attempt(
  what: string,
  isUndone: boolean,
  submit: () => { readonly outcome: string; readonly job?: { readonly id: string } },
): void {
  const inTransaction = db.transaction(() => {
    const { outcome, job } = submit();
    if (outcome === "accepted") note.run(what, name, job?.id ?? "");
    if (isUndone) throw new Undone();
  });
  try {
    inTransaction.immediate();
  } catch (error) {
    if (!(error instanceof Undone)) throw error;
  }
}
