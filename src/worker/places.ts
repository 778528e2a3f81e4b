/**
 * The places under a limit that holds over all processes: a record with one entry for each place that is taken, which
 * lapses unless it is renewed. Jobs of one process pass a place on to each other, so that a busy limit costs no write for
 * every job; after a while the place goes back, so that others get it, too.
 */
import type { Json } from "../core/json.js";
import type { MiddlewareContext } from "./middleware.js";
import { SharedRecord } from "./shared-record.js";

/** How long a place is held without renewal, and how often it is renewed. */
const holdMs = 30_000;
const renewMs = 10_000;

/** How long a process passes a place on among its own jobs. */
const passOnMs = 2_000;

/** How often a process that waits looks for places that others have given back. */
const lookMs = 250;

/** A place that is taken. */
export interface Place {
  readonly id: string;
  /** The monotonic time from which it is this process's. */
  readonly since: number;
}

/** What is stored: who holds a place until when. */
interface Holders {
  holders: (readonly [id: string, until: number])[];
  isChanged: boolean;
}

interface Waiting {
  readonly give: (place: Place | null) => void;
}

export class Places {
  readonly #context: MiddlewareContext;
  readonly #max: number;
  readonly #record: SharedRecord<Holders>;
  readonly #held = new Set<Place>();
  #waiting: Waiting[] = [];
  #isLooking = false;
  #wakeUp: (() => void) | undefined;
  #callOffRenewal: (() => void) | undefined;

  constructor(context: MiddlewareContext, id: string, max: number) {
    this.#context = context;
    this.#max = max;
    this.#record = new SharedRecord(context.engine, id, readHolders, nextHolders);
  }

  /** Takes a place; `null` when there was none for so long, or the signal aborts. */
  take(waitMs: number, signal: AbortSignal): Promise<Place | null> {
    return new Promise((resolve) => {
      const waiting: Waiting = {
        give: (place) => {
          callOff();
          signal.removeEventListener("abort", giveUp);
          this.#waiting = this.#waiting.filter((each) => each !== waiting);
          resolve(place);
        },
      };
      const giveUp = () => waiting.give(null);
      const callOff = this.#context.clock.after(waitMs, giveUp);
      signal.addEventListener("abort", giveUp);
      this.#waiting.push(waiting);
      if (signal.aborted) giveUp();
      else void this.#look();
    });
  }

  /** Passes a place on to the next of this process, or gives it back. What cannot be given back lapses. */
  async give(place: Place): Promise<void> {
    const { clock, logger } = this.#context;
    const [next] = this.#waiting;
    if (next && clock.monotonic() < place.since + passOnMs) {
      next.give(place);
      return;
    }
    this.#held.delete(place);
    try {
      await this.#record.change((body) => {
        body.holders = body.holders.filter(([id]) => id !== place.id);
        body.isChanged = true;
      });
    } catch (error) {
      logger.warn({ error }, "A place under a limit could not be given back; it will lapse.");
    }
    this.#wakeUp?.();
  }

  /** Looks for places as long as somebody waits for one. */
  async #look(): Promise<void> {
    if (this.#isLooking) return;
    this.#isLooking = true;
    try {
      while (this.#waiting.length > 0) {
        await this.#takeFree();
        if (this.#waiting.length > 0) await this.#pause();
      }
    } catch (error) {
      this.#context.logger.warn({ error }, "Places under a limit could not be taken.");
      for (const waiting of [...this.#waiting]) waiting.give(null);
    }
    this.#isLooking = false;
  }

  async #takeFree(): Promise<void> {
    const { engine, clock, ids } = this.#context;
    const since = clock.monotonic();
    const taken = await this.#record.change((body) => {
      const now = engine.now();
      body.holders = body.holders.filter(([, until]) => until > now);
      const free = Math.min(this.#max - body.holders.length, this.#waiting.length);
      const places = Array.from({ length: Math.max(free, 0) }, () => ids.eventId());
      for (const id of places) body.holders.push([id, now + holdMs]);
      body.isChanged ||= places.length > 0;
      return places;
    });
    for (const id of taken) {
      const place = { id, since };
      this.#held.add(place);
      this.#watch();
      const [next] = this.#waiting;
      if (next) next.give(place);
      else await this.give(place);
    }
  }

  /** Until the next look, or until a place of this process was given back. */
  #pause(): Promise<void> {
    return new Promise((resolve) => {
      const go = () => {
        callOff();
        this.#wakeUp = undefined;
        resolve();
      };
      const callOff = this.#context.clock.after(lookMs, go);
      this.#wakeUp = go;
    });
  }

  #watch(): void {
    this.#callOffRenewal ??= this.#context.clock.after(renewMs, () => {
      this.#callOffRenewal = undefined;
      if (this.#held.size === 0) return;
      this.#watch();
      void this.#renew();
    });
  }

  async #renew(): Promise<void> {
    const { engine, logger } = this.#context;
    try {
      await this.#record.change((body) => {
        const until = engine.now() + holdMs;
        const held = new Set([...this.#held].map(({ id }) => id));
        body.holders = body.holders.filter(([id]) => !held.has(id));
        for (const id of held) body.holders.push([id, until]);
        body.isChanged = true;
      });
    } catch (error) {
      logger.warn({ error }, "Places under a limit could not be renewed.");
    }
  }
}

function readHolders(body: Json | null): Holders {
  const { holders = [] } = (body ?? {}) as Partial<Holders>;
  return { holders: [...holders], isChanged: false };
}

function nextHolders({ holders, isChanged }: Holders) {
  if (!isChanged) return null;
  const expiresAt = Math.max(0, ...holders.map(([, until]) => until)) + holdMs;
  return { body: { holders } as Holders, expiresAt };
}
