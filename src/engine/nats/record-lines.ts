/**
 * Lines of changes to records. The changes of one process to one record wait for each other: all that wait are applied to
 * what one read gave and are stored with one write, so that they do not overtake each other again and again. Processes that
 * meet at a record rest for a while that differs, and look again.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { Json } from "../../core/json.js";
import type { StoredRecord } from "../record.js";
import { isTooLarge } from "./faults.js";

/** How often a write looks again before it gives up. */
export const casRoundsMax = 100;

/** How many changes one write may hold. */
const togetherMax = 1_000;

/** The longest rest between two looks. */
const restMaxMs = 50;

/** How often a copy is read again that does not show what is known to be stored: for about a second with the rests between. */
export const lateLooksMax = 45;

/** Waits for some time, at most so long. It differs from one process to the next, so that they do not meet again. */
export type Rest = (mostMs: number) => Promise<void>;

/** Rests by the machine's own clock, also where a test moves that of the store. */
export const machineRest: Rest = (mostMs) => delay(Math.random() * mostMs);

/** How long one may rest before a look, having looked so often: ever longer, up to a limit. */
export function restMs(looks: number, mostMs: number = restMaxMs): number {
  return Math.min(2 ** looks, mostMs);
}

/** What a change makes of a body: a new one, or the same to leave it as it is; and what its caller is told besides. */
export interface Changed<Body, Extra> {
  readonly body: Body | null;
  readonly extra: Extra;
}

/** A change that waits in line. */
interface Waiting {
  readonly change: (body: Json | null) => Changed<Json, unknown>;
  /** When a body may be forgotten. */
  readonly expiry: (body: Json) => number | undefined;
  readonly resolve: (extra: unknown) => void;
  readonly reject: (error: unknown) => void;
}

/** A record that was read, with whatever its writer compares with. */
interface Seen {
  readonly record: StoredRecord | null;
}

/** What lines need of the records. */
interface LinesContext<Placed extends Seen> {
  readonly get: (id: string) => Promise<Placed>;
  /** Gives `null` if somebody was faster. */
  readonly put: (
    id: string,
    seen: Placed,
    body: Json | null,
    expiresAt?: number,
  ) => Promise<Placed | null>;
  readonly rest: Rest;
  /** The fault of a record that others changed too often. */
  readonly busy: (id: string) => Error;
}

/** The lines of a process. */
export class RecordLines<Placed extends Seen> {
  readonly #context: LinesContext<Placed>;
  /** What waits for a record. Who comes to an empty line serves it until it is empty again. */
  readonly #lines = new Map<string, Waiting[]>();

  constructor(context: LinesContext<Placed>) {
    this.#context = context;
  }

  /** Changes a record until nobody is in between; gives what the change last gave besides. */
  update<Body, Extra>(
    id: string,
    change: (body: Body | null) => Changed<Body, Extra>,
    expiry: (body: Body) => number | undefined,
  ): Promise<Extra> {
    return new Promise<Extra>((resolve, reject) => {
      const waiting = { change, expiry, resolve, reject } as unknown as Waiting;
      const line = this.#lines.get(id);
      if (line) {
        line.push(waiting);
        return;
      }
      this.#lines.set(id, [waiting]);
      void this.#serve(id);
    });
  }

  async #serve(id: string): Promise<void> {
    // Those of the same turn go together.
    await Promise.resolve();
    for (;;) {
      const line = this.#lines.get(id) ?? [];
      if (line.length === 0) break;
      await this.#carryOut(id, line.splice(0, togetherMax));
    }
    this.#lines.delete(id);
  }

  /** Carries out changes together, and tells everybody. Never throws. */
  async #carryOut(id: string, changes: readonly Waiting[]): Promise<void> {
    try {
      const answers = await this.#write(id, changes);
      for (const [index, { resolve, reject }] of changes.entries()) {
        const answer = answers[index];
        if (answer && "extra" in answer) resolve(answer.extra);
        else reject(answer?.error);
      }
    } catch (error) {
      if (changes.length > 1 && isTooLarge(error)) {
        // Fewer of them may fit into a message.
        const half = Math.ceil(changes.length / 2);
        await this.#carryOut(id, changes.slice(0, half));
        await this.#carryOut(id, changes.slice(half));
      } else for (const { reject } of changes) reject(error);
    }
  }

  async #write(id: string, changes: readonly Waiting[]): Promise<readonly Answer[]> {
    const { get, put, rest, busy } = this.#context;
    for (let round = 0; round < casRoundsMax; round++) {
      const seen = await get(id);
      const before = seen.record?.body ?? null;
      const { body, answers, expiresAt } = applied(before, changes);
      if (body === before || (await put(id, seen, body, expiresAt))) return answers;
      await rest(restMs(round));
    }
    throw busy(id);
  }
}

/** What one of several changes gave. */
type Answer = { readonly extra: unknown } | { readonly error: unknown };

/** Applies changes one after the other. One that throws changes nothing, and is the trouble of its caller alone. */
function applied(
  before: Json | null,
  changes: readonly Waiting[],
): {
  readonly body: Json | null;
  readonly answers: readonly Answer[];
  readonly expiresAt: number | undefined;
} {
  let body = before;
  let expiry: Waiting["expiry"] = () => undefined;
  const answers = changes.map((waiting): Answer => {
    try {
      const changed = waiting.change(body);
      if (changed.body !== body) expiry = waiting.expiry;
      body = changed.body;
      return { extra: changed.extra };
    } catch (error) {
      return { error };
    }
  });
  return { body, answers, expiresAt: body === null ? undefined : expiry(body) };
}
