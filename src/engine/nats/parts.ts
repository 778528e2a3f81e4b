/**
 * The parts of an engine that changes, claims and repairs all work with.
 */
import type { Caps } from "./caps.js";
import type { Keys } from "./keys.js";
import type { Leases } from "./leases.js";
import type { Log } from "./log.js";
import type { Port } from "./port.js";
import type { Records } from "./records.js";
import type { Subjects } from "./subjects.js";

/** What lies on the server, and the time and the ids to write it with. */
export interface EngineParts {
  readonly port: Port;
  readonly subjects: Subjects;
  readonly log: Log;
  readonly records: Records;
  readonly leases: Leases;
  readonly caps: Caps;
  readonly keys: Keys;
  readonly now: () => number;
  readonly newEventId: () => string;
}
