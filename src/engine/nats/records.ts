/**
 * Records in the bucket: small documents, compared and set. A service's own name comes first in a key,
 * so that a service can be permitted to touch its own records only.
 */
import type { Json } from "../../core/json.js";
import { StoreBusy } from "../errors.js";
import { tokenOf } from "../event-text.js";
import type { RecordWrite, StoredRecord, SwapOutcome } from "../record.js";
import type { OwnWrites } from "./own-writes.js";
import type { OutgoingMessage, Port, StoredMessage } from "./port.js";
import {
  type Changed,
  casRoundsMax,
  lateLooksMax,
  RecordLines,
  type Rest,
  restMs,
} from "./record-lines.js";

/** A record with its position in the bucket, which the next write compares with. */
export interface PlacedRecord {
  readonly record: StoredRecord | null;
  readonly seq: number;
  /** The job for whose creation it was written; that may still be to come, or never come. */
  readonly ahead?: string;
}

const operationHeader = "KV-Operation";
const lifetimeHeader = "Nats-TTL";

/** The server forgets a record so long after it expired, since clocks differ, and a deletion so long after it was written. */
const expiredForMs = 60_000;
const deletedForMs = 24 * 60 * 60 * 1_000;

/** The longest lifetime that the server is told: it counts in nanoseconds, of which 64 bits end in the year 2262. */
const lifetimeMaxMs = 100 * 365 * 24 * 60 * 60 * 1_000;

/** The records of a deployment. */
export class Records {
  readonly #port: Port;
  readonly #bucket: string;
  readonly #scope: string | undefined;
  readonly #now: () => number;
  readonly #url: string;
  readonly #lines: RecordLines<PlacedRecord>;
  readonly #own: OwnWrites | null;
  readonly #rest: Rest;

  constructor(options: {
    readonly url: string;
    readonly port: Port;
    readonly bucket: string;
    /** The service whose records may be read; all of them without one. */
    readonly scope?: string | undefined;
    readonly now: () => number;
    readonly rest: Rest;
    /** Where the bucket has copies, what this process has stored in it. */
    readonly own: OwnWrites | null;
  }) {
    this.#own = options.own;
    this.#rest = options.rest;
    this.#url = options.url;
    this.#port = options.port;
    this.#bucket = options.bucket;
    this.#scope = options.scope;
    this.#now = options.now;
    this.#lines = new RecordLines({
      get: (id) => this.get(id),
      put: (id, seen, body, expiresAt) => this.put(id, seen, body, expiresAt),
      rest: options.rest,
      busy: (id) => this.busy(`Others changed the record ${id}`),
    });
  }

  /** A record as it is now. */
  async get(id: string): Promise<PlacedRecord> {
    for (let looks = 0; ; looks++) {
      const message = await this.#port.last("records", this.#subject(id));
      if (!this.#own?.isBehind(id, message?.seq ?? 0))
        return message ? this.read(message) : { record: null, seq: 0 };
      await this.#rest(restMs(looks));
    }
  }

  /**
   * A record that is no older than this call, after it was seen. Where the bucket has copies, the server that stores is asked
   * which is the newest, and that is waited for.
   */
  async newest(id: string, seen: PlacedRecord): Promise<PlacedRecord> {
    if (this.#own === null) return seen;
    const subject = this.#subject(id);
    let newest = seen;
    let seq: number | null = null;
    for (let looks = 0; looks < lateLooksMax; looks++) {
      // It does not tell while somebody writes.
      seq ??= await this.#port.newestSeq(subject, subject, "records");
      if (seq !== null && newest.seq >= seq) break;
      await this.#rest(restMs(looks));
      newest = await this.get(id);
    }
    return newest;
  }

  /** The record of a kind and a name that is unique over all services. */
  async find(kind: string, name: string): Promise<StoredRecord | null> {
    const owner = this.#scope === undefined ? "*" : tokenOf(this.#scope);
    const filter = `$KV.${this.#bucket}.${owner}.${tokenOf(kind)}.${tokenOf(name)}`;
    const message = await this.#port.last("records", filter);
    return message ? this.read(message).record : null;
  }

  /** Records under a part of their ids, in the order of the ids. */
  async list(prefix: string): Promise<readonly StoredRecord[]> {
    const messages = await Promise.all(
      this.#filters(prefix).map((filter) => this.#port.read("records", filter)),
    );
    const records = messages.flat().map((message) => this.read(message).record);
    return records
      .filter((record) => record?.id.startsWith(prefix) === true)
      .map((record) => record as StoredRecord)
      .sort((a, b) => (a.id < b.id ? -1 : 1));
  }

  /** Writes a record over the one that was seen. Gives its position, or `null` if somebody was faster. */
  async put(
    id: string,
    seen: PlacedRecord,
    body: Json | null,
    expiresAt?: number,
    ahead?: string,
  ): Promise<PlacedRecord | null> {
    const record =
      body === null ? null : recordOf(id, (seen.record?.version ?? 0) + 1, body, expiresAt);
    const subject = this.#subject(id);
    const message: OutgoingMessage = {
      subject,
      body:
        record === null ? "" : JSON.stringify(ahead === undefined ? record : { ...record, ahead }),
      headers: this.#headersOf(record),
      expect: { filter: subject, seq: seen.seq },
    };
    const publication = await this.#port.publish("records", message);
    if (publication.outcome !== "stored") return null;
    this.#own?.stored(id, publication.seq);
    return { record, seq: publication.seq };
  }

  /** What the server is told of a record besides: that it is gone, and when it may forget it. */
  #headersOf(record: StoredRecord | null): Readonly<Record<string, string>> {
    if (record === null)
      return { [operationHeader]: "DEL", [lifetimeHeader]: lifetime(deletedForMs) };
    const { expiresAt } = record;
    if (expiresAt === undefined) return {};
    return { [lifetimeHeader]: lifetime(Math.max(expiresAt - this.#now(), 0) + expiredForMs) };
  }

  /** Compares and sets one record at the version that its writer saw. */
  async swap({ id, expect, body, expiresAt }: RecordWrite): Promise<SwapOutcome> {
    for (let round = 0; round < casRoundsMax; round++) {
      const seen = await this.get(id);
      if ((seen.record?.version ?? 0) !== expect) return { swapped: false, current: seen.record };
      const written = await this.put(id, seen, body, expiresAt);
      if (written) return { swapped: true, version: written.record?.version ?? 0 };
    }
    return { swapped: false, current: (await this.get(id)).record };
  }

  /**
   * Changes a record until nobody is in between, together with the other changes of this process that wait for it.
   * `change` gives the new body, or the same one to leave it as it is; it may be called again, on another body. `expiry`
   * says of a body when it may be forgotten. Gives what `change` last gave besides.
   */
  update<Body, Extra>(
    id: string,
    change: (body: Body | null) => Changed<Body, Extra>,
    expiry: (body: Body) => number | undefined = () => undefined,
  ): Promise<Extra> {
    return this.#lines.update(id, change, expiry);
  }

  /** The fault of a call that others were in the way of, for as long as a call waits. */
  busy(what: string): StoreBusy {
    const message = `${what} again and again, so that this call did not get its turn. Try again.`;
    return new StoreBusy({ url: this.#url, message });
  }

  /** Where all records lie that may be read. */
  get all(): string {
    const scope = this.#scope === undefined ? "" : `${tokenOf(this.#scope)}.`;
    return `$KV.${this.#bucket}.${scope}>`;
  }

  /** The record that a message holds. */
  read(message: StoredMessage): PlacedRecord {
    const { seq, body } = message;
    if (message.header(operationHeader) !== undefined || body === "") return { record: null, seq };
    const { ahead, ...record } = JSON.parse(body) as StoredRecord & { readonly ahead?: string };
    // What tells of the deployment itself lies beside the records and is none.
    if (record.id === undefined) return { record: null, seq };
    const isOver = record.expiresAt !== undefined && record.expiresAt <= this.#now();
    if (isOver) return { record: null, seq };
    return ahead === undefined ? { record, seq } : { record, seq, ahead };
  }

  /** An id such as `queue/shop/mail` lies under `shop.queue.mail`. */
  #subject(id: string): string {
    const [kind = "", service, ...rest] = id.split("/");
    const tokens = service === undefined ? ["_", kind] : [service, kind, ...rest];
    return `$KV.${this.#bucket}.${tokens.map(tokenOf).join(".")}`;
  }

  /** The subjects under which the records of a prefix lie, and maybe others. */
  #filters(prefix: string): readonly string[] {
    const [kind = "", service = "", ...rest] = prefix.split("/");
    if (!prefix.includes("/")) return [this.all];
    const owner = rest.length > 0 ? service : this.#scope;
    const kindOfOwner = `${owner === undefined ? "*" : tokenOf(owner)}.${tokenOf(kind)}`;
    // An id such as `contract/shop` ends with its owner.
    const ends = rest.length > 0 ? [".>"] : ["", ".>"];
    return ends.map((end) => `$KV.${this.#bucket}.${kindOfOwner}${end}`);
  }
}

/** How long a message lives, as the server reads it. */
function lifetime(ms: number): string {
  return `${Math.ceil(Math.min(ms, lifetimeMaxMs) / 1_000)}s`;
}

function recordOf(id: string, version: number, body: Json, expiresAt?: number): StoredRecord {
  return expiresAt === undefined ? { id, version, body } : { id, version, body, expiresAt };
}
