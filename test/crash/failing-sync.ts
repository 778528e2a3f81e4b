// A process whose disk does not take what is written (fsync-counter.c, FDATASYNC_FAILS): two creates one after the other,
// and what was said of each, as one line of JSON.
import { connect } from "millrace";
import { contract, noWork } from "./contract.js";

const [url = ""] = process.argv.slice(2);
const service = await connect(contract, { url });
const said: unknown[] = [];
for (let create = 0; create < 2; create++) {
  const created = await service.jobs.quick.create(noWork);
  said.push(
    created.isErr() ? { tag: created.error._tag, message: created.error.message } : "stored",
  );
}
console.log(JSON.stringify(said));
await service.stop();
