/**
 * What the doctor finds: one line for each thing that was looked at, with the remedy where something is wrong.
 */

/** One finding. */
export interface Finding {
  /** What was looked at. */
  readonly check: string;
  /** `note`: it could not be found out, or is only to be known. */
  readonly status: "ok" | "note" | "warning" | "failed";
  readonly says: string;
  readonly remedy?: string;
}

/** All is well. */
export function ok(check: string, says: string): Finding {
  return { check, status: "ok", says };
}

/** Something that is only to be known. */
export function note(check: string, says: string, remedy?: string): Finding {
  return { check, status: "note", says, ...(remedy !== undefined && { remedy }) };
}

/** It works, and could be better. */
export function warning(check: string, says: string, remedy: string): Finding {
  return { check, status: "warning", says, remedy };
}

/** It does not work. */
export function failed(check: string, says: string, remedy: string): Finding {
  return { check, status: "failed", says, remedy };
}

/** How far clocks may be apart before leases and deadlines suffer, and before nobody should go on. */
const skewWarnMs = 1_000;
const skewMaxMs = 10_000;

/** What is to be said of a clock that is so far ahead of this machine's. */
export function clockFinding(aheadMs: number): Finding {
  const check = "clock";
  const size = Math.abs(aheadMs);
  const says = `The store's clock is ${Math.round(size)} ms ${aheadMs >= 0 ? "ahead of" : "behind"} this machine's.`;
  const remedy = "Synchronise the clocks of both machines, for instance with chrony.";
  if (size < skewWarnMs) return ok(check, says);
  return size < skewMaxMs ? warning(check, says, remedy) : failed(check, says, remedy);
}

/** What is to be said of the version of a schema. */
export function schemaFinding(found: number, known: number): Finding {
  const check = "schema";
  if (found === known) return ok(check, `The schema is at version ${found}, the newest.`);
  if (found < known)
    return note(
      check,
      `The schema is at version ${found} and will be brought to ${known} at the next start.`,
    );
  const says = `The schema is at version ${found}, and this Millrace knows ${known}.`;
  return failed(check, says, "Upgrade Millrace on this machine.");
}
