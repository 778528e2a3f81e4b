// The JetStream engine in every process of a simulation, on one simulated server and one read model.
import type { Clock } from "#millrace/engine/clock.js";
import type { Engine } from "#millrace/engine/engine.js";
import { eventOf } from "#millrace/engine/event-text.js";
import { startFactsOf } from "#millrace/engine/nats/entry.js";
import { renewalsOf } from "#millrace/engine/nats/leases.js";
import type { StoredMessage, StreamName } from "#millrace/engine/nats/port.js";
import { restUnseenMaxMs } from "#millrace/engine/nats/view-rest.js";
import { MemoryProjectionStore, ProjectionMemory } from "#millrace/engine/projection/memory.js";
import { leadMs } from "#millrace/engine/projection/projection.js";
import { recordId, type StoredRecord } from "#millrace/engine/record.js";
import type { Network, SimulatedStore, Weather } from "../engines.js";
import type { HandlerLedger } from "../ledger.js";
import type { WallClock } from "../process.js";
import type { Random } from "../random.js";
import { readRows } from "../verdict.js";
import { openProjectionOf, openSimulated } from "./deployment.js";
import { SimulatedServer } from "./server.js";
import { networkStore, networkWire } from "./wire.js";

/** A pause that is older than this is seen by every copy, and by whoever asked one before and heard no hint. */
const pauseSeenMs = 2_000;

export class NatsStore implements SimulatedStore {
  readonly engine: Engine;
  readonly hasLateNotes = true;
  /** The next leader notices, and applies what is new when the view has rested. */
  readonly takeoverMs = leadMs + leadMs / 3 + restUnseenMaxMs;
  readonly #wall: WallClock;
  readonly #ledger: HandlerLedger;
  readonly #server: SimulatedServer;
  readonly #memory = new ProjectionMemory();
  readonly #isOld: boolean;
  readonly #clock: Clock;
  /** When each lease was last renewed. */
  readonly #renewedAt = new Map<string, number>();
  /** Since when queues are paused. */
  readonly #pausedSince = new Map<string, number>();

  constructor(wall: WallClock, ledger: HandlerLedger, random: Random) {
    this.#wall = wall;
    this.#ledger = ledger;
    this.#isOld = random.chance(0.3);
    this.#clock = this.#observed(wall);
    this.#server = new SimulatedServer({
      time: () => wall.monotonic(),
      onStored: (stream, message) => this.#stored(stream, message),
    });
    const memory = new ProjectionMemory();
    this.engine = openSimulated(this.#server, {
      clock: wall,
      session: "eyes",
      store: () => new MemoryProjectionStore(wall, memory),
      isOld: false,
    });
  }

  engineOf(network: Network): Engine {
    const { process } = network;
    const clock = this.#observed(process.clock);
    const store = () => networkStore(new MemoryProjectionStore(clock, this.#memory), network);
    const engine = openSimulated(this.#server, {
      clock,
      session: process.name.replace(".", "-"),
      store,
      wire: networkWire(network),
      isOld: this.#isOld,
      rest: (mostMs) => new Promise((resolve) => process.clock.after(mostMs / 2, resolve)),
    });
    return this.#watched(engine);
  }

  weather(random: Random): Weather {
    const likely = (most: number) => (random.chance(0.5) ? random.next() * most : 0);
    return {
      lostRequest: likely(0.04),
      lostReply: likely(0.04),
      repeated: 0,
      slow: likely(0.2),
      stuck: likely(0.01),
      crash: likely(0.005),
      lostHint: likely(0.5),
      behind: likely(0.33),
    };
  }

  strike(random: Random): string {
    const names = this.#server.consumerNames;
    if (names.length === 0 || random.chance(0.5)) {
      this.#server.restart();
      return "the server starts again";
    }
    const name = random.pick(names);
    this.#server.removeConsumer(name);
    return `the consumer ${name} is removed`;
  }

  /** The read model that processes have handed on to each other is equal to one that was made at the end. */
  async check(): Promise<readonly string[]> {
    const store = new MemoryProjectionStore(this.#wall, this.#memory);
    const shared = await openProjectionOf(store, this.#wall);
    const head = Number(await this.engine.head());
    const position = await shared.position();
    if (position < head) return [`The read model is at ${position}, and the log at ${head}.`];
    const [rows, anew] = [await readRows(shared), await readRows(this.engine)];
    return rows.flatMap((row, index) => {
      const [is, isAnew] = [JSON.stringify(row), JSON.stringify(anew[index])];
      return is === isAnew ? [] : [`The read model has ${is}, and made anew it has ${isAnew}.`];
    });
  }

  /** Whoever reads the store's clock may find that a lease has lapsed, and so does the ledger. */
  #observed(clock: Clock): Clock {
    return {
      now: () => {
        const now = clock.now();
        this.#ledger.observe(now);
        return now;
      },
      monotonic: () => clock.monotonic(),
      after: (delayMs, call) => clock.after(delayMs, call),
    };
  }

  /** Tells the ledger what was granted when it was stored, whether or not anybody hears of it. */
  #stored(stream: StreamName, message: StoredMessage): void {
    this.#clock.now();
    if (stream === "jobs") {
      const event = message.subject.endsWith(".started") ? eventOf(message) : null;
      if (event?.name === "started")
        this.#ledger.granted(event.jobId, event.token, startFactsOf(message).leaseUntil);
      return;
    }
    const record = message.body === "" ? null : (JSON.parse(message.body) as StoredRecord);
    if (record === null) return;
    if (record.id.startsWith(recordId.queues)) this.#queue(record);
    for (const { jobId, token, until, at } of renewalsOf(record)) {
      const name = `${jobId}#${token}`;
      if (this.#renewedAt.get(name) === at) continue;
      this.#renewedAt.set(name, at);
      this.#ledger.granted(jobId, token, until);
    }
  }

  #queue({ id, body }: StoredRecord): void {
    const isPaused = (body as { readonly paused?: boolean }).paused === true;
    if (!isPaused) this.#pausedSince.delete(id);
    else if (!this.#pausedSince.has(id)) this.#pausedSince.set(id, this.#wall.monotonic());
  }

  /** Sees to it that pauses hold, and that the ledger knows how long places of ended jobs are held. */
  #watched(engine: Engine): Engine {
    const seen: Pick<Engine, "claim" | "renew"> = {
      claim: async (ask) => {
        const askedAt = this.#wall.monotonic();
        const answer = await engine.claim(ask);
        for (const { job } of answer.jobs) {
          const since = this.#pausedSince.get(recordId.queue(job.service, job.queue));
          if (since === undefined || since + pauseSeenMs >= askedAt) continue;
          this.#ledger.violations.push(`${job.id} was claimed from the paused ${job.queue}.`);
        }
        return answer;
      },
      renew: async (held) => {
        const now = engine.now();
        const outcomes = await engine.renew(held);
        for (const [index, { job, token, leaseMs }] of held.entries())
          if (outcomes[index]?.outcome !== "held")
            this.#ledger.prolonged(job.id, token, now + leaseMs);
        return outcomes;
      },
    };
    return new Proxy(engine, {
      get: (target, name) => {
        if (name in seen) return Reflect.get(seen, name);
        const member = Reflect.get(target, name, target) as unknown;
        return typeof member === "function" ? member.bind(target) : member;
      },
    });
  }
}
