// A relay in a process of its own: `relay-child.ts STORE OUTBOX STEP`. It is killed at one step of its work,
// or publishes until somebody else kills it when the step is "none".
import { connect } from "millrace";
import type { Change } from "#millrace/engine/engine.js";
import { openEngine } from "#millrace/engine/open.js";
import { changed, shop } from "./shop-contract.js";

const [, , store = "", outbox = "", step = ""] = process.argv;

function reached(here: string): void {
  if (here === step) process.kill(process.pid, "SIGKILL");
}

const engine = await openEngine(store);
const append = async (changes: readonly Change[]) => {
  reached("taken");
  // Some of what was taken is published, and the rest is not.
  if (step === "half published") await engine.append(changes.slice(0, changes.length / 2));
  reached("half published");
  const answers = await engine.append(changes);
  reached("published");
  return answers;
};
const capabilities = { ...engine.capabilities, transactions: false };
const service = await connect(shop, {
  engine: changed(engine, { append, capabilities }),
  outbox,
  keeper: { ttlMs: 300, renewMs: 100, tickMs: 50 },
});
await service.start();
console.log("ready");
await service.wait();
