/**
 * Renewing leases: what became of each held job, and one write for all that are still held.
 */
import { isEnded, type Job } from "../../core/job.js";
import type { HeldLease, RenewOutcome } from "../engine.js";
import type { RenewedLease } from "../projection/entry.js";
import type { Caps } from "./caps.js";
import type { LoggedJob } from "./entry.js";
import type { Held } from "./held.js";
import { keepHeld } from "./held-deleted.js";
import type { Keys } from "./keys.js";
import type { Leases } from "./leases.js";
import type { Log } from "./log.js";
import type { Port } from "./port.js";
import type { Records } from "./records.js";

/** What renewals need of the engine. */
export interface RenewalContext {
  readonly port: Port;
  readonly log: Log;
  readonly leases: Leases;
  readonly caps: Caps;
  readonly keys: Keys;
  readonly records: Records;
  readonly held: Held;
  readonly now: () => number;
  readonly renewed: (leases: readonly RenewedLease[]) => Promise<void>;
}

/** Renews leases; gives what became of each. */
export async function renewLeases(
  context: RenewalContext,
  held: readonly HeldLease[],
): Promise<readonly RenewOutcome[]> {
  const now = context.now();
  const found = await Promise.all(
    held.map(({ job: { service, id }, token }) =>
      context.log.current(service, id, context.held.get(id, token)),
    ),
  );
  const outcomes = found.map((logged, index): RenewOutcome => {
    const lease = held[index] as HeldLease;
    return outcomeOf(logged.job, lease.token, now + lease.leaseMs);
  });
  const lost = await renewSheets(context, held, found, outcomes, now);
  const answers = outcomes.map((outcome, index): RenewOutcome => {
    const lease = held[index] as HeldLease;
    return lost.has(`${lease.token}/${lease.job.id}`)
      ? { outcome: "lost", state: found[index]?.job?.state ?? null }
      : outcome;
  });
  const kept: RenewedLease[] = [];
  for (const [index, answer] of answers.entries()) {
    if (answer.outcome === "held") continue;
    const { job, token, leaseMs } = held[index] as HeldLease;
    const ended = { jobId: job.id, token, until: now + leaseMs, at: now };
    const logged = found[index] as LoggedJob;
    await keepPlaces(context, job.service, logged, ended);
    // A lease that was struck out must not look as if it stood: the keeper has yet to write that it lapsed.
    if (logged.job === null || isEnded(logged.job.state)) kept.push(ended);
  }
  if (kept.length > 0) await context.renewed(kept);
  const working = answers.map((answer, index) => {
    const lease = held[index] as HeldLease;
    return answer.outcome === "held" ? context.held.get(lease.job.id, lease.token) : undefined;
  });
  context.port.working(working.flatMap((own) => (own ? [own.delivery] : [])));
  return answers;
}

function outcomeOf(job: Job | null, token: number, leaseUntil: number): RenewOutcome {
  if (job === null || job.token !== token) return { outcome: "lost", state: job?.state ?? null };
  if (isEnded(job.state)) return { outcome: "ended", state: job.state };
  if (job.state !== "active") return { outcome: "lost", state: job.state };
  return { outcome: "held", leaseUntil, cancelRequested: job.cancelRequest !== undefined };
}

/** Writes the renewals of each sheet that one of the jobs is on; gives those that were struck out. */
async function renewSheets(
  { leases, held: own, renewed }: RenewalContext,
  held: readonly HeldLease[],
  found: readonly LoggedJob[],
  outcomes: readonly RenewOutcome[],
  now: number,
): Promise<ReadonlySet<string>> {
  const sheets = new Map<string, { service: string; sheet: string; items: RenewedLease[] }>();
  for (const [index, outcome] of outcomes.entries()) {
    const lease = held[index] as HeldLease;
    const sheet = found[index]?.starts.get(lease.token)?.sheet;
    if (outcome.outcome !== "held" || sheet === undefined) continue;
    const { service, id } = lease.job;
    const written = sheets.get(`${service}/${sheet}`) ?? { service, sheet, items: [] };
    written.items.push({ jobId: id, token: lease.token, until: outcome.leaseUntil, at: now });
    sheets.set(`${service}/${sheet}`, written);
  }
  const lost = new Set<string>();
  for (const { service, sheet, items } of sheets.values()) {
    const wishes = items.map(({ jobId, token, until }) => ({ id: jobId, token, until }));
    // Of what another process holds nothing is known here but that it has started these.
    const isOwn = items.some(({ jobId, token }) => own.get(jobId, token) !== undefined);
    const isHeld = (jobId: string, token: number) => !isOwn || own.get(jobId, token) !== undefined;
    const struck = await leases.renew(service, sheet, wishes, now, isHeld);
    for (const { jobId, token } of items) if (struck.has(jobId)) lost.add(`${token}/${jobId}`);
    await renewed(items.filter(({ jobId }) => !struck.has(jobId)));
  }
  return lost;
}

/** A worker that has not let go of an ended job keeps the places that it holds, also where the job is gone. */
async function keepPlaces(
  { caps, keys, records, now }: RenewalContext,
  service: string,
  { job, starts }: LoggedJob,
  { jobId: id, token, until }: RenewedLease,
): Promise<void> {
  if (job !== null) {
    await caps.keepHolding(starts.get(token)?.caps ?? [], id, token, until, now());
    if (job.key) await keys.keepHolding(job, token, until);
    return;
  }
  const held = await keepHeld(records, { service, id, token }, until, now());
  if (held === null) return;
  const { type, key } = held;
  await caps.keepHolding(held.caps, id, token, until, now());
  if (key) await keys.keepHolding({ id, service, type, key }, token, until);
}
