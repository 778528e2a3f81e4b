// Schedules go on when the process that fires them is killed or stands still, and fire each instant once, on every engine.

import { connect, type JobEvent, type Service } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { scheduledJobId } from "#millrace/core/schedule.js";
import { recordId } from "#millrace/engine/record.js";
import { type Child, startChild } from "../crash/children.js";
import { pass } from "../crash/time.js";
import { freshUrl } from "../support/fresh-url.js";
import { freshStoreUrl } from "../support/nats.js";
import { freshSchema } from "../support/postgres.js";
import { beats, everyMs } from "./beats.js";

const engines: { readonly [name: string]: () => Promise<string> } = {
  sqlite: freshUrl,
  postgres: async () => (await freshSchema()).url,
  nats: freshStoreUrl,
};

/** How long the real world gets to bring about what is waited for. */
const patienceMs = 20_000;
const pauseMs = 50;

/** The longest time that a process stands still: several times as long as its lead lasts. */
const stoppedMs = 4_000;

class Fleet {
  readonly #url: string;
  readonly #observer: Service;
  readonly children = new Map<string, Child>();

  constructor(url: string, observer: Service) {
    this.#url = url;
    this.#observer = observer;
  }

  async start(instance: string): Promise<void> {
    const child = startChild("../schedules/failover-child.ts", [this.#url, instance]);
    this.children.set(instance, child);
    await child.said("ready");
  }

  /** The process that fires, once there is one other than these; `null` if there is none for so long. */
  leader(others: readonly string[] = [], forMs = patienceMs): Promise<string | null> {
    return this.until(async () => {
      const [record] = await this.#observer.engine.records([recordId.keeper("beats")]);
      const { instance } = (record?.body ?? {}) as { instance?: string };
      return instance !== undefined && !others.includes(instance) ? instance : null;
    }, forMs);
  }

  /** Waits until both schedules have fired an instant after a time, for so long. */
  firedAfter(time: number, forMs = patienceMs): Promise<true | null> {
    return this.until(async () => {
      const schedules = await this.#observer.schedules.list().orThrow();
      return schedules.every(({ lastFired }) => (lastFired?.at ?? 0) > time) ? true : null;
    }, forMs);
  }

  async until<Value>(look: () => Promise<Value | null>, forMs: number): Promise<Value | null> {
    for (let waitedMs = 0; waitedMs < forMs; waitedMs += pauseMs) {
      const value = await look();
      if (value !== null) return value;
      await pass(pauseMs);
    }
    return null;
  }

  kill(instance: string | null, signal: NodeJS.Signals): void {
    const child = this.children.get(instance ?? "");
    if (child === undefined) throw new Error("Nobody leads.");
    child.child.kill(signal);
  }

  /** Ends every process as a person would, and gives what their handlers said. */
  async stop(): Promise<readonly string[]> {
    const endings = [...this.children.values()].map(async ({ child, ended }) => {
      child.kill("SIGTERM");
      return (await ended).lines.filter((line) => line.startsWith("schedule-"));
    });
    return (await Promise.all(endings)).flat();
  }
}

describe.each(Object.keys(engines))("on %s", (name) => {
  it("each instant is fired once, through a killed and a stopped leader", async () => {
    const url = await (engines[name] as () => Promise<string>)();
    const observer = await connect(beats, { url });
    onTestFinished(() => observer.stop());
    const fleet = new Fleet(url, observer as unknown as Service);
    await Promise.all(["p1", "p2", "p3"].map((instance) => fleet.start(instance)));

    const fires = async (after: number) => expect(await fleet.firedAfter(after)).toBe(true);
    const killed = (await fleet.leader()) ?? "";
    await fires(observer.engine.now());
    fleet.kill(killed, "SIGKILL");
    const stopped = (await fleet.leader([killed])) ?? "";
    await fires(observer.engine.now());

    fleet.kill(stopped, "SIGSTOP");
    // A process that stands still in the middle of a transaction holds up a file for everybody, until it goes on.
    await fleet.leader([killed, stopped], stoppedMs);
    await fleet.firedAfter(observer.engine.now(), stoppedMs);
    fleet.kill(stopped, "SIGCONT");
    await fires(observer.engine.now() + 5 * everyMs);
    const ran = await fleet.stop();

    for (const { name, createdAt, lastFired, lastSkipped } of await observer.schedules
      .list()
      .orThrow()) {
      expect(lastSkipped).toBeUndefined();
      const count = Math.round(((lastFired?.at ?? 0) - createdAt) / everyMs);
      const instants = Array.from({ length: count }, (_, k) => createdAt + (k + 1) * everyMs);
      const ids = instants.map((at) => scheduledJobId("beats", name, at));
      if (name === "kept") await expectCreatedOnce(observer as unknown as Service, ids);
      // A job that is not kept could be made again unnoticed; then its first try would be seen twice.
      else await expectRanOnce(observer as unknown as Service, ran, ids);
    }
  }, 60_000);
});

async function expectCreatedOnce(observer: Service, ids: readonly string[]): Promise<void> {
  for (let start = 0; start < ids.length; start += 100) {
    const some = ids.slice(start, start + 100);
    const loaded = await observer.engine.load(some, { history: true });
    const created = ({ name }: JobEvent) => name === "created";
    expect(loaded.map((job) => job?.events?.filter(created).length)).toEqual(some.map(() => 1));
  }
}

/** Each ran, unless its worker was killed or told to stop before; and none was begun anew. */
async function expectRanOnce(
  observer: Service,
  ran: readonly string[],
  ids: readonly string[],
): Promise<void> {
  const firstTries = ran.filter((line) => line.endsWith(" 1"));
  expect(firstTries.length).toBeGreaterThan(0);
  expect(new Set(firstTries).size).toBe(firstTries.length);
  const seen = new Set(ran.map((line) => line.split(" ")[0]));
  const unseen = await observer.engine.load(ids.filter((id) => !seen.has(id)));
  for (const loaded of unseen) expect(loaded?.job.state).toMatch(/active|pending/);
}
