/**
 * The consumers that claims take tickets from: three for each lane, one for each priority. They are made before a worker's
 * first claim, so that a worker that could not be given anything does not start, and again where somebody removes one.
 */
import type { ClaimLane } from "../engine.js";
import { StoreBusy } from "../errors.js";
import { mayPass } from "./faults.js";
import type { Port } from "./port.js";
import { type LaneName, type PriorityLane, priorityLanes, type Subjects } from "./subjects.js";

/** How many consumers are made at once. A server makes one after the other, and each is waited for no longer than any answer. */
const makeMax = 150;

/** A lane as far as its consumers depend on it. */
export type ConsumedLane = Omit<ClaimLane, "free">;

/** The consumers that a process knows to be there. */
export class Consumers {
  readonly #context: { readonly port: Port; readonly subjects: Subjects };
  readonly #made = new Map<string, Promise<void>>();

  constructor(context: { readonly port: Port; readonly subjects: Subjects }) {
    this.#context = context;
  }

  /** The names of a lane's consumers, the highest priority first. */
  namesOf(lane: ConsumedLane): readonly string[] {
    const name = laneName(lane);
    return priorityLanes.map((priority) => this.#context.subjects.consumer(name, priority));
  }

  /** Makes the consumer of a lane and priority, unless it is known to be there. */
  ensure(lane: ConsumedLane, priority: PriorityLane): Promise<void> {
    const { port, subjects } = this.#context;
    const name = laneName(lane);
    const consumer = subjects.consumer(name, priority);
    const known = this.#made.get(consumer);
    if (known !== undefined) return known;
    const filter = subjects.ticketFilter(name, priority);
    const made = port.ensureConsumer({ name: consumer, filter, ackWaitMs: lane.leaseMs });
    made.catch(() => this.#made.delete(consumer));
    this.#made.set(consumer, made);
    return made;
  }

  /** Somebody has removed a consumer. */
  forget(consumer: string): void {
    this.#made.delete(consumer);
  }

  /**
   * Makes the consumers of lanes. Rejects where one is refused. A server that does not answer has refused nothing: the claims
   * ask it again.
   */
  async prepare(lanes: readonly ConsumedLane[]): Promise<void> {
    const wanted = lanes.flatMap((lane) => priorityLanes.map((priority) => ({ lane, priority })));
    for (let from = 0; from < wanted.length; from += makeMax) {
      const some = wanted.slice(from, from + makeMax);
      await Promise.all(
        some.map(({ lane, priority }) => this.ensure(lane, priority).catch(refuse)),
      );
    }
  }
}

/** Throws what asking again would not change. */
function refuse(error: unknown): void {
  if (!StoreBusy.is(error) && !mayPass(error)) throw error;
}

/** A lane's name ends with the version of the type. */
export function laneName({ service, queue, type, lane }: ConsumedLane): LaneName {
  const typeVersion = Number(lane.slice(lane.lastIndexOf("@") + 1));
  return { service, queue, type, typeVersion };
}
