// The wire between a process and the server: it loses, delays and reorders, and the process may crash before and
// after everything that it sends.
import { StoreBusy, StoreUnavailable } from "#millrace/engine/errors.js";
import type { ProjectionStore } from "#millrace/engine/projection/store.js";
import { calm, type Network, type Weather } from "../engines.js";
import type { Wire } from "./server.js";

/** How long a process waits for an answer; leases are as much shorter here than they usually are. */
const timeoutMs = 500;

const slowMs = 30;
const stuckMs = 8_000;
const behindMaxMs = 1_000;

/** The wire of one process. */
export function networkWire(network: Network): Wire {
  const { process, random, weather } = network;
  return {
    request: (what, work) =>
      new Promise((resolve, reject) => {
        process.deliver(() => exchange(network, what, work, resolve, reject));
      }),
    send: (what, work) =>
      process.deliver(() => {
        if (!isLost(network, what)) travel(network, work);
      }),
    arrival: async () => {
      await new Promise<void>((resolve) => travel(network, resolve));
      while (network.isCutOff()) await process.travel(timeoutMs);
      await process.arrive();
    },
    hinted: (heard) => {
      if (!random.chance(weather().lostHint) && !network.isCutOff()) process.deliver(heard);
    },
    behindMs: () => (random.chance(weather().behind) ? random.whole(1, behindMaxMs) : 0),
  };
}

/** A request and its answer. Whoever has given up does not hear that the server has done it all the same. */
function exchange<Answer>(
  network: Network,
  what: string,
  work: () => Answer,
  resolve: (answer: Answer) => void,
  reject: (error: unknown) => void,
): void {
  const { process, random, trace } = network;
  const callOff = process.clock.after(timeoutMs, () => {
    trace(`${process.name}: nobody answers to ${what}`);
    reject(new StoreBusy({ url: "nats://simulated", message: "The server did not answer." }));
  });
  if (hasCrashed(network, `before ${what}`) || isLost(network, what)) return;
  travel(network, () => {
    let end: () => void;
    try {
      const answer = work();
      end = () => resolve(answer);
    } catch (error) {
      end = () => reject(error);
    }
    if (hasCrashed(network, `after ${what}`)) return;
    travel(network, () => {
      if (network.isCutOff() || random.chance(network.weather().lostReply)) return;
      callOff();
      process.deliver(end);
    });
  });
}

function isLost({ random, weather, isCutOff, process, trace }: Network, what: string): boolean {
  if (!isCutOff() && !random.chance(weather().lostRequest)) return false;
  trace(`${process.name}: ${what} is lost`);
  return true;
}

/** A message on its way. What dead processes had sent when the storm ended never arrives. */
function travel(network: Network, arrive: () => void): void {
  const { process, random } = network;
  const delayMs = delayOf(network.weather(), random.next(), () => random.next());
  if (delayMs === 0) {
    arrive();
    return;
  }
  void process.travel(delayMs).then(() => {
    if (process.state !== "gone" || network.weather() !== calm) arrive();
  });
}

function delayOf({ slow, stuck }: Weather, draw: number, next: () => number): number {
  if (draw >= slow + stuck) return 0;
  return Math.ceil(next() * (draw < stuck ? stuckMs : slowMs));
}

function hasCrashed({ process, random, weather, trace }: Network, when: string): boolean {
  if (!random.chance(weather().crash / 2)) return false;
  trace(`${process.name}: crashes ${when}`);
  process.end();
  return true;
}

/** The database of the read model as one process sees it. */
export function networkStore(inner: ProjectionStore, network: Network): ProjectionStore {
  const { process, random, weather } = network;
  const ask = async <Answer>(what: string, work: () => Promise<Answer>): Promise<Answer> => {
    await process.arrive();
    if (hasCrashed(network, `before ${what}`)) await process.arrive();
    if (random.chance(weather().lostRequest))
      throw new StoreUnavailable({ url: inner.url, message: "The database is away." });
    const answer = await work();
    if (hasCrashed(network, `after ${what}`)) await process.arrive();
    await process.arrive();
    return answer;
  };
  return {
    url: inner.url,
    open: () => ask("the projection is opened", () => inner.open()),
    write: (kind, given) => ask(`${kind} in the projection`, () => inner.write(kind, given)),
    read: (kind, given) => ask(`${kind} of the projection`, () => inner.read(kind, given)),
    listen: (on) => inner.listen(() => process.deliver(on)),
    close: () => inner.close(),
  };
}
