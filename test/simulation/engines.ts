// Two faces of the one store: what the simulation itself sees of every call that reaches the store,
// and what a process sees through a network that loses, repeats and delays.
import type { Clock } from "#millrace/engine/clock.js";
import type { Engine, WakeTopic } from "#millrace/engine/engine.js";
import { StoreBusy, StoreFailed, StoreUnavailable } from "#millrace/engine/errors.js";
import { openMemory } from "#millrace/engine/memory/engine.js";
import { recordId } from "#millrace/engine/record.js";
import type { HandlerLedger } from "./ledger.js";
import type { SimulatedProcess } from "./process.js";
import type { Random } from "./random.js";

/** How likely each kind of trouble is, per call. */
export interface Weather {
  readonly lostRequest: number;
  readonly lostReply: number;
  /** The call is carried out twice, at once or some time later. */
  readonly repeated: number;
  /** The call takes up to `slowMs`. */
  readonly slow: number;
  /** The call takes up to `stuckMs`, which is longer than a lease. */
  readonly stuck: number;
  readonly crash: number;
  readonly lostHint: number;
  /** The answer comes from a copy that is behind. */
  readonly behind: number;
}

/** No trouble at all. */
export const calm: Weather = {
  lostRequest: 0,
  lostReply: 0,
  repeated: 0,
  slow: 0,
  stuck: 0,
  crash: 0,
  lostHint: 0,
  behind: 0,
};

/** A store with everybody who uses it. */
export interface SimulatedStore {
  /** The store without faults, for the simulation's own eyes. */
  readonly engine: Engine;
  /** Whether a note may be stored after its attempt is over, and is then ignored by everybody who folds the log. */
  readonly hasLateNotes: boolean;
  /** The store as one process sees it. */
  engineOf(network: Network): Engine;
  /** How likely each kind of trouble is in one simulation. Some kinds are frequent, others are absent. */
  weather(random: Random): Weather;
  /** A blow to the store itself; gives what it was. */
  readonly strike?: (random: Random) => string;
  /** How long it may take until somebody else does what a process did for all that is gone. */
  readonly takeoverMs?: number;
  /** What is wrong with the store itself when all is over, in sentences. */
  readonly check?: () => Promise<readonly string[]>;
}

/** The memory engine. */
export class MemoryStore implements SimulatedStore {
  readonly engine: Engine;
  readonly hasLateNotes = false;

  constructor(clock: Clock, ledger: HandlerLedger) {
    this.engine = observedEngine(openMemory({ clock }), ledger);
  }

  engineOf(network: Network): Engine {
    return faultyEngine(this.engine, network);
  }

  weather(random: Random): Weather {
    const likely = (most: number) => (random.chance(0.5) ? random.next() * most : 0);
    return {
      lostRequest: likely(0.1),
      lostReply: likely(0.1),
      repeated: likely(0.1),
      slow: likely(0.5),
      stuck: likely(0.04),
      crash: likely(0.02),
      lostHint: likely(0.5),
      behind: 0,
    };
  }
}

const slowMs = 60;
const stuckMs = 8_000;
const repeatedWithinMs = 4_000;

/** The methods that travel to the store and back. */
const remoteMethods = [
  "load",
  "append",
  "note",
  "claim",
  "renew",
  "settle",
  "records",
  "swap",
  "due",
  "query",
  "head",
  "prune",
] as const;

type RemoteMethod = (typeof remoteMethods)[number];
const remote: ReadonlySet<string | symbol> = new Set(remoteMethods);

/** The store as it is, which tells the ledger of every lease and sees to it that pauses hold. */
function observedEngine(engine: Engine, ledger: HandlerLedger): Engine {
  const seen: Pick<Engine, "claim" | "renew"> = {
    claim: async (ask) => {
      // Both calls take effect now, one right after the other.
      const settings = engine.records(
        ask.lanes.map((lane) => recordId.queue(lane.service, lane.queue)),
      );
      const answer = await engine.claim(ask);
      const paused = new Set<string>();
      for (const record of await settings) {
        if ((record?.body as { paused?: boolean } | undefined)?.paused)
          paused.add(record?.id ?? "");
      }
      for (const { job, leaseUntil } of answer.jobs) {
        ledger.granted(job.id, job.token, leaseUntil);
        if (!paused.has(recordId.queue(job.service, job.queue))) continue;
        ledger.violations.push(`${job.id} was claimed from the paused queue ${job.queue}.`);
      }
      return answer;
    },
    renew: async (held) => {
      const now = engine.now();
      const outcomes = await engine.renew(held);
      for (const [index, { job, token, leaseMs }] of held.entries()) {
        const outcome = outcomes[index];
        if (outcome?.outcome === "held") ledger.granted(job.id, token, outcome.leaseUntil);
        else ledger.prolonged(job.id, token, now + leaseMs);
      }
      return outcomes;
    },
  };
  return new Proxy(engine, {
    get: (target, name) => {
      const member = Reflect.get(name in seen ? seen : target, name) as unknown;
      if (typeof member !== "function") return member;
      return (...given: unknown[]) => {
        if (remote.has(name)) ledger.observe(target.now());
        return member.apply(target, given);
      };
    },
  });
}

/** What a process sees the store through. */
export interface Network {
  readonly process: SimulatedProcess;
  readonly random: Random;
  readonly weather: () => Weather;
  /** Whether the process cannot reach the store at all now. */
  readonly isCutOff: () => boolean;
  readonly trace: (line: string) => void;
}

/** The store as one process sees it. */
function faultyEngine(engine: Engine, network: Network): Engine {
  const { process, random } = network;
  return new Proxy(engine, {
    get: (target, name) => {
      const member = Reflect.get(target, name, target) as (...given: unknown[]) => unknown;
      if (name === "wake") {
        return (topic: WakeTopic, on: () => void) => {
          const stop = target.wake(topic, () => {
            if (!random.chance(network.weather().lostHint)) process.deliver(on);
          });
          process.onGone(stop);
          return stop;
        };
      }
      if (!remote.has(name)) return typeof member === "function" ? member.bind(target) : member;
      return (...given: unknown[]) => {
        const work = () => member.apply(target, given) as Promise<unknown>;
        return carryOut(name as RemoteMethod, given, work, network);
      };
    },
  });
}

async function carryOut(
  method: RemoteMethod,
  given: readonly unknown[],
  work: () => Promise<unknown>,
  network: Network,
): Promise<unknown> {
  const { process, random, trace } = network;
  const weather = network.weather();
  if (random.chance(weather.crash / 2)) return crash(`before ${method}`, network);
  await travel(weather, network);
  if (isForgotten(network)) return new Promise(() => {});
  if (network.isCutOff() || random.chance(weather.lostRequest)) {
    trace(`${process.name}: the request ${method} is lost`);
    await process.arrive();
    throw fault(random);
  }
  const answer = await work();
  if (random.chance(weather.repeated)) repeat(method, given, work, network);
  if (random.chance(weather.crash / 2)) return crash(`after ${method}`, network);
  await travel(weather, network);
  if (process.state !== "alive") await process.arrive();
  if (!network.isCutOff() && !random.chance(weather.lostReply)) return answer;
  trace(`${process.name}: the reply to ${method} is lost`);
  throw fault(random);
}

/** What processes of the storm had sent and was still on its way when it ended never arrives. */
function isForgotten({ process, weather }: Network): boolean {
  return process.state === "gone" && weather() === calm;
}

/** A message on its way. One that takes no time arrives in the same turn. */
async function travel({ slow, stuck }: Weather, { process, random }: Network): Promise<void> {
  const draw = random.next();
  if (draw >= slow + stuck) return;
  await process.travel(random.whole(1, draw < stuck ? stuckMs : slowMs));
}

function crash(when: string, { process, trace }: Network): Promise<never> {
  trace(`${process.name}: crashes ${when}`);
  process.end();
  return new Promise(() => {});
}

/**
 * Carries a call out once more and throws the answer away. A create is repeated at once only: later
 * its key might have room, and a caller who was refused would have a job after all.
 */
function repeat(
  method: RemoteMethod,
  given: readonly unknown[],
  work: () => Promise<unknown>,
  network: Network,
): void {
  const { process, random, trace } = network;
  const again = () => {
    if (isForgotten(network)) return;
    trace(`${process.name}: ${method} is carried out again`);
    work().catch(() => {});
  };
  const creates = JSON.stringify(given).includes('"name":"created"');
  if (creates || random.chance(0.5)) again();
  else void process.travel(random.whole(1, repeatedWithinMs)).then(again);
}

function fault(random: Random): Error {
  const about = { url: "memory:", message: "The simulated store did not answer." };
  const kinds = [StoreBusy, StoreFailed, StoreUnavailable] as const;
  return new (random.pick(kinds))(about);
}
