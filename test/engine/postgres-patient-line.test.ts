// Changes on PostgreSQL that wait for locks, on a clock that every try moves by as long as it waits.
import { expect, it, onTestFinished, vi } from "vitest";
import type { Change } from "#millrace/engine/engine.js";
import { StoreBusy } from "#millrace/engine/errors.js";
import { PatientLine } from "#millrace/engine/postgres/patient-line.js";
import type { Transactions } from "#millrace/engine/postgres/transactions.js";
import { gate } from "../worker/workshop.js";

const patienceMs = 5_000;
const roundMs = 1_000;
const appended = { outcome: "appended" } as const;

/** Nothing of a change counts here but the id of its job. */
const change = (id: string) => ({ job: { id } }) as unknown as Change;

/** Transactions on a server where somebody has locked one key for good, and another until a time. */
function locked(needOf: (id: string) => string, freeAt: number) {
  const again: Transactions["again"] = async (operation, options) => {
    const ids = operation(undefined as never) as unknown as readonly string[];
    const isFree = ids.every((id) => needOf(id) === "other") && performance.now() >= freeAt;
    if (isFree) return ids.map(() => appended) as never;
    vi.advanceTimersByTime(options?.lockMs ?? 0);
    throw Object.assign(new Error("canceling statement due to lock timeout"), { code: "55P03" });
  };
  const faultOf = async () => new StoreBusy({ url: "postgres:", message: "locked" });
  return { again, faultOf } as unknown as Transactions;
}

it("many that are told of a lock hold up nobody who waits for another", async () => {
  vi.useFakeTimers({ toFake: ["performance"] });
  onTestFinished(() => void vi.useRealTimers());
  const needOf = (id: string) => (id.startsWith("hot") ? "hot" : "other");
  const line = new PatientLine({
    transactions: locked(needOf, performance.now() + 2 * roundMs + patienceMs - 1),
    needOf: ({ job }) => needOf(job.id),
    // What is to be done is told by its ids.
    perform: ((_tx: unknown, items: readonly { readonly job: { readonly id: string } }[]) =>
      items.map(({ job }) => job.id)) as never,
    turnsMax: 1,
  });
  const count = 500;
  let told = 0;
  const hot = Array.from({ length: count }, async (_, index) => {
    const [outcome] = await line.call([change(`hot-${index}`)]);
    told += 1;
    return outcome;
  });
  // It came later, and gets what it waits for when most of the others have waited for too long.
  vi.advanceTimersByTime(2 * roundMs);
  const [outcome] = await line.call([change("other")]);
  expect(outcome).toEqual(appended);
  expect(told).toBeGreaterThan(0);
  expect(told).toBeLessThan(count);
  for (const outcome of await Promise.all(hot))
    expect(outcome).toMatchObject({ error: { _tag: "StoreBusy" } });
});

it("who waits keeps its place in the server's line while others have a connection left", async () => {
  vi.useFakeTimers({ toFake: ["performance"] });
  onTestFinished(() => void vi.useRealTimers());
  const freed = gate();
  const waits: (number | undefined)[] = [];
  const again: Transactions["again"] = async (operation, options) => {
    const [id] = operation(undefined as never) as unknown as readonly string[];
    waits.push(options?.lockMs);
    if (id === "hot") await freed.opened;
    return [appended] as never;
  };
  const line = new PatientLine({
    transactions: { again } as unknown as Transactions,
    needOf: ({ job }) => job.id,
    perform: ((_tx: unknown, items: readonly Change[]) => items.map(({ job }) => job.id)) as never,
    turnsMax: 2,
  });
  const hot = line.call([change("hot")]);
  expect(await line.call([change("other")])).toEqual([appended]);
  expect(waits).toEqual([patienceMs, roundMs]);
  freed.open();
  expect(await hot).toEqual([appended]);
});
