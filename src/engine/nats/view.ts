/**
 * A read model in memory, for those who need no other.
 */
import type { JobEvent } from "../../core/event.js";
import { evolve } from "../../core/evolve.js";
import { isEnded, type JobKey } from "../../core/job.js";
import { laneOf } from "../../core/order.js";
import type { DueAsk, DueJob } from "../engine.js";
import { appendNote, applyEvent } from "../memory/append.js";
import { confirmEnd } from "../memory/attempts.js";
import { keyOf } from "../memory/keys.js";
import { answers, dueJobs } from "../memory/read-model.js";
import { emptyStore, type Store } from "../memory/store.js";
import type { Queries, QueryName } from "../query.js";
import type { StoredRecord } from "../record.js";

export interface LogEntry {
  readonly seq: number;
  readonly event: JobEvent;
  readonly leaseUntil?: number;
}

export class MemoryView {
  readonly #store: Store;
  readonly #now: () => number;
  readonly #unticketed = new Set<string>();
  position = 0;

  constructor(now: () => number) {
    this.#now = now;
    this.#store = emptyStore(now);
  }

  apply(entries: readonly LogEntry[]): void {
    for (const { seq, event, leaseUntil } of entries) {
      if (seq <= this.position) continue;
      this.position = seq;
      if (event.name === "ready") {
        this.#unticketed.delete(event.jobId);
        continue;
      }
      const entry = this.#store.jobs.get(event.jobId) ?? null;
      const kind = advances(event);
      if (!kind) {
        if (event.name === "staleCompletionIgnored")
          confirmEnd(this.#store, event.jobId, event.token);
        appendNote(this.#store, event);
        continue;
      }
      const { job, ignored } = evolve(entry?.job ?? null, event);
      if (ignored !== null) continue;
      if (event.name === "created" && event.key && event.policy) {
        const key = keyOf(this.#store, event as never);
        if (key) {
          key.maxActive = event.key.maxActive;
          key.maxQueued = event.key.maxQueued;
          key.whenFull = event.key.whenFull;
          key.lastOutcome = { ...event.policy, at: event.at };
        }
      }
      const by = event.actor.startsWith("worker:") && "token" in event ? "worker" : "outside";
      applyEvent(this.#store, entry, event, {
        by,
        leaseMs: (leaseUntil ?? this.#now()) - this.#now(),
      });
      const waits = job?.state === "pending" || job?.state === "retry";
      if (waits && job.runAt > event.at) this.#unticketed.add(event.jobId);
      else this.#unticketed.delete(event.jobId);
    }
    this.#store.hints.clear();
  }

  renew(leases: readonly { jobId: string; token: number; until: number; at: number }[]): void {
    for (const { jobId, token, until, at } of leases)
      for (const attempt of this.#store.attempts)
        if (attempt.job.id === jobId && attempt.token === token && until > attempt.leaseUntil) {
          attempt.leaseUntil = until;
          attempt.heartbeatAt = at;
        }
  }

  putRecords(records: readonly { id: string; record: StoredRecord | null }[]): void {
    for (const { id, record } of records)
      if (record) this.#store.records.set(id, record);
      else this.#store.records.delete(id);
  }

  query<Name extends QueryName>(name: Name, ask: Queries[Name]["ask"]): Queries[Name]["answer"] {
    return answers[name](this.#store, ask);
  }

  due(ask: DueAsk, limit: number): readonly DueJob[] {
    return dueJobs(this.#store, ask, limit);
  }

  dueTickets(
    lanes: readonly string[],
    now: number,
    limit: number,
  ): readonly (JobKey & { version: number; keyed: boolean })[] {
    const due: (JobKey & { version: number; keyed: boolean })[] = [];
    for (const id of this.#unticketed) {
      const job = this.#store.jobs.get(id)?.job;
      if (!job || isEnded(job.state) || job.runAt > now || !lanes.includes(laneOf(job))) continue;
      due.push({
        service: job.service,
        type: job.type,
        id,
        version: job.version,
        keyed: job.key !== undefined,
      });
      if (due.length >= limit) break;
    }
    return due;
  }

  nextDueAt(lanes: readonly string[]): number | null {
    let next: number | null = null;
    for (const id of this.#unticketed) {
      const job = this.#store.jobs.get(id)?.job;
      if (job && lanes.includes(laneOf(job)) && (next === null || job.runAt < next))
        next = job.runAt;
    }
    for (const { ended, leaseUntil } of this.#store.attempts)
      if (ended && (next === null || leaseUntil < next)) next = leaseUntil;
    return next;
  }

  lapsedKeys(now: number): readonly {
    service: string;
    type: string;
    key: NonNullable<import("../../core/job.js").Job["key"]>;
  }[] {
    const keys = [];
    for (const { ended, leaseUntil, job } of this.#store.attempts)
      if (ended && leaseUntil <= now && job.key)
        keys.push({ service: job.service, type: job.type, key: job.key });
    return keys;
  }
}

function advances(event: JobEvent): boolean {
  return ![
    "acknowledged",
    "progress",
    "logged",
    "emitted",
    "heartbeat",
    "staleCompletionIgnored",
  ].includes(event.name);
}
