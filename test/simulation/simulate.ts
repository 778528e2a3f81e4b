// One simulation: a storm over a few processes and jobs, then everything heals and every job must end.
import { createHash } from "node:crypto";
import { boundJobs } from "#millrace/contract/definition.js";
import type { EventName, JobEvent } from "#millrace/core/event.js";
import { Caller } from "./callers.js";
import { contract, leaseMs } from "./contract.js";
import { CallersLedger } from "./ledger.js";
import type { Random } from "./random.js";
import { allEnded, judge, readFeed, withoutLateNotes } from "./verdict.js";
import { type Crew, type EngineName, World } from "./world.js";

/** What a simulation gave. */
export interface SimulationOutcome {
  readonly seed: number;
  readonly engine: EngineName;
  /** Every rule that was broken, in sentences; empty when all is well. */
  readonly violations: readonly string[];
  /** The hash of the whole log: equal for equal seeds. */
  readonly hash: string;
  readonly jobs: number;
  readonly events: number;
  /** What happened to jobs: the names of the events in the log. */
  readonly eventNames: ReadonlySet<EventName>;
  /** How many handlers began. */
  readonly entries: number;
  /** What happened, line by line, where it was asked for. */
  readonly lines: readonly string[];
}

/** How long everything may take to end once all trouble is over, and in which steps it is looked at. */
const healMaxMs = 15 * 60_000;
const healStepMs = 2_000;

/** An idle worker looks for jobs at least this often. */
const pollMaxMs = 5_000;

/** Runs the simulation of one seed. */
export async function simulate(
  seed: number,
  options: { readonly engine?: EngineName; readonly verbose?: boolean } = {},
): Promise<SimulationOutcome> {
  const { engine = "memory", verbose = false } = options;
  const world = new World({ seed, engine, verbose });
  const faults: string[] = [];
  const onFault = (reason: unknown) => {
    const text = reason instanceof Error ? (reason.stack ?? reason.message) : String(reason);
    faults.push(`Something threw where nobody caught it: ${text}`);
  };
  process.on("unhandledRejection", onFault);
  try {
    const callers = new CallersLedger();
    await new Storm(world, callers).rage();
    const isHealed = await heal(world, callers);
    const feed = await readFeed(world.engine);
    const events = world.store.hasLateNotes ? withoutLateNotes(feed) : feed;
    const jobs = boundJobs(contract);
    const evidence = { jobs, engine: world.engine, events, callers, handlers: world.ledger };
    const violations = [...faults, ...(await judge(evidence))];
    violations.push(...((await world.store.check?.()) ?? []));
    if (!isHealed) violations.push(`Not every job ended within ${healMaxMs} ms after the storm.`);
    for (const event of events) world.trace(eventLine(event));
    await world.engine.close();
    return {
      seed,
      engine,
      violations,
      hash: createHash("sha256").update(JSON.stringify(events)).digest("hex"),
      jobs: events.filter(({ name }) => name === "created").length,
      events: events.length,
      eventNames: new Set(events.map(({ name }) => name)),
      entries: world.ledger.entries,
      lines: world.lines,
    };
  } finally {
    process.off("unhandledRejection", onFault);
  }
}

/** An event of the log in one line. */
function eventLine(event: JobEvent): string {
  const { name, jobId, version, actor, previousState, state } = event;
  const token = "token" in event ? ` under token ${event.token}` : "";
  return `the log: ${jobId} ${name} (${version}, ${previousState} to ${state}${token}) by ${actor} at ${event.at}`;
}

/** The time of trouble. */
class Storm {
  readonly #world: World;
  readonly #callersLedger: CallersLedger;
  readonly #random: Random;
  readonly #lengthMs: number;
  #callers: Caller[] = [];
  #isOver = false;

  constructor(world: World, callersLedger: CallersLedger) {
    this.#world = world;
    this.#callersLedger = callersLedger;
    this.#random = world.random.fork();
    this.#lengthMs = this.#random.whole(5_000, 20_000);
  }

  async rage(): Promise<void> {
    const { fake } = this.#world;
    const random = this.#random;
    for (let index = 1; index <= random.whole(2, 3); index++) this.#world.startCrew(`w${index}`);
    this.#callers = [1, 2].map((index) => this.#newCaller(`c${index}`));
    this.#world.weather = this.#world.store.weather(random);
    for (let job = random.whole(8, 35); job > 0; job--) this.#plan((caller) => caller.create());
    for (let count = random.whole(0, 20); count > 0; count--) this.#plan((one) => one.command());
    for (let count = random.whole(0, 4); count > 0; count--) this.#plan((one) => one.operate());
    for (let count = random.whole(2, 10); count > 0; count--) {
      fake.after(random.whole(0, this.#lengthMs), () => this.#strike());
    }
    await fake.advance(this.#lengthMs);
    this.#isOver = true;
    for (const { process } of this.#callers) process.end();
  }

  #newCaller(instance: string): Caller {
    return new Caller(this.#world, this.#callersLedger, instance);
  }

  /** A caller does something at some time of the storm. Callers that have crashed come again. */
  #plan(act: (caller: Caller) => Promise<void>): void {
    const index = this.#random.whole(0, 1);
    this.#world.fake.after(this.#random.whole(0, this.#lengthMs), () => {
      let caller = this.#callers[index];
      if (caller === undefined || caller.process.state === "gone") {
        caller = this.#newCaller(`c${index + 1}`);
        this.#callers[index] = caller;
      }
      void act(caller);
    });
  }

  /** One blow: to a process, to the network, or to the clock. */
  #strike(): void {
    if (this.#isOver) return;
    const random = this.#random;
    const { crews, wall, trace, store } = this.#world;
    if (store.strike && random.chance(0.2)) {
      trace(store.strike(random));
      return;
    }
    const draw = random.next();
    if (draw < 0.15) {
      const byMs = random.chance(0.6) ? random.whole(100, 2 * leaseMs) : -random.whole(1, 1_500);
      trace(`the clock jumps by ${byMs} ms`);
      wall.jump(byMs);
      return;
    }
    if (crews.length === 0) {
      this.#world.startCrew("w1");
      return;
    }
    const crew = random.pick(crews);
    if (draw < 0.4) this.#kill(crew);
    else if (draw < 0.65) this.#pause(crew);
    else if (draw < 0.8) this.#cutOff(crew);
    else this.#redeploy(crew);
  }

  #kill({ process, instance }: Crew): void {
    this.#world.trace(`${process.name} is killed`);
    process.end();
    this.#startLater(instance);
  }

  #pause({ process }: Crew): void {
    const forMs = this.#random.whole(100, 3 * leaseMs);
    this.#world.trace(`${process.name} is paused for ${forMs} ms`);
    process.pause();
    this.#world.fake.after(forMs, () => process.resume());
  }

  #cutOff({ process }: Crew): void {
    const forMs = this.#random.whole(100, 2 * leaseMs);
    this.#world.trace(`${process.name} is cut off for ${forMs} ms`);
    this.#world.cutOff(process, true);
    this.#world.fake.after(forMs, () => this.#world.cutOff(process, false));
  }

  #redeploy(crew: Crew): void {
    void this.#world.stopCrew(crew);
    this.#startLater(crew.instance);
  }

  #startLater(instance: string): void {
    this.#world.fake.after(this.#random.whole(0, leaseMs), () => {
      if (!this.#isOver) this.#world.startCrew(instance);
    });
  }
}

/** Ends all trouble, lets fresh processes in, and waits until every job has ended and every lease has run out. */
async function heal(world: World, callers: CallersLedger): Promise<boolean> {
  world.trace("the storm is over");
  world.calmDown();
  if (world.random.chance(0.5)) for (const { process } of [...world.crews]) process.end();
  world.startCrew("fresh1");
  world.startCrew("fresh2");
  const operator = new Caller(world, callers, "operator");
  for (let pastMs = 0; pastMs < healMaxMs; pastMs += healStepMs) {
    void operator.setRight();
    await world.fake.advance(healStepMs);
    if (await allEnded(world.engine)) break;
  }
  const isHealed = await allEnded(world.engine);
  // Slots of jobs that ended from outside are held until their leases run out.
  await world.fake.advance(Math.max(2 * leaseMs + pollMaxMs, world.store.takeoverMs ?? 0));
  for (const { process } of [...world.crews]) process.end();
  operator.process.end();
  return isHealed;
}
