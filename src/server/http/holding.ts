/**
 * Whose a claim is: a bearer token that claims is named in the worker's name, and what comes under another token is
 * treated as if the lease was lost. Where nobody is asked who they are, every caller holds every lease.
 */
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
export function workerName({ tokenId }: Caller, worker: string): string {
  return tokenId === undefined ? worker : `${worker}@${tokenId}`;
}

/** Whether a caller holds, or held, the lease that a token of a job stands for. */
export async function holdsLease(
  { engine }: Pick<Backend, "engine">,
  caller: Caller,
  job: Job,
  token: number,
): Promise<boolean> {
  if (caller.tokenId === undefined) return true;
  if (job.state === "active" && job.token === token) return isNamedIn(caller, job.worker);
  // Whose a try was that is over is in the history alone. It matters: what is ended from outside holds its key and
  // its places until its own worker lets go.
  const [loaded] = await engine.load([job.id], { history: true });
  return (loaded?.events ?? []).some(
    (event) => event.name === "started" && event.token === token && isNamedIn(caller, event.worker),
  );
}

function isNamedIn({ tokenId }: Caller, worker: string | undefined): boolean {
  return worker?.endsWith(`@${tokenId}`) ?? false;
}
