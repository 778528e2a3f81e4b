// Everything that a read model answers, in a form in which engines and projections can be compared.

import type { JobEvent } from "#millrace/core/event.js";
import { jobStates } from "#millrace/core/job.js";
import type { DueAsk, Engine } from "#millrace/engine/engine.js";
import type { LoggedEvent } from "#millrace/engine/projection/entry.js";
import type { KeyRow, Page } from "#millrace/engine/query.js";

export type Views = Pick<Engine, "query" | "due">;

const service = "shop";

/** Small, so that lists have several pages. */
const pageSize = 7;
const pagesMax = 1_000;

/** Every page of a list, one after the other. */
async function pages<Entry>(
  read: (ask: { limit: number; offset?: number; cursor?: string }) => Promise<Page<Entry>>,
) {
  const byCursor: Entry[] = [];
  const byOffset: Entry[] = [];
  const counts: number[] = [];
  let cursor: string | undefined;
  for (let page = 0; page < pagesMax; page++) {
    const answer = await read({ limit: pageSize, ...(cursor !== undefined && { cursor }) });
    byCursor.push(...answer.entries);
    counts.push(answer.count);
    cursor = answer.nextCursor;
    if (cursor === undefined) break;
  }
  for (let offset: number | undefined = 0; offset !== undefined; ) {
    const answer: Page<Entry> = await read({ limit: pageSize, offset });
    byOffset.push(...answer.entries);
    offset = answer.nextOffset;
  }
  return { byCursor, byOffset, counts };
}

/** Everything but keys. */
export async function readViews(views: Views, ids: readonly string[]) {
  const jobs = await pages((ask) => views.query("jobs", ask));
  const filters = [
    { state: ["pending", "retry"] },
    { state: ["completed", "active"] },
    { state: ["dead", "failed"] },
    { tag: "red" },
    { key: "k1" },
    { type: "sync" },
    { text: "job-1" },
  ] as const;
  const filtered = [];
  for (const filter of filters) {
    filtered.push(await pages((ask) => views.query("jobs", { ...ask, filter })));
    filtered.push(await views.query("counts", { filter }));
  }
  const rows = [];
  const ahead = [];
  for (const id of ids) {
    const row = await views.query("job", { id });
    rows.push(row);
    if (row?.state === "pending" || row?.state === "retry")
      ahead.push([id, await views.query("ahead", { id })]);
  }
  return {
    jobs,
    filtered,
    rows,
    ahead,
    counts: await views.query("counts", {}),
    queues: await views.query("queues", {}),
    chains: await pages((ask) => views.query("chains", ask)),
    openChains: await pages((ask) =>
      views.query("chains", { ...ask, filter: { state: ["pending", "active"] } }),
    ),
    blockers: await views.query("blockers", { ids }),
    dependents: [...(await views.query("dependents", { ids }))].sort(),
    workers: await views.query("records", { prefix: "" }),
    due: await dueJobs(views),
  };
}

async function dueJobs(views: Views) {
  const asks: DueAsk[] = [
    { kind: "lapsed", service },
    { kind: "deadline", service },
    { kind: "blocked", service },
  ];
  for (const type of ["mail", "sync"])
    for (const state of jobStates)
      asks.push({ kind: "retention", service, type, state, endedBefore: Number.MAX_SAFE_INTEGER });
  const due = [];
  for (const ask of asks) due.push(await views.due(ask, 100));
  return due;
}

/** Every key, by hash; the order of holders says nothing. */
export async function readKeys(views: Views): Promise<Map<string, KeyRow>> {
  const keys = new Map<string, KeyRow>();
  for (let offset: number | undefined = 0; offset !== undefined; ) {
    const page: Page<KeyRow> = await views.query("keys", { limit: 2, offset });
    for (const { hash } of page.entries) {
      const row = await views.query("key", { hash });
      if (row) keys.set(hash, { ...row, active: [...row.active].sort(byHolder) });
    }
    offset = page.nextOffset;
  }
  return keys;
}

function byHolder(a: KeyRow["active"][number], b: KeyRow["active"][number]): number {
  return a.jobId < b.jobId ? -1 : a.jobId > b.jobId ? 1 : a.token - b.token;
}

/**
 * The keys of an engine as a log tells of them. Refused creates leave no event, and removed jobs take theirs along:
 * limits and the last outcome are those of the newest job that is left, takeovers those of all that are left.
 */
export function keysOfLog(
  keys: ReadonlyMap<string, KeyRow>,
  log: readonly LoggedEvent<JobEvent>[],
): Map<string, KeyRow> {
  const jobs = new Map<string, { hash: string; takeovers: number }>();
  const newest = new Map<string, { id: string; row: Partial<KeyRow> }[]>();
  for (const { event } of log) {
    if (event.name === "created" && event.key && !jobs.has(event.jobId)) {
      const { hash, maxActive, maxQueued, whenFull } = event.key;
      const lastOutcome = { ...(event.policy ?? { outcome: "accepted" }), at: event.at };
      jobs.set(event.jobId, { hash, takeovers: 0 });
      const row = { maxActive, maxQueued, whenFull, lastOutcome } as Partial<KeyRow>;
      newest.set(hash, [...(newest.get(hash) ?? []), { id: event.jobId, row }]);
    }
    const job = jobs.get(event.jobId);
    if (event.name === "deleted") {
      jobs.delete(event.jobId);
      const left = newest.get(job?.hash ?? "")?.filter(({ id }) => id !== event.jobId);
      if (job && left) newest.set(job.hash, left);
    }
    const isLapse = event.actor.startsWith("keeper:") && "token" in event && event.token;
    if (job && isLapse && ["stale", "retry", "dead"].includes(event.name)) job.takeovers += 1;
  }
  const told = new Map<string, KeyRow>();
  for (const [hash, row] of keys) {
    const last = newest.get(hash)?.at(-1);
    if (!last) continue;
    const mine = [...jobs.values()].filter((job) => job.hash === hash);
    const takeovers = mine.reduce((sum, job) => sum + job.takeovers, 0);
    told.set(hash, { ...row, ...last.row, takeovers });
  }
  return told;
}
