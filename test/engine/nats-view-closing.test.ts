// Closing a store on JetStream while somebody waits for its view, which another process leads and never brings up to date.
import Database from "better-sqlite3";
import { openEngine } from "millrace";
import { Environment, MovableClock } from "millrace/conformance";
import { expect, it, onTestFinished } from "vitest";
import { openNats } from "#millrace/engine/nats/open.js";
import { freshStoreUrl } from "../support/nats.js";

/** A store with a job that its view does not show. */
async function storeLedElsewhere(clock: MovableClock) {
  const url = await freshStoreUrl();
  const first = await openEngine(url, { clock });
  await first.query("counts", {});
  await first.close();
  const view = new Database(new URL(url).searchParams.get("projection")?.replace("file:", ""));
  view.prepare("UPDATE projection SET leader = 'another', leader_until = ?").run(2 ** 50);
  onTestFinished(() => void view.close());
  const engine = await openNats(url, { clock });
  onTestFinished(() => engine.close());
  const open = () => Promise.reject(new Error("One engine is enough here."));
  await new Environment(engine, clock, open).create();
  return engine;
}

it("ends a rebuild at once, whose rest is up to the next process", async () => {
  const engine = await storeLedElsewhere(new MovableClock());
  const rebuilding = expect(engine.rebuildView()).rejects.toMatchObject({ _tag: "StoreClosed" });
  await engine.close();
  await rebuilding;
});

it("ends questions after a second, whatever they wait for", async () => {
  const clock = new MovableClock();
  const engine = await storeLedElsewhere(clock);
  const asking = expect(engine.query("jobs", {})).rejects.toMatchObject({ _tag: "StoreClosed" });
  const closed = engine.close();
  clock.advance(1_000);
  await closed;
  await asking;
});
