// JetStream engines whose port a test stands in front of: it can lose an answer, let a process die between two
// steps, or hold a step back until something else has happened.
import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Environment, MovableClock } from "millrace/conformance";
import { onTestFinished } from "vitest";
import { ids } from "#millrace/conformance/environment.js";
import { StoreUnavailable } from "#millrace/engine/errors.js";
import { addressOf } from "#millrace/engine/nats/address.js";
import { openConnection } from "#millrace/engine/nats/connection.js";
import { NatsEngine } from "#millrace/engine/nats/engine.js";
import { JetStreamPort } from "#millrace/engine/nats/jetstream.js";
import { loadNats } from "#millrace/engine/nats/libraries.js";
import type { Port, StreamName } from "#millrace/engine/nats/port.js";
import { provision } from "#millrace/engine/nats/provision.js";
import { ServerClock } from "#millrace/engine/nats/server-clock.js";
import { Subjects } from "#millrace/engine/nats/subjects.js";
import { openProjection } from "#millrace/engine/projection/open.js";
import { eachAlone } from "./each-alone.js";
import { freshPrefix, type NewPrefix } from "./nats.js";

/** A step that changes something on the server: what is stored or acknowledged, by the last words of its subjects. */
export interface Step {
  readonly name: "publish" | "publishTogether" | "acknowledge";
  readonly stream: StreamName;
  readonly subjects: readonly string[];
}

/** Stands between an engine and the server. `go` carries the step out. */
export type Interference = (step: Step, go: () => Promise<unknown>) => Promise<unknown>;

/** A process that has died: nothing that it was about to do ever happens. */
export const dead: Promise<never> = new Promise(() => {});

/** Dies before the first step that is meant. */
export function diesBefore(isMeant: (step: Step) => boolean): Interference {
  let isDead = false;
  return (step, go) => {
    isDead ||= isMeant(step);
    return isDead ? dead : go();
  };
}

/** Dies after the first step that is meant, whose answer it never gets. */
export function diesAfter(isMeant: (step: Step) => boolean): Interference {
  let isDead = false;
  return async (step, go) => {
    if (isDead) return dead;
    isDead = isMeant(step);
    const answer = await go();
    return isDead ? dead : answer;
  };
}

/** Does what is meant and loses its answer, so many times. */
export function losesAnswers(isMeant: (step: Step) => boolean, times: number): Interference {
  let left = times;
  return async (step, go) => {
    const answer = await go();
    if (!isMeant(step) || left === 0) return answer;
    left -= 1;
    throw new StoreUnavailable({ url: "nats:", message: "The answer was lost." });
  };
}

/** Loses what is meant on its way to the server, so many times. */
export function losesRequests(isMeant: (step: Step) => boolean, times: number): Interference {
  let left = times;
  return async (step, go) => {
    if (!isMeant(step) || left === 0) return go();
    left -= 1;
    throw new StoreUnavailable({ url: "nats:", message: "The request was lost." });
  };
}

/** Whether a step stores an event of a name. */
export function stores(event: string): (step: Step) => boolean {
  return ({ name, stream, subjects }) =>
    name !== "acknowledge" &&
    stream === "jobs" &&
    subjects.some((subject) => subject.split(".")[5] === event);
}

/** Whether a step writes a record of a kind. */
export function writes(kind: string): (step: Step) => boolean {
  return ({ stream, subjects }) =>
    stream === "records" && subjects.some((subject) => subject.split(".")[3] === kind);
}

/** A deployment of a test's own, with engines on it that share a clock which the test moves. */
export class Deployment {
  /** Speaks to an engine that nobody interferes with. */
  readonly env: Environment;
  /** The URL of the server, and the prefix on it. */
  readonly url: string;
  readonly prefix: string;
  readonly #open: Open;

  private constructor(env: Environment, place: Pick<NewPrefix, "url" | "prefix">, open: Open) {
    this.env = env;
    this.url = place.url;
    this.prefix = place.prefix;
    this.#open = open;
  }

  static async make(): Promise<Deployment> {
    const place = await freshPrefix();
    const folder = await mkdtemp(join(tmpdir(), "millrace-races-"));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    const clock = new MovableClock();
    const open: Open = (interference, options) => {
      const view = options?.view ?? "view.db";
      const at = `${place.storeUrl}&projection=file:${join(folder, view)}`;
      return openInterfered(at, clock, interference, options);
    };
    const engine = await open((_, go) => go());
    const env = new Environment(engine, clock, () => open((_, go) => go()));
    return new Deployment(env, place, open);
  }

  /** Another process on the same deployment, which meets with an interference. */
  async process(interference: Interference): Promise<Environment> {
    return this.env.at(await this.#open(interference));
  }

  /** Another process, which knows of no atomic batches, as with an older server. */
  async olderProcess(interference: Interference): Promise<Environment> {
    return this.env.at(await this.#open(interference, { isAtomic: false }));
  }

  /** Another process with a view of its own, by name, which is shown nothing more of the log before it may go on. */
  async viewer(view: string, mayGoOn = async () => {}): Promise<NatsEngine> {
    return this.#open((_, go) => go(), { view, mayGoOn });
  }
}

interface OpenOptions {
  readonly isAtomic?: boolean;
  readonly view?: string;
  readonly mayGoOn?: () => Promise<void>;
}

type Open = (interference: Interference, options?: OpenOptions) => Promise<NatsEngine>;

async function openInterfered(
  url: string,
  clock: MovableClock,
  interference: Interference,
  { isAtomic, mayGoOn }: OpenOptions = {},
): Promise<NatsEngine> {
  const address = addressOf(url);
  const nats = await loadNats(address.where);
  const connection = await openConnection(nats, address, { name: "test" });
  onTestFinished(() => connection.close());
  const topology = await provision(connection, address);
  const subjects = new Subjects(topology.prefix);
  const port = new JetStreamPort({
    nats,
    connection,
    topology,
    url: address.where,
    readsEverything: true,
    clockFilter: subjects.clockFilter(),
  });
  return new NatsEngine({
    url: address.where,
    port: interfered(mayGoOn ? held(port, mayGoOn) : port, interference),
    subjects,
    topology: { ...topology, atomicBatches: isAtomic ?? topology.atomicBatches },
    clock: new ServerClock(clock, null),
    session: randomUUID(),
    openProjection: () =>
      openProjection(address.projection ?? "", {
        identity: address.prefix,
        origin: topology.identity,
        clock,
      }),
  });
}

/** A port that hands out nothing of the log that was read before somebody lets it. */
function held(port: JetStreamPort, mayGoOn: () => Promise<void>): JetStreamPort {
  const feed = port.feed.bind(port);
  port.feed = async function* (filter, after, signal) {
    for await (const packed of feed(filter, after, signal)) {
      await mayGoOn();
      yield packed;
    }
  };
  return port;
}

/** A port whose steps somebody stands in front of. */
function interfered(port: Port, interference: Interference): Port {
  const through = <Answer>(step: Step, go: () => Promise<Answer>) =>
    interference(step, go) as Promise<Answer>;
  const publish: Port["publish"] = (stream, message) =>
    through({ name: "publish", stream, subjects: [message.subject] }, () =>
      port.publish(stream, message),
    );
  const steps: Pick<Port, Step["name"] | "publishEach"> = {
    publish,
    publishEach: (messages) => eachAlone(messages, publish),
    publishTogether: (messages) =>
      through(
        {
          name: "publishTogether",
          stream: "jobs",
          subjects: messages.map(({ subject }) => subject),
        },
        () => port.publishTogether(messages),
      ),
    acknowledge: (deliveries) =>
      through(
        {
          name: "acknowledge",
          stream: "jobs",
          subjects: deliveries.map(({ reply }) => reply),
        },
        () => port.acknowledge(deliveries),
      ),
  };
  return new Proxy(port, {
    get: (target, member) => {
      const own = steps[member as keyof typeof steps] as unknown;
      if (own !== undefined) return own;
      const found = Reflect.get(target, member, target) as unknown;
      return typeof found === "function" ? found.bind(target) : found;
    },
  });
}

/** Longer than a place may be ahead of the log, and than the leases of these tests. */
const longMs = 40_000;

/** The keeper of a service looks once. */
async function keep(env: Environment): Promise<void> {
  for (const { id } of await env.engine.due({ kind: "lapsed", service: "shop" }, 100))
    await env.lapse(id);
  await env.engine.tend?.("shop");
}

/** Lets time pass in which others give up what a dead process has left, while a keeper looks. */
export async function outlive(env: Environment): Promise<void> {
  for (let passed = 0; passed < longMs; passed += longMs / 4) {
    env.clock.advance(longMs / 4);
    await keep(env);
  }
}

/** Claims and completes until there is nothing more; gives what was carried out, in order. */
export async function drain(env: Environment, lane = {}): Promise<readonly string[]> {
  const done: string[] = [];
  for (;;) {
    const jobs = await env.claim(lane);
    if (jobs.length === 0) return done;
    for (const job of jobs) await env.complete(job);
    done.push(...ids(jobs));
  }
}

/** Something that is told once. */
export interface Signal {
  readonly given: Promise<void>;
  give(): void;
}

/** A signal that was not given yet. */
export function signal(): Signal {
  let give: () => void = () => {};
  const given = new Promise<void>((resolve) => {
    give = resolve;
  });
  return { given, give };
}

/** Tells when a step that is meant has been carried out. */
export function heard(
  interference: Interference,
  isMeant: (step: Parameters<Interference>[0]) => boolean,
  told: Signal,
): Interference {
  return (step, go) =>
    interference(step, async () => {
      const answer = await go();
      if (isMeant(step)) told.give();
      return answer;
    });
}
