/**
 * Leases. A start tells until when its lease stands; what a process renews later it writes into a sheet, a record of its own,
 * so that renewing a hundred jobs is one write. One that holds thousands has several, so that each fits into a message. Whoever finds a lease lapsed strikes it out of that record first,
 * so that a renewal at the same moment either comes before and is seen, or comes after and learns of it.
 */
import type { JobEvent } from "../../core/event.js";
import type { Job } from "../../core/job.js";
import { transitions } from "../../core/transitions.js";
import type { RenewedLease } from "../projection/entry.js";
import type { StoredRecord } from "../record.js";
import type { LoggedJob, ReadJob, StartFacts } from "./entry.js";
import type { Records } from "./records.js";

/** The renewal of a lease, or the mark that it was struck out. */
interface Renewal {
  readonly token: number;
  readonly until: number;
  readonly at: number;
  readonly struck?: true;
}

type Sheet = { readonly [jobId: string]: Renewal };

/** How long the mark of a struck lease is remembered, and a renewal after its lease has run out that another process holds. */
const keepMs = 600_000;

/** What a lease says: until when it stands, and when it was last renewed. */
export interface LeaseFacts {
  readonly until: number;
  readonly at: number;
}

/** The record of a sheet. Each service has its own under the same name. */
function sheetId(service: string, sheet: string): string {
  return `leases/${service}/${sheet}`;
}

/** The renewals that a record holds, if it is one of these. */
export function renewalsOf({ id, body }: StoredRecord): readonly RenewedLease[] {
  if (!id.startsWith("leases/")) return [];
  return Object.entries(body as unknown as Sheet)
    .filter(([, { struck }]) => !struck)
    .map(([jobId, { token, until, at }]) => ({ jobId, token, until, at }));
}

/** The leases of a deployment. */
export class Leases {
  readonly #records: Records;

  constructor(records: Records) {
    this.#records = records;
  }

  /** The lease of an active job. */
  async of(logged: LoggedJob): Promise<LeaseFacts | null> {
    const active = activeOf(logged);
    if (!active) return null;
    const { job, start } = active;
    const { record } = await this.#records.get(sheetId(job.service, start.sheet));
    const renewal = (record?.body as unknown as Sheet | undefined)?.[job.id];
    const first = { until: start.leaseUntil, at: job.startedAt ?? 0 };
    if (renewal === undefined || renewal.token !== job.token) return first;
    return { until: Math.max(first.until, renewal.until), at: renewal.at };
  }

  /** Until when the worker of a start may believe that it holds the job, whatever became of the job since. */
  async standsUntil(
    service: string,
    id: string,
    token: number,
    start: StartFacts,
  ): Promise<number> {
    const { record } = await this.#records.get(sheetId(service, start.sheet));
    const renewal = (record?.body as unknown as Sheet | undefined)?.[id];
    return renewal?.token === token ? Math.max(start.leaseUntil, renewal.until) : start.leaseUntil;
  }

  /** Until when the worker of a start may still run, after somebody else has ended its job; `null` if it has let go. */
  async mayRunUntil(
    { job, starts, events }: ReadJob,
    token: number,
    now: number,
  ): Promise<number | null> {
    const start = starts.get(token);
    const hasLetGo = events.some((event) => letsGo(event, token));
    if (job === null || start === undefined || hasLetGo) return null;
    const until = await this.standsUntil(job.service, job.id, token, start);
    return until > now ? until : null;
  }

  /** Whether the lease of an active job has lapsed. */
  async hasLapsed(logged: LoggedJob, now: number): Promise<boolean> {
    const lease = await this.of(logged);
    return lease !== null && lease.until <= now;
  }

  /** Strikes out a lapsed lease. Gives whether it had lapsed. */
  async strike(logged: LoggedJob, now: number): Promise<boolean> {
    return activeOf(logged) !== null && (await this.strikeUnlessStanding(logged, now)) === null;
  }

  /** Strikes out the lease of an active job if it has lapsed, and gives `null`; otherwise gives until when it stands. */
  async strikeUnlessStanding(logged: LoggedJob, now: number): Promise<number | null> {
    const active = activeOf(logged);
    if (!active) return null;
    const { job, start } = active;
    const id = sheetId(job.service, start.sheet);
    return this.#records.update<Sheet, number | null>(
      id,
      (sheet) => {
        const renewal = sheet?.[job.id];
        const isCurrent = renewal?.token === job.token;
        const until = Math.max(start.leaseUntil, isCurrent ? renewal.until : 0);
        if (until > now) return { body: sheet, extra: until };
        if (isCurrent && renewal.struck) return { body: sheet, extra: null };
        const struck = { token: job.token, until: 0, at: now, struck: true } as const;
        return { body: { ...sheet, [job.id]: struck } as Sheet, extra: null };
      },
      forgottenAt,
    );
  }

  /**
   * Renews leases of one sheet; gives the ids of those that were struck out before. What that process no longer
   * holds is left out, so that the record is never larger than what it holds.
   */
  async renew(
    service: string,
    sheet: string,
    held: readonly { readonly id: string; readonly token: number; readonly until: number }[],
    now: number,
    isHeld: (jobId: string, token: number) => boolean,
  ): Promise<ReadonlySet<string>> {
    return this.#records.update<Sheet, ReadonlySet<string>>(
      sheetId(service, sheet),
      (body) => {
        const before = body ?? {};
        const lost = new Set<string>();
        const next: Record<string, Renewal> = {};
        for (const [jobId, renewal] of Object.entries(before)) {
          const isRecent = Math.max(renewal.until, renewal.at) + keepMs > now;
          if (isRecent && (renewal.struck || isHeld(jobId, renewal.token))) next[jobId] = renewal;
        }
        for (const { id: jobId, token, until } of held) {
          const renewal = before[jobId];
          if (renewal?.struck && renewal.token === token) lost.add(jobId);
          else next[jobId] = { token, until, at: now };
        }
        return { body: lost.size === held.length ? body : next, extra: lost };
      },
      forgottenAt,
    );
  }
}

/** Whether a worker says that its attempt is over, or has heard that it is. */
function letsGo(event: JobEvent, token: number): boolean {
  if (!event.actor.startsWith("worker:") || !("token" in event) || event.token !== token)
    return false;
  if (event.name === "staleCompletionIgnored") return true;
  return event.name !== "started" && transitions[event.name].kind === "change";
}

/** When nobody needs a sheet any more: all that it speaks of has run out long ago. */
function forgottenAt(sheet: Sheet): number {
  let last = 0;
  for (const { until, at } of Object.values(sheet)) last = Math.max(last, until, at);
  return last + keepMs;
}

/** The job and the start that it runs under, if it is active. */
function activeOf({ job, starts }: LoggedJob): { job: Job; start: StartFacts } | null {
  const start = job?.state === "active" ? starts.get(job.token) : undefined;
  return job && start ? { job, start } : null;
}
