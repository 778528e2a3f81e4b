/**
 * What lists show that the log does not tell of: settings of queues, and what the record of a key knows. It is read from
 * the records when it is asked for.
 */
import type { KeyRow, QueueRow } from "../query.js";
import { type QueueSettings, recordId, type StoredRecord } from "../record.js";
import type { Keys } from "./keys.js";
import type { Records } from "./records.js";

/** Rows of the view, with what records tell of them. */
export class RecordedRows {
  readonly #records: Records;
  readonly #keys: Keys;
  readonly #now: () => number;

  constructor(parts: {
    readonly records: Records;
    readonly keys: Keys;
    readonly clock: { now(): number };
  }) {
    this.#records = parts.records;
    this.#keys = parts.keys;
    this.#now = () => parts.clock.now();
  }

  /** Settings are records, which the log does not tell of. */
  async withSettings(
    rows: readonly QueueRow[],
    service: string | undefined,
  ): Promise<readonly QueueRow[]> {
    const prefix = service === undefined ? recordId.queues : recordId.queue(service, "");
    const settings = new Map<string, StoredRecord>();
    for (const record of await this.#records.list(prefix)) settings.set(record.id, record);
    const all = rows.map((row) => {
      const id = recordId.queue(row.service, row.queue);
      const found = settings.get(id);
      settings.delete(id);
      return { ...row, paused: isPaused(found) };
    });
    for (const record of settings.values()) {
      const [, owner = "", queue = ""] = record.id.split("/");
      all.push({ service: owner, queue, paused: isPaused(record), waiting: 0, active: 0 });
    }
    const nameOf = (row: QueueRow) => `${row.service}/${row.queue}`;
    return all.sort((a, b) => (nameOf(a) < nameOf(b) ? -1 : 1));
  }

  /**
   * The limits, takeovers and last outcome of a key are in its record, also where a create was refused, and for how
   * long workers of ended jobs hold on.
   */
  async asRecorded(row: KeyRow): Promise<KeyRow> {
    const state = await this.#keys.state(row.service, row.hash);
    if (!state) return row;
    const { maxActive, maxQueued, whenFull, takeovers, lastOutcome, held } = state;
    const limits = { maxActive, maxQueued, whenFull, takeovers };
    const active = row.active.map((slot) => {
      const hold = held.find(({ id, token }) => id === slot.jobId && token === slot.token);
      return hold && slot.state === "ended" ? { ...slot, leaseUntil: hold.until } : slot;
    });
    return { ...row, ...limits, active, ...(lastOutcome && { lastOutcome }) };
  }

  /** A key whose jobs have all been deleted: the log knows nothing of it any more, and its record does. */
  async rememberedKey(hash: string): Promise<KeyRow | null> {
    const state = await this.#keys.find(hash);
    if (!state) return null;
    const { members: _, held, lastOutcome, ...known } = state;
    const now = this.#now();
    const active = held
      .filter(({ until }) => until > now)
      .map(({ id, token, until }) => ({
        jobId: id,
        state: "ended" as const,
        token,
        leaseUntil: until,
      }));
    const nobody = { active, queued: [], queuedCount: 0, blocked: false };
    return { ...known, ...nobody, ...(lastOutcome && { lastOutcome }) };
  }
}

function isPaused(record: StoredRecord | undefined): boolean {
  return (record?.body as unknown as QueueSettings | undefined)?.paused === true;
}
