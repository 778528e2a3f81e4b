// Records what an engine's log says and what its processes renew and mirror, in order, to be told to projections.
import type { Environment } from "millrace/conformance";
import type { JobEvent } from "#millrace/core/event.js";
import type { ClaimAsk, Engine, HeldLease } from "#millrace/engine/engine.js";
import { tokenOf } from "#millrace/engine/event-text.js";
import type { LoggedEvent, RenewedLease } from "#millrace/engine/projection/entry.js";
import { type PackedEvents, Packer } from "#millrace/engine/projection/packed.js";
import type { Projection } from "#millrace/engine/projection/projection.js";
import type { MirroredRecord } from "#millrace/engine/projection/writes.js";
import type { RecordWrite } from "#millrace/engine/record.js";

/** One thing that a projection is told. */
export type Told =
  | { readonly kind: "event"; readonly entry: LoggedEvent<JobEvent> }
  | { readonly kind: "renew"; readonly leases: readonly RenewedLease[] }
  | { readonly kind: "records"; readonly records: readonly MirroredRecord[] };

/** The newest cursor of a log that has no events. */
const emptyHead = "0";

/** An engine whose log is read after each call. */
export class Recorder {
  readonly engine: Engine;
  readonly told: Told[] = [];
  readonly #inner: Engine;
  readonly #leases = new Map<string, number>();
  #cursor: string | null = null;
  #seq = 0;

  constructor(inner: Engine) {
    this.#inner = inner;
    const own: Partial<Engine> = {
      claim: (ask: ClaimAsk) => this.#claim(ask),
      renew: (held: readonly HeldLease[]) => this.#renew(held),
      swap: (writes: readonly RecordWrite[]) => this.#swap(writes),
    };
    this.engine = new Proxy(inner, {
      get: (target, name) => {
        const method = own[name as keyof Engine] ?? target[name as keyof Engine];
        return typeof method === "function" ? method.bind(target) : method;
      },
    });
  }

  /** The events that were told. */
  get events(): readonly LoggedEvent<JobEvent>[] {
    return this.told.flatMap((told) => (told.kind === "event" ? [told.entry] : []));
  }

  /** Reads what the log has got since the last time. */
  async read(): Promise<void> {
    const head = await this.#inner.head();
    if (head === (this.#cursor ?? emptyHead)) return;
    const stop = new AbortController();
    for await (const { cursor, event } of this.#inner.tail(this.#cursor, stop.signal)) {
      this.#cursor = cursor;
      this.told.push({ kind: "event", entry: this.#entry(event) });
      if (cursor === head) stop.abort();
    }
  }

  #entry(event: JobEvent): LoggedEvent<JobEvent> {
    // The numbers of a stream have gaps.
    this.#seq += event.name === "created" ? 3 : 1;
    const leaseUntil =
      event.name === "started" ? this.#leases.get(`${event.jobId}#${event.token}`) : undefined;
    return leaseUntil === undefined
      ? { seq: this.#seq, event }
      : { seq: this.#seq, event, leaseUntil };
  }

  async #claim(ask: ClaimAsk) {
    const answer = await this.#inner.claim(ask);
    for (const { job, leaseUntil } of answer.jobs)
      this.#leases.set(`${job.id}#${job.token}`, leaseUntil);
    return answer;
  }

  async #renew(held: readonly HeldLease[]) {
    await this.read();
    const at = this.#inner.now();
    const answer = await this.#inner.renew(held);
    const leases = held.map(({ job, token, leaseMs }) => {
      return { jobId: job.id, token, until: at + leaseMs, at };
    });
    this.told.push({ kind: "renew", leases });
    return answer;
  }

  async #swap(writes: readonly RecordWrite[]) {
    const answer = await this.#inner.swap(writes);
    const found = await this.#inner.records(writes.map(({ id }) => id));
    const records = writes.map(({ id }, index) => ({ id, record: found[index] ?? null }));
    this.told.push({ kind: "records", records });
    return answer;
  }
}

/** Events as the bytes that a stream holds. */
export function packed(entries: readonly LoggedEvent<JobEvent>[]): PackedEvents {
  const packer = new Packer();
  for (const { seq, event, leaseUntil } of entries) {
    const { service, type, jobId, name } = event;
    const subject = ["test", "jobs", ...[service, type, jobId].map(tokenOf), name].join(".");
    packer.add(seq, subject, Buffer.from(JSON.stringify(event)), leaseUntil);
  }
  const all = packer.take();
  if (all === null) throw new Error("There is nothing to pack.");
  return all;
}

/** Tells a projection what was recorded, the events in batches, perhaps as bytes. */
export async function tell(
  projection: Projection,
  told: readonly Told[],
  batchSize: number,
  asBytes = false,
): Promise<void> {
  let position = await projection.position();
  let batch: LoggedEvent<JobEvent>[] = [];
  const flush = async () => {
    if (batch.length > 0)
      position = await projection.apply(position, asBytes ? packed(batch) : batch);
    batch = [];
  };
  for (const each of told) {
    if (each.kind === "event") {
      batch.push(each.entry);
      if (batch.length === batchSize) await flush();
      continue;
    }
    await flush();
    if (each.kind === "renew") await projection.renew(each.leases);
    else await projection.putRecords(each.records);
  }
  await flush();
}

/** Makes what is due claimable, and writes an event, so that the log knows the time, too. */
export async function look(env: Environment, types: readonly string[]): Promise<void> {
  const lanes = types.map((type) => env.lane({ type, free: 0 }));
  await env.askFor({ worker: "looker", lanes, limit: 0 });
  await env.create({ type: "tick" });
}
