/**
 * The read model's view of concurrency keys.
 */
import { compareOrder } from "../../core/order.js";
import {
  type KeyCount,
  type KeyHolder,
  type KeyRow,
  type Page,
  pageDefault,
  pageMax,
  type Queries,
} from "../query.js";
import { compareText } from "./job-rows.js";
import { copy, type Entry, isWaiting, type KeyState, type Store } from "./store.js";

/** A page of keys, the one used last first. */
export function listKeys(store: Store, ask: Queries["keys"]["ask"]): Page<KeyRow> {
  const { service, type, limit = pageDefault, offset = 0 } = ask;
  const matching = [...store.keys.values()]
    .filter((key) => (service ?? key.service) === key.service && (type ?? key.type) === key.type)
    .sort(
      (a, b) => (b.lastOutcome?.at ?? 0) - (a.lastOutcome?.at ?? 0) || compareText(a.hash, b.hash),
    );
  const shown = matching.slice(offset, offset + limit);
  const nextOffset = offset + shown.length;
  return {
    entries: shown.map((key) => keyRow(store, key)),
    count: matching.length,
    offset,
    limit,
    ...(nextOffset < matching.length ? { nextOffset } : null),
  };
}

/** The types of which a job waits under a key, or a key is blocked. */
export function countKeys(store: Store): readonly KeyCount[] {
  const counts = new Map<string, { -readonly [Name in keyof KeyCount]: KeyCount[Name] }>();
  for (const key of store.keys.values()) {
    const { service, type, queuedCount, blocked } = keyRow(store, key);
    const name = `${service}/${type}`;
    const count = counts.get(name) ?? { service, type, waiting: 0, blocked: 0 };
    count.waiting += queuedCount;
    count.blocked += blocked ? 1 : 0;
    if (count.waiting + count.blocked > 0) counts.set(name, count);
  }
  return [...counts.values()].sort(
    (a, b) => compareText(a.service, b.service) || compareText(a.type, b.type),
  );
}

/** One key and what goes on under it. */
export function keyRow(store: Store, key: KeyState): KeyRow {
  const members = [...key.members.values()];
  const queued = members
    .filter(({ job, line }) => job.state !== "active" && line !== "ready")
    .sort(slotOrder(store.now()));
  const { service, type, hash, maxActive, maxQueued, whenFull, takeovers, lastOutcome } = key;
  return copy({
    ...{ service, type, key: key.key, hash, maxActive, maxQueued, whenFull },
    active: [...holders(store, key)],
    queued: queued.slice(0, pageMax).map(({ job }) => job.id),
    queuedCount: queued.length,
    blocked: members.some(({ job }) => job.keyBlocked === true),
    takeovers,
    ...(lastOutcome && { lastOutcome }),
  });
}

function* holders(store: Store, key: KeyState): Iterable<KeyHolder> {
  for (const { job, line } of key.members.values()) {
    // A slot is reserved for the token that the job will start under.
    if (line === "ready") yield { jobId: job.id, state: "reserved", token: job.token + 1 };
  }
  for (const { job, token, worker, heartbeatAt, leaseUntil, ended } of key.attempts) {
    if (!ended) yield { jobId: job.id, state: "active", token, worker, heartbeatAt, leaseUntil };
    else if (leaseUntil > store.now()) yield { jobId: job.id, state: "ended", token, leaseUntil };
  }
}

/** Who gets a slot first: due jobs in the order of claims, then those that wait for their time, then blocked ones. */
function slotOrder(now: number): (a: Entry, b: Entry) => number {
  const rank = ({ job }: Entry) => (!isWaiting(job) ? 2 : job.runAt > now ? 1 : 0);
  const waitsUntil = ({ job }: Entry) => Math.max(job.runAt, now);
  return (a, b) => rank(a) - rank(b) || waitsUntil(a) - waitsUntil(b) || compareOrder(a.job, b.job);
}
