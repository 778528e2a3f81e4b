// A process that opens a store and creates jobs until it has made enough or the store refuses:
// `opener.ts URL JOBS BYTES [nobody]`. It waits for a line before it opens the store, so that several
// can begin at the same moment, and prints what happened.
import { once } from "node:events";
import { createInterface } from "node:readline";
import { connect, isStoreError, type JobRef } from "millrace";
import { contract, noWork } from "./contract.js";

/** What the process prints. */
export interface OpenerReport {
  readonly created: readonly string[];
  /** The id of the create that the store refused. */
  readonly refused?: string;
  readonly fault?: { readonly tag: string; readonly message: string };
}

/** The user that may write nothing, for stores that may not be written. */
const nobody = 65_534;

const [, , url = "", jobs = "0", bytes = "0", user] = process.argv;
const input = createInterface({ input: process.stdin });
console.log("ready");
await once(input, "line");
input.close();
if (user === "nobody" && process.getuid?.() === 0) process.seteuid?.(nobody);

const created: string[] = [];
let report: OpenerReport = { created };
try {
  const service = await connect(contract, { url });
  for (let count = 0; count < Number(jobs) && report.fault === undefined; count++) {
    const id = `job-${process.pid}-${count}`;
    const payload = { ...noWork, key: "x".repeat(Number(bytes)) };
    const outcome = await service.jobs.quick.create(payload, { id });
    if (outcome.isOk()) created.push((outcome.value satisfies JobRef<unknown, unknown>).id);
    else
      report = {
        created,
        refused: id,
        fault: { tag: outcome.error._tag, message: outcome.error.message },
      };
  }
  await service.stop();
} catch (error) {
  if (!isStoreError(error)) throw error;
  report = { created, fault: { tag: error._tag, message: error.message } };
}
console.log(JSON.stringify(report));
