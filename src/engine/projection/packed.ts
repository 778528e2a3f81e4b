/**
 * Events of a log as bytes: many of them in one piece of memory, which costs little to fill, to carry to another thread
 * and to forget. Each becomes text when it is applied, and not before.
 */
import type { EventText } from "../event-text.js";
import type { LoggedEvent } from "./entry.js";

/** The most entries that one transaction applies. Many, because what begins and ends within one is not written twice. */
export const appliedMax = 4_000;

/** The most text that one transaction applies, so that large payloads do not fill the memory. */
export const appliedLengthMax = 8 * 1024 * 1024;

/** Events in order, as bytes. */
export interface PackedEvents {
  readonly bytes: Uint8Array;
  readonly count: number;
  /** The position of the last. */
  readonly last: number;
  /** How many events the log held behind the last when that came, where it is known. */
  readonly behind?: number;
}

/** Before each event stand its position, its lease, and how long its subject and its body are. */
const headLength = 24;

/** The most bytes that one character of a subject takes. */
const characterMax = 3;

const firstLength = 256 * 1024;

/** Packs events as they come, as many together as one transaction applies. */
export class Packer {
  #buffer = Buffer.allocUnsafeSlow(firstLength);
  #used = 0;
  #count = 0;
  #last = 0;
  readonly #full: PackedEvents[] = [];

  /** How many events wait to be taken. */
  get count(): number {
    return this.#count + this.#full.reduce((sum, { count }) => sum + count, 0);
  }

  /** Adds an event, with the lease of a `started` one. */
  add(seq: number, subject: string, body: Uint8Array, leaseUntil?: number): void {
    this.#reserve(headLength + subject.length * characterMax + body.length);
    const buffer = this.#buffer;
    const at = this.#used;
    const length = buffer.write(subject, at + headLength);
    buffer.writeDoubleLE(seq, at);
    buffer.writeDoubleLE(leaseUntil ?? Number.NaN, at + 8);
    buffer.writeUInt32LE(length, at + 16);
    buffer.writeUInt32LE(body.length, at + 20);
    buffer.set(body, at + headLength + length);
    this.#used = at + headLength + length + body.length;
    this.#count += 1;
    this.#last = seq;
    if (this.#count === appliedMax || this.#used >= appliedLengthMax) this.#seal();
  }

  /** Takes the oldest events, at most as many as one transaction applies; `null` when there are none. */
  take(): PackedEvents | null {
    if (this.#full.length === 0 && this.#count > 0) this.#seal();
    return this.#full.shift() ?? null;
  }

  #reserve(length: number): void {
    const needed = this.#used + length;
    if (needed <= this.#buffer.length) return;
    const larger = Buffer.allocUnsafeSlow(Math.max(needed, this.#buffer.length * 2));
    larger.set(this.#buffer.subarray(0, this.#used));
    this.#buffer = larger;
  }

  #seal(): void {
    // A copy of its own, because whole buffers go to another thread, and this one is filled again.
    const bytes = Uint8Array.prototype.slice.call(this.#buffer, 0, this.#used);
    this.#full.push({ bytes, count: this.#count, last: this.#last });
    this.#used = 0;
    this.#count = 0;
  }
}

/** Events to be applied, packed or one by one. */
export type Entries = PackedEvents | readonly LoggedEvent[];

/** The position of the last of some events; 0 where there are none. */
export function lastOf(entries: Entries): number {
  return "bytes" in entries ? entries.last : (entries.at(-1)?.seq ?? 0);
}

/** Events behind a position, a few at a time. */
export function* portions(
  entries: Entries,
  after: number,
  size: number,
): Iterable<readonly LoggedEvent[]> {
  let portion: LoggedEvent[] = [];
  for (const entry of "bytes" in entries ? unpacked(entries) : entries) {
    if (entry.seq <= after) continue;
    if (portion.push(entry) < size) continue;
    yield portion;
    portion = [];
  }
  if (portion.length > 0) yield portion;
}

/** Packed events one by one. */
export function* unpacked({ bytes }: PackedEvents): Iterable<LoggedEvent<EventText>> {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = 0; at < buffer.length; ) {
    const seq = buffer.readDoubleLE(at);
    const leaseUntil = buffer.readDoubleLE(at + 8);
    const body = at + headLength + buffer.readUInt32LE(at + 16);
    const end = body + buffer.readUInt32LE(at + 20);
    const subject = buffer.toString("utf8", at + headLength, body);
    const event = { subject, body: buffer.toString("utf8", body, end) };
    at = end;
    yield Number.isNaN(leaseUntil) ? { seq, event } : { seq, event, leaseUntil };
  }
}
