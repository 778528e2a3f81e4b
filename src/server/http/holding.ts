/**
 * Whose a claim is: the bearer token or the client certificate that claims is named in the worker's name, and what comes
 * under another one is treated as if the lease was lost. Where nobody is asked who they are, every caller holds every
 * lease.
 */
import type { JobEvent } from "../../core/event.js";
import type { Job } from "../../core/job.js";
import type { Backend } from "./backend.js";
import { type Caller, may } from "./caller.js";
import { refused } from "./refusal.js";

/** Refuses a caller that may not work for a service. */
export function checkService(caller: Caller, service: string): void {
  if (may(caller, `work:${service}`)) return;
  const message = `This needs the capability work:${service}, which the token does not have.`;
  const details = { capability: `work:${service}` };
  throw refused("permission_denied", { reason: "capability_missing", message, details });
}

/** The name under which a caller claims. No worker can take the part after the @ for itself. */
export function workerName({ holder }: Caller, worker: string): string {
  return holder === undefined ? worker : `${worker}@${holder}`;
}

/** A job, and the token of a claim of it. */
export interface Lease {
  readonly job: Job;
  readonly token: number;
}

/** How many histories are in memory at once. Each may be as large as a job's log may grow. */
const historiesMax = 4;

/** Whether a caller holds, or held, the lease that a token of a job stands for. */
export async function holdsLease(
  backend: Pick<Backend, "engine">,
  caller: Caller,
  job: Job,
  token: number,
): Promise<boolean> {
  return (await ownLeases(backend, caller, [{ job, token }])).length > 0;
}

/** Those of some leases that a caller holds, or held. */
export async function ownLeases<Any extends Lease>(
  { engine }: Pick<Backend, "engine">,
  caller: Caller,
  leases: readonly Any[],
): Promise<readonly Any[]> {
  const past = leases.filter((lease) => isOwn(caller, lease) === null);
  const ids = [...new Set(past.map(({ job }) => job.id))];
  const startedBy = new Map<string, ReadonlySet<number>>();
  for (let from = 0; from < ids.length; from += historiesMax) {
    const loaded = await engine.load(ids.slice(from, from + historiesMax), { history: true });
    for (const found of loaded)
      if (found) startedBy.set(found.job.id, tokensOf(caller, found.events ?? []));
  }
  return leases.filter(
    (lease) => isOwn(caller, lease) ?? startedBy.get(lease.job.id)?.has(lease.token) ?? false,
  );
}

/**
 * Whether a lease is a caller's; `null` where only the history tells, as of every try that is over. Whose that was matters:
 * what is ended from outside holds its key and its places until its own worker lets go.
 */
function isOwn(caller: Caller, { job, token }: Lease): boolean | null {
  if (caller.holder === undefined) return true;
  // A token that the job never had is nobody's.
  if (token > job.token) return false;
  return job.state === "active" && job.token === token ? isNamedIn(caller, job.worker) : null;
}

/** The tokens of the tries that a caller has started. */
function tokensOf(caller: Caller, events: readonly JobEvent[]): ReadonlySet<number> {
  return new Set(
    events.flatMap((event) =>
      event.name === "started" && isNamedIn(caller, event.worker) ? [event.token] : [],
    ),
  );
}

function isNamedIn({ holder }: Caller, worker: string | undefined): boolean {
  return worker?.endsWith(`@${holder}`) ?? false;
}
