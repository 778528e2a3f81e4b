// What the benchmark asks of another job system that it compares Millrace with.
import type { SystemName } from "../bench.js";
import type { Rounds } from "../rounds.js";

/** A peer that is installed and can be measured. */
export interface PresentPeer extends Rounds {
  readonly system: SystemName;
  readonly present: true;
  /** The settings that it runs with, for the table's notes. */
  readonly settings: string;
}

/** A peer that cannot be measured here. */
interface AbsentPeer {
  readonly system: SystemName;
  readonly present: false;
  readonly reason: string;
}

export type Peer = PresentPeer | AbsentPeer;

/** Imports a package that may not be installed; `null` when it is not. */
export async function importIfInstalled<Module>(name: string): Promise<Module | null> {
  try {
    return (await import(name)) as Module;
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : undefined;
    if (code === "ERR_MODULE_NOT_FOUND" || code === "MODULE_NOT_FOUND") return null;
    throw error;
  }
}
