/**
 * Which deletions the log has forgotten. A view that has read of a job's creation, and comes to where its deletion was when that
 * is forgotten, would show the job for ever: such a view begins anew. So it is written down before a deletion is forgotten,
 * for each service, because a process may see that of one only, and for all of them.
 */

import { recordId } from "../record.js";
import type { Records } from "./records.js";

/** How far the log was cleared of deleted jobs. */
export interface Forgotten {
  /** Up to here nothing is left of deleted jobs but their deletions: who reads the log from now on sees none of their creations. */
  readonly cleaned: number;
  /** Up to here deletions may be forgotten. */
  readonly forgotten: number;
}

interface StoredForgotten extends Forgotten {
  /** Whose positions these are: a log that was made anew counts from 1 again. */
  readonly origin: string;
}

const nothing: Forgotten = { cleaned: 0, forgotten: 0 };

/** Stands for all services. */
const everyService = "_all";

/** What is written down of deletions. */
export class ForgottenRecords {
  readonly #records: Pick<Records, "get" | "update">;
  readonly #origin: string;

  constructor(records: Pick<Records, "get" | "update">, origin: string) {
    this.#records = records;
    this.#origin = origin;
  }

  /** What is known of one service, or of all. */
  async read(service: string = everyService): Promise<Forgotten> {
    const { record } = await this.#records.get(recordId.forgotten(service));
    return this.#own((record?.body ?? null) as StoredForgotten | null) ?? nothing;
  }

  /** Writes down how far deletions of a service, or of any, are forgotten. What others have written stays. */
  async write({ cleaned, forgotten }: Forgotten, service: string = everyService): Promise<void> {
    await this.#records.update<StoredForgotten, null>(recordId.forgotten(service), (body) => {
      const was = this.#own(body) ?? nothing;
      if (body && was.cleaned >= cleaned && was.forgotten >= forgotten)
        return { body, extra: null };
      const next = {
        origin: this.#origin,
        cleaned: Math.max(was.cleaned, cleaned),
        forgotten: Math.max(was.forgotten, forgotten),
      };
      return { body: next, extra: null };
    });
  }

  #own(body: StoredForgotten | null): Forgotten | null {
    return body?.origin === this.#origin ? body : null;
  }
}

/** Tells whether a view that this process brings up to date may have missed a deletion. */
export class MissedDeletions {
  readonly #read: () => Promise<Forgotten>;
  /** Up to here the view has missed nothing, because its jobs were cleaned away before it began. */
  #base = 0;

  constructor(read: () => Promise<Forgotten>) {
    this.#read = read;
  }

  /** The view is about to read the log from its start. */
  async begin(): Promise<void> {
    this.#base = (await this.#read()).cleaned;
  }

  /**
   * Whether a deletion may be missing from what was just read and follows on a position. It is asked after the reading: what
   * was forgotten before that was written down before.
   */
  async mayLieBehind(position: number): Promise<boolean> {
    return (await this.#read()).forgotten > Math.max(this.#base, position);
  }
}
