// Plain events become rows at once; whatever is not as usual is left to the way of all others.
import { describe, expect, it } from "vitest";
import type { JobEvent } from "#millrace/core/event.js";
import type { Known } from "#millrace/engine/projection/known.js";
import { plainChange } from "#millrace/engine/projection/plain.js";
import { onSqlite, type ProjectionTransaction } from "#millrace/engine/projection/transaction.js";

const slim: Known["slim"] = {
  n: 7,
  id: "job-1",
  lane: 1,
  rank: 0,
  runAt: 1_000,
  state: "pending",
  version: 1,
  run: 1,
  tries: 0,
  token: 0,
  deadline: null,
  updatedAt: 1_000,
  startedAt: null,
  detail: null,
  key: null,
  keyMax: null,
  noted: 0,
};
const waiting: Known = { service: "shop", slim, lease: null, worker: null, chainId: null };
const running: Known = {
  ...waiting,
  slim: { ...slim, state: "active", version: 2, tries: 1, token: 1, startedAt: 2_000 },
  lease: { until: 32_000, blocked: false },
  worker: "worker-1",
};

const envelope = {
  jobId: "job-1",
  service: "shop",
  type: "mail",
  run: 1,
  tries: 1,
  token: 1,
  actor: "worker:worker-1",
};
const started = { ...envelope, name: "started", version: 2, at: 2_000, worker: "worker-1" };
const completed = { ...envelope, name: "completed", version: 3, at: 3_000, state: "completed" };

function transaction(): ProjectionTransaction {
  return onSqlite({ now: 0, seq: 0, woke: {} } as Parameters<typeof onSqlite>[0]);
}

function change(known: Known | undefined, event: object) {
  return plainChange(transaction(), known, event as JobEvent, 32_000);
}

describe("a plain event", () => {
  it("starts a job: it leaves its line and has a lease", () => {
    const plain = change(waiting, started);
    expect(plain?.known).toEqual({
      ...running,
      slim: { ...running.slim, updatedAt: 2_000, noted: 1 },
    });
    expect(plain?.statements.map(({ sql }) => sql.split(" ", 3).join(" "))).toEqual([
      "DELETE FROM ready",
      "INSERT INTO leases",
    ]);
  });

  it("completes a job: its lease goes, and its end stands there", () => {
    const plain = change(running, completed);
    expect(plain?.known.slim).toMatchObject({ state: "completed", version: 3, updatedAt: 3_000 });
    expect(plain?.known.lease).toBeNull();
    expect(plain?.statements.map(({ sql }) => sql.split(" ", 3).join(" "))).toEqual([
      "DELETE FROM leases",
      "INSERT INTO ended",
    ]);
  });
});

describe("an event is left to the way of all others", () => {
  const cases: readonly (readonly [why: string, known: Known | undefined, event: object])[] = [
    ["of a job that is not known", undefined, started],
    ["of a job with a key", { ...waiting, slim: { ...slim, key: "hash" } }, started],
    ["of a job that waited for its time", { ...waiting, slim: { ...slim, runAt: 1_500 } }, started],
    ["of another service", waiting, { ...started, service: "bank" }],
    ["that comes out of order", waiting, { ...started, version: 3 }],
    ["under an old token", running, { ...completed, token: 0 }],
    ["without a token", running, { ...completed, token: undefined }],
    ["from a keeper", running, { ...completed, actor: "keeper:keeper-1" }],
    ["from nobody", running, { ...completed, actor: undefined }],
    ["that names no worker", waiting, { ...started, worker: undefined }],
    ["without a time", running, { ...completed, at: undefined }],
    ["that says another state than its name", running, { ...completed, state: "dead" }],
    ["with an aggregate", running, { ...completed, aggregate: { id: "a" } }],
    ["with an error", running, { ...completed, error: { message: "no" } }],
    ["of another name", running, { ...completed, name: "failed" }],
  ];
  it.each(cases)("%s", (_why, known, event) => {
    expect(change(known, event)).toBeNull();
  });
});
