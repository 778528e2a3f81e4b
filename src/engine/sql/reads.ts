/**
 * The reading operations that SQL engines share, by name.
 */
import type { DueAsk, DueJob } from "../engine.js";
import type { Queries, QueryName } from "../query.js";
import type { StoredRecord } from "../record.js";
import { listBlockers, listDependents } from "./blockers.js";
import { countHeld } from "./caps.js";
import { listChains } from "./chains.js";
import { countKeys } from "./key-counts.js";
import { dueJobs } from "./lease.js";
import {
  countAhead,
  countJobs,
  listJobs,
  listKeys,
  listQueues,
  listRecordOwners,
  listRecords,
  readJob,
  readKey,
} from "./query.js";
import { type JobLog, readLogs } from "./read.js";
import { readRecord } from "./records.js";
import type { Step } from "./statement.js";
import { listTagged } from "./tags.js";

/** What each reading operation is asked and what it answers. */
export interface Reads {
  load: { readonly ask: readonly string[]; readonly answer: readonly (JobLog | null)[] };
  records: { readonly ask: readonly string[]; readonly answer: readonly (StoredRecord | null)[] };
  due: {
    readonly ask: { readonly due: DueAsk; readonly limit: number };
    readonly answer: readonly DueJob[];
  };
  query: {
    readonly ask: { readonly name: QueryName; readonly ask: unknown };
    readonly answer: unknown;
  };
}

/** A reading operation. */
export type Read = {
  [Kind in keyof Reads]: { readonly kind: Kind; readonly ask: Reads[Kind]["ask"] };
}[keyof Reads];

/**
 * Carries out one read. For `continuesMaxMs` what continues a chain may be missing without being taken for removed, where a store may
 * show that a job was continued before it shows what by.
 */
export function* readItem(now: number, read: Read, continuesMaxMs = 0): Step<unknown> {
  const newSince = now - continuesMaxMs;
  switch (read.kind) {
    case "load":
      return yield* readLogs(read.ask);
    case "records": {
      const records: (StoredRecord | null)[] = [];
      for (const id of read.ask) records.push(yield* readRecord(now, id));
      return records;
    }
    case "due":
      return yield* dueJobs(now, read.ask.due, read.ask.limit, newSince);
    case "query":
      if (read.ask.name === "blockers")
        return yield* listBlockers(newSince, (read.ask.ask as Queries["blockers"]["ask"]).ids);
      return yield* answerQuery(now, read.ask.name, read.ask.ask);
  }
}

function answerQuery(
  now: number,
  name: Exclude<QueryName, "blockers">,
  ask: unknown,
): Step<unknown> {
  const of = <Name extends QueryName>(_: Name) => ask as Queries[Name]["ask"];
  switch (name) {
    case "jobs":
      return listJobs(of("jobs"));
    case "job":
      return readJob(of("job").id);
    case "tagged":
      return listTagged(of("tagged"));
    case "counts":
      return countJobs(of("counts").filter ?? {});
    case "keys":
      return listKeys(now, of("keys"));
    case "key":
      return readKey(now, of("key").hash);
    case "keyCounts":
      return countKeys();
    case "chains":
      return listChains(of("chains"));
    case "dependents":
      return listDependents(of("dependents").ids);
    case "queues":
      return listQueues(now, of("queues").service);
    case "records":
      return listRecords(now, of("records"));
    case "recordOwners":
      return listRecordOwners(now, of("recordOwners").prefix);
    case "held":
      return countHeld(now, of("held"));
    case "ahead":
      return countAhead(of("ahead").id);
  }
}
