/**
 * A schema that a newer Millrace has migrated while this process runs. What this process would write there is no longer right,
 * so that from then on every call is refused with a clear message.
 */
import type { PoolClient } from "pg";
import { type StoreError, StoreTooNew } from "../errors.js";
import { codeOf, type Place, storeError } from "./faults.js";
import { migrations } from "./schema.js";

/**
 * Faults of statements that do not fit the tables which they meet: names that are gone or mean something else, columns that
 * must be filled or hold something else, and a remembered plan whose table has another shape now.
 */
const misfit = /^(42...|23502|23514|0A000)$/;

/** How often to look while nothing goes wrong, in real time: others are as real as the server. */
const lookEveryMs = 30_000;

/** Runs one statement on some connection. */
export type Ask = (text: string) => Promise<{ readonly rows: readonly unknown[] }>;

/** The error of a schema at a version; null for one that this process knows. */
export function tooNew(
  { schema, where }: Pick<Place, "schema" | "where">,
  found: number,
): StoreTooNew | null {
  const known = migrations.length;
  if (found <= known) return null;
  const message = `The schema "${schema}" of ${where} was written by a newer Millrace (schema ${found}; this one knows ${known}). Upgrade this process.`;
  return new StoreTooNew({ url: where, message, found, known });
}

export class NewerSchema {
  readonly #place: Place;
  readonly #ask: Ask;
  /** Versions only grow, so that what was too new once stays so. */
  #found: StoreTooNew | null = null;
  #lookAt = performance.now() + lookEveryMs;

  /** `ask` runs one statement on any connection. */
  constructor(place: Place, ask: Ask) {
    this.#place = place;
    this.#ask = ask;
  }

  /** Refuses what comes after a newer schema was met. From time to time it looks for one, without making anybody wait. */
  check(): void {
    if (this.#found !== null) throw this.#found;
    const now = performance.now();
    if (now < this.#lookAt) return;
    this.#lookAt = now + lookEveryMs;
    void this.#look(this.#ask);
  }

  /** A connection was made, perhaps because the server had been away, which is when schemas are migrated. */
  connected(client: PoolClient): void {
    void this.#look((text) => client.query(text));
  }

  /** What a caller sees of a fault. */
  async faultOf(error: unknown): Promise<StoreError> {
    if (!misfit.test(codeOf(error))) return storeError(error, this.#place);
    await this.#look(this.#ask);
    return this.#found ?? storeError(error, this.#place);
  }

  /** One that cannot be read is not newer, whatever else is wrong with it. */
  async #look(ask: Ask): Promise<void> {
    try {
      const { rows } = await ask(`SELECT version FROM "${this.#place.schema}".store`);
      const [row] = rows as readonly { readonly version: unknown }[];
      this.#found ??= tooNew(this.#place, Number(row?.version ?? 0));
    } catch {
      return;
    }
  }
}
