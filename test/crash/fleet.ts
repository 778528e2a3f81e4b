// The worker processes of the crash test: a few places, each with a process that is killed, paused and
// started again.

import type { Random } from "../simulation/random.js";
import { type Child, type Ending, startChild } from "./children.js";
import { leaseMs } from "./contract.js";
import { pass, tick } from "./time.js";

interface Place {
  readonly instance: string;
  worker: Child;
}

/** A process that was killed, by its name in the ledgers, and the moment before the kill. */
export interface Killed {
  readonly process: string;
  readonly tick: number;
}

export class Fleet {
  readonly killed: Killed[] = [];
  readonly #start: (instance: string) => Child;
  readonly #places: Place[];
  #pauses = 0;

  constructor(size: number, url: string, folder: string) {
    this.#start = (instance) => startChild("./worker.ts", [url, folder, instance]);
    this.#places = Array.from({ length: size }, (_, index) => {
      const instance = `worker-${index + 1}`;
      return { instance, worker: this.#start(instance) };
    });
  }

  get pauses(): number {
    return this.#pauses;
  }

  /** Waits until every worker of the fleet is at work. */
  async ready(): Promise<void> {
    await Promise.all(this.#places.map(({ worker }) => worker.said("ready")));
  }

  /** Every worker is killed, paused, and killed while it is paused, some of it more than once. */
  async trouble(random: Random): Promise<void> {
    await Promise.all(this.#places.map((place) => this.#strike(place, random.fork())));
  }

  /** Asks every worker to stop, and gives the codes that they ended with and what they complained of. */
  async stop(): Promise<readonly Pick<Ending, "code" | "errors">[]> {
    for (const { worker } of this.#places) worker.child.kill("SIGTERM");
    const endings = await Promise.all(this.#places.map(({ worker }) => worker.ended));
    return endings.map(({ code, errors }) => ({ code, errors }));
  }

  async #strike(place: Place, random: Random): Promise<void> {
    for (const blow of shuffled(blows, random)) {
      await place.worker.said("ready");
      await pass(random.whole(200, 800));
      if (blow !== "kill") await this.#pause(place, random.whole(leaseMs, 2 * leaseMs));
      if (blow === "pause") place.worker.child.kill("SIGCONT");
      else await this.#kill(place);
    }
  }

  async #kill(place: Place): Promise<void> {
    const { child } = place.worker;
    this.killed.push({ process: `${place.instance}.${child.pid}`, tick: tick() });
    child.kill("SIGKILL");
    await place.worker.ended;
    place.worker = this.#start(place.instance);
  }

  /** Pauses a worker past its leases. When it goes on, it believes that it still holds them. */
  async #pause(place: Place, forMs: number): Promise<void> {
    this.#pauses++;
    place.worker.child.kill("SIGSTOP");
    await pass(forMs);
  }
}

/** What happens to each worker, in an order of its own. */
const blows = ["kill", "kill", "pause", "pause", "pause", "pause and kill"] as const;

function shuffled<Item>(items: readonly Item[], random: Random): readonly Item[] {
  const rest = [...items];
  return items.flatMap(() => rest.splice(random.whole(0, rest.length - 1), 1));
}
