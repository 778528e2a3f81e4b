// The two ledgers outside the system: what callers were told, and what handlers did.
// The handlers' ledger knows who is inside a handler under which token, and for how long the lease
// of that token stands. It tells when more handlers with a standing lease are inside than a key,
// a type or a queue allows, and when a token is carried out twice.
import type { BoundJob } from "#millrace/contract/definition.js";
import type { JobState } from "#millrace/core/job.js";

/** What callers were told. */
export class CallersLedger {
  /** Creates that were acknowledged. */
  readonly acknowledged = new Set<string>();
  /** Those of them that are the first of a chain. */
  readonly chains = new Set<string>();
  /** Ids that were refused, and must never be seen. */
  readonly refused = new Set<string>();
  /** Jobs that a caller was told of in the place of its own. */
  readonly named = new Set<string>();
  /** States that a caller was told a job is in or has come to. */
  readonly told: { readonly id: string; readonly state: JobState }[] = [];
  /** Jobs that a caller was told are gone. */
  readonly removed = new Set<string>();
  /** How many creates with an idempotency key were told of a job that was there. */
  repetitions = 0;
  readonly #repeatable = new Map<string, string>();
  readonly violations: string[] = [];

  /** A create with an idempotency key was told which job it made or met. */
  repeated(idempotencyKey: string, id: string): void {
    const first = this.#repeatable.get(idempotencyKey);
    this.#repeatable.set(idempotencyKey, first ?? id);
    if (first === undefined) return;
    this.repetitions++;
    if (first !== id)
      this.violations.push(`Creates of ${idempotencyKey} were told of both ${first} and ${id}.`);
  }
}

/** A handler that has begun. */
export interface Entry {
  readonly jobId: string;
  readonly token: number;
  readonly process: string;
  readonly groups: readonly Group[];
}

/** Handlers that share a limit: those of a key, a type or a queue. */
export interface Group {
  readonly name: string;
  /** How many of them may be inside at once. */
  readonly limit: number;
}

interface Lease {
  until: number;
  hasLapsed: boolean;
}

export class HandlerLedger {
  readonly violations: string[] = [];
  readonly #leases = new Map<string, Lease>();
  /** The leases that have not lapsed. */
  readonly #standing = new Set<Lease>();
  readonly #inside = new Map<string, Entry>();
  readonly #ever = new Set<string>();
  readonly #said = new Map<string, string>();
  readonly #completing = new Set<string>();
  #entries = 0;
  /** The store's time when it last did something. */
  #now = 0;

  /** How many handlers have begun. */
  get entries(): number {
    return this.#entries;
  }

  /** The store granted a lease, or renewed one of an active job. */
  granted(jobId: string, token: number, until: number): void {
    const name = nameOf(jobId, token);
    const before = this.#leases.get(name);
    if (before) this.#standing.delete(before);
    const lease = { until, hasLapsed: false };
    this.#leases.set(name, lease);
    this.#standing.add(lease);
  }

  /** The store prolonged the slots of a job that ended from outside. Once lapsed, they are gone for good. */
  prolonged(jobId: string, token: number, until: number): void {
    const lease = this.#leases.get(nameOf(jobId, token));
    if (lease && !lease.hasLapsed) lease.until = until;
  }

  /** Time as the store sees it, told before everything that the store does. */
  observe(now: number): void {
    this.#now = now;
    for (const lease of this.#standing) {
      if (lease.until > now) continue;
      lease.hasLapsed = true;
      this.#standing.delete(lease);
    }
  }

  /** A handler begins. */
  entered(entry: Entry): void {
    const name = nameOf(entry.jobId, entry.token);
    if (this.#ever.has(name)) this.violations.push(`${name} was carried out twice.`);
    this.#ever.add(name);
    // The answer to a claim may take so long that its lease has lapsed before the handler begins.
    const lease = this.#leases.get(name);
    if (lease && lease.until <= this.#now) lease.hasLapsed = true;
    this.#inside.set(name, entry);
    this.#entries++;
    for (const group of entry.groups) this.#checkGroup(group, entry);
  }

  /** A handler is over; `said` tells how. One that completed its job itself has said so before. */
  left(jobId: string, token: number, said: string): void {
    const name = nameOf(jobId, token);
    this.#inside.delete(name);
    if (!this.#completing.has(name)) this.#said.set(name, said);
  }

  /** A handler completes its job itself. */
  completing(jobId: string, token: number): void {
    const name = nameOf(jobId, token);
    this.#completing.add(name);
    this.#said.set(name, "returned");
  }

  /** A process is no more, and its handlers with it. */
  processGone(process: string): void {
    for (const [name, entry] of this.#inside)
      if (entry.process === process) this.#inside.delete(name);
  }

  /** Whether a handler ever began under the token. */
  hasEntered(jobId: string, token: number): boolean {
    return this.#ever.has(nameOf(jobId, token));
  }

  /** Every job that a handler ever began. */
  jobIds(): ReadonlySet<string> {
    return new Set([...this.#ever].map((name) => name.slice(0, name.lastIndexOf("#"))));
  }

  /** How the handler of a token ended, if it did. */
  said(jobId: string, token: number): string | undefined {
    return this.#said.get(nameOf(jobId, token));
  }

  #checkGroup(group: Group, entry: Entry): void {
    const isOfGroup = ({ groups }: Entry) => groups.some(({ name }) => name === group.name);
    const holders = [...this.#inside].filter(
      ([name, other]) => isOfGroup(other) && this.#stands(name),
    );
    if (holders.length <= group.limit) return;
    const names = holders.map(([name, { process }]) => `${name} in ${process}`).join(", ");
    const sentence = `${holders.length} handlers are inside ${group.name}, where ${group.limit} may: ${names}`;
    this.violations.push(`When ${nameOf(entry.jobId, entry.token)} began, ${sentence}.`);
  }

  #stands(name: string): boolean {
    const lease = this.#leases.get(name);
    return lease !== undefined && !lease.hasLapsed;
  }
}

function nameOf(jobId: string, token: number): string {
  return `${jobId}#${token}`;
}

/** The limits that a job counts against while its handler is inside. */
export function groupsOf({ type, queue, definition }: BoundJob, key: string): Group[] {
  const { keyConcurrency, maxActive, queue: queueSettings } = definition.settings;
  const groups: Group[] = [];
  if (keyConcurrency) groups.push({ name: `key ${type}/${key}`, limit: keyConcurrency.maxActive });
  if (maxActive !== undefined) groups.push({ name: `type ${type}`, limit: maxActive });
  if (queueSettings.maxActive !== undefined) {
    groups.push({ name: `queue ${queue}`, limit: queueSettings.maxActive });
  }
  return groups;
}

/** The limits of all types and all queues of a contract, by the names that the checker gives them. */
export function capLimits(bound: readonly BoundJob[]): {
  readonly typeLimits: Readonly<Record<string, number>>;
  readonly queueLimits: Readonly<Record<string, number>>;
} {
  const typeLimits: Record<string, number> = {};
  const queueLimits: Record<string, number> = {};
  for (const { service, type, queue, definition } of bound) {
    const { maxActive, queue: queueSettings } = definition.settings;
    if (maxActive !== undefined) typeLimits[`${service}/${type}`] = maxActive;
    if (queueSettings.maxActive !== undefined) {
      queueLimits[`${service}/${queue}`] = queueSettings.maxActive;
    }
  }
  return { typeLimits, queueLimits };
}
