/**
 * Records that are written with an event: before it, with the name of the job that it creates, and written back if the
 * event is refused. Whoever finds such a record looks whether its job ever came. If it does not come, its writer has
 * died or sleeps: its creation is refused, and then the record is removed.
 */
import type { AppendOutcome, Change } from "../engine.js";
import type { StoredRecord } from "../record.js";
import { casRoundsMax, type Rest, restMs } from "./record-lines.js";
import type { PlacedRecord, Records } from "./records.js";
import { type RefusalContext, refuseCreation } from "./refusal.js";

/** How often it is looked whether the job of a record has come, and the longest rest between two looks. */
const looksMax = 20;
const lookRestMaxMs = 100;

/** How often a change begins anew because somebody was in between. */
const roundsMax = 50;

/** What bound records need of the engine. */
export interface BoundRecordsContext extends RefusalContext {
  readonly records: Records;
  readonly rest: Rest;
}

/** What a change to an event that has records gave: an outcome, or that it must begin anew. */
export type BoundOutcome = AppendOutcome | "overtaken";

interface Written {
  readonly id: string;
  readonly was: PlacedRecord;
  readonly is: PlacedRecord;
}

/** Appends an event with its records. */
export async function appendWithRecords(
  context: BoundRecordsContext,
  change: Change,
  appendEvent: () => Promise<BoundOutcome>,
): Promise<AppendOutcome> {
  const { records } = context;
  const { before = [], after = [] } = change.records ?? {};
  for (let round = 0; round < roundsMax; round++) {
    for (const { id, expect } of after) {
      const { record } = await settled(context, change.job.service, id);
      if ((record?.version ?? 0) !== expect) return { outcome: "record_conflict", current: record };
    }
    const written: Written[] = [];
    const refusal = await writeAll(context, change, before, written);
    const outcome = refusal ?? (await appendEvent());
    if (outcome !== "overtaken" && outcome.outcome === "appended") {
      for (const write of after) await records.swap(write);
      return outcome;
    }
    await writeBack(records, written);
    if (outcome !== "overtaken") return outcome;
  }
  return { outcome: "conflict" };
}

/** Writes the records that come before the event, up to the first that somebody else has changed. */
async function writeAll(
  context: BoundRecordsContext,
  { job, event }: Change,
  before: NonNullable<Change["records"]>["before"],
  written: Written[],
): Promise<AppendOutcome | null> {
  const { records } = context;
  const ahead = event.name === "created" ? job.id : undefined;
  for (const { id, expect, body, expiresAt } of before) {
    for (;;) {
      const was = await settled(context, job.service, id);
      if ((was.record?.version ?? 0) !== expect)
        return { outcome: "record_conflict", current: was.record };
      const is = await records.put(id, was, body, expiresAt, ahead);
      if (is === null) continue;
      written.push({ id, was, is });
      break;
    }
  }
  return null;
}

async function writeBack(records: Records, written: readonly Written[]): Promise<void> {
  for (const { id, was, is } of [...written].reverse()) {
    const { body = null, expiresAt } = was.record ?? {};
    await records.put(id, { seq: is.seq, record: oneBefore(was.record) }, body, expiresAt);
  }
}

function oneBefore(record: StoredRecord | null): StoredRecord | null {
  return record && { ...record, version: record.version - 1 };
}

/** A record that is not ahead of the log. */
async function settled(
  context: BoundRecordsContext,
  service: string,
  id: string,
): Promise<PlacedRecord> {
  const { records, log, rest } = context;
  for (let round = 0; round < casRoundsMax; round++) {
    const seen = await records.get(id);
    if (seen.ahead === undefined) return seen;
    const { job, existed, lastSeq } = await log.load(seen.ahead);
    const isElsewhere = job !== null && job.service !== service;
    if (existed && !isElsewhere) return seen;
    // Whoever wrote it may be about to create the job.
    if (round < looksMax) {
      await rest(restMs(round, lookRestMaxMs));
      continue;
    }
    if (isElsewhere || (await refuseCreation(context, service, seen.ahead, lastSeq)))
      await records.put(id, seen, null);
  }
  throw records.busy(`The record ${id} was ahead of the log`);
}
