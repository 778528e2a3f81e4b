/**
 * Callers: who makes a request, and what they may do.
 */
import type { Actor } from "../../core/job.js";

/** What a caller may do. `work:*` stands for every service. */
export type Capability = "admin.read" | "admin.mutate" | "admin.stream" | `work:${string}`;

/** Who makes a request. */
export interface Caller {
  /** Whom the events of the request name. */
  readonly actor: Actor;
  /** What the caller may do; `all` where the server asks nobody who they are. */
  readonly capabilities: readonly Capability[] | "all";
  /** What the caller's claims belong to: the id of the bearer token, or of the client certificate's holder. */
  readonly holder?: string;
  /** The agent that the caller's token is bound to. */
  readonly agent?: string;
  /** When the caller's token expires. */
  readonly expiresAt?: number;
  /** Names the caller among others, for limits and idempotency keys. */
  readonly id: string;
}

/** Whether a caller may do something. */
export function may({ capabilities }: Caller, wanted: Capability): boolean {
  if (capabilities === "all" || capabilities.includes(wanted)) return true;
  return wanted.startsWith("work:") && capabilities.includes("work:*");
}
