/**
 * Tickets that this process has stored. A server confirms a message a moment before it tells the consumers of it, and in a
 * cluster the copy that gives it out may be behind; whoever claims what they have stored themselves is to find it.
 */
import type { Delivery, Port } from "./port.js";
import { type Rest, restMs } from "./record-lines.js";

/** How often a consumer is asked again for a ticket that it has not given out yet: for a tenth of a second or so. */
const looksMax = 9;

/** For how many consumers tickets are remembered. A process may create jobs of any type and never claim one. */
const consumersMax = 1_000;

/** What looking for tickets needs of the engine. */
export interface OwnTicketsContext {
  readonly port: Pick<Port, "fetch" | "progressOf">;
  readonly rest: Rest;
}

/** The newest ticket that this process has stored for each consumer, and up to where they have given out theirs. */
export class OwnTickets {
  readonly #context: OwnTicketsContext;
  readonly #stored = new Map<string, number>();
  readonly #givenOut = new Map<string, number>();

  constructor(context: OwnTicketsContext) {
    this.#context = context;
  }

  /** This process has stored a ticket for a consumer. Answers may come out of order. */
  stored(consumer: string, seq: number): void {
    if (this.#stored.size >= consumersMax) this.#stored.clear();
    if (seq > (this.#stored.get(consumer) ?? 0)) this.#stored.set(consumer, seq);
  }

  /** A consumer has given out what lies up to a position. */
  givenOut(consumer: string, seq: number): void {
    if (seq > (this.#givenOut.get(consumer) ?? 0)) this.#givenOut.set(consumer, seq);
  }

  /**
   * What a consumer gives out that had less than it was asked for: what this process has stored, unless others were given
   * it. What was taken counts as the claim's, and so nothing is thrown.
   */
  async late(consumer: string, limit: number): Promise<readonly Delivery[]> {
    const { port, rest } = this.#context;
    const late: Delivery[] = [];
    for (let looks = 1; late.length < limit; looks++) {
      const seq = this.#stored.get(consumer) ?? 0;
      if (seq <= (this.#givenOut.get(consumer) ?? 0)) break;
      const progress = await port.progressOf(consumer).catch(() => null);
      if (progress === null || progress.deliveredUpTo >= seq || looks > looksMax) {
        // One that does not come in time is left to the next look, as that of another process is.
        this.givenOut(consumer, seq);
        break;
      }
      await rest(restMs(looks));
      const given = await port.fetch(consumer, limit - late.length).catch(() => null);
      for (const delivery of given ?? []) {
        this.givenOut(consumer, delivery.seq);
        late.push(delivery);
      }
    }
    return late;
  }
}
