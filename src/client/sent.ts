/**
 * What calls that create jobs came to, as telemetry tells it: how many jobs are new, and what kept the others out.
 */
import type { Result } from "better-result";
import type { Sent } from "./telemetry.js";

/** What stands for a job: its ref. */
interface Named {
  readonly id: string;
  readonly existing: boolean;
}

/** The value of a create, or of a submit, which may have been refused. */
type Created = Named | { readonly outcome: string; readonly job?: Named };

/** What one create or submit came to. */
export function sentOne(result: Result<Created, Error>): Sent {
  if (result.isErr()) return { sent: 0, failures: [result.error] };
  const { value } = result;
  const ref = "id" in value ? value : value.job;
  if (ref === undefined) return { sent: 0, failures: [] };
  return { sent: ref.existing ? 0 : 1, id: ref.id, failures: [] };
}

/** What a `createMany` came to. */
export function sentMany(result: Result<readonly Result<Named, Error>[], Error>): Sent {
  if (result.isErr()) return { sent: 0, failures: [result.error] };
  const failures: Error[] = [];
  let sent = 0;
  for (const one of result.value) {
    if (one.isErr()) failures.push(one.error);
    else if (!one.value.existing) sent += 1;
  }
  return { sent, failures };
}
