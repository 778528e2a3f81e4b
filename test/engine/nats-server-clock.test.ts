// The time of a JetStream store: what the server says, carried on by the machine's monotonic clock, whatever becomes of its
// time of day.
import { connect, defineJob, defineService, openEngine } from "millrace";
import { FakeClock } from "millrace/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import type { Clock } from "#millrace/engine/clock.js";
import { ServerClock } from "#millrace/engine/nats/server-clock.js";
import { freshStoreUrl } from "../support/nats.js";

const hourMs = 3_600_000;

/** A machine and a server, whose clock is five seconds ahead. */
class Place {
  /** Goes while the machine is awake. */
  readonly awake = new FakeClock();
  /** For how long the machine has slept. */
  sleptMs = 0;
  /** How far its time of day was set forward. */
  setMs = 0;
  asked = 0;
  /** For how long it sleeps before it reads the next answer. */
  napMs = 0;
  isAway = false;
  readonly clock = new ServerClock(this.#machine, () => this.#ask());

  get serverTime(): number {
    return this.awake.now() + this.sleptMs + 5_000;
  }

  get #machine(): Clock {
    return {
      now: () => this.awake.now() + this.sleptMs + this.setMs,
      monotonic: () => this.awake.monotonic(),
      after: (delayMs, call) => this.awake.after(delayMs, call),
    };
  }

  async #ask(): Promise<number> {
    this.asked += 1;
    if (this.isAway) throw new Error("The server is away.");
    const told = this.serverTime;
    this.sleptMs += this.napMs;
    this.napMs = 0;
    return told;
  }
}

async function started(): Promise<Place> {
  const place = new Place();
  onTestFinished(() => place.clock.stop());
  await place.clock.start();
  return place;
}

describe("the clock of a server", () => {
  it("goes on between two questions, and is asked each minute", async () => {
    const place = await started();
    await place.awake.advance(59_999);
    expect(place.clock.now()).toBe(place.serverTime);
    expect(place.asked).toBe(1);
    await place.awake.advance(1);
    expect(place.asked).toBe(2);
  });

  it.each([hourMs, -hourMs])("stays when the time of day is set by %i ms", async (setMs) => {
    const place = await started();
    place.setMs = setMs;
    expect(place.clock.now()).toBe(place.serverTime);
    await place.awake.advance(10);
    expect(place.clock.now()).toBe(place.serverTime);
    // It was asked whether the machine has slept, once.
    expect(place.asked).toBe(2);
  });

  it("is asked as soon as somebody wants to know it when the machine has slept", async () => {
    const place = await started();
    place.sleptMs = hourMs;
    expect(place.clock.now()).toBe(place.serverTime - hourMs);
    await place.awake.advance(0);
    expect(place.clock.now()).toBe(place.serverTime);
  });

  it("is asked each second while a server is away after that", async () => {
    const place = await started();
    place.sleptMs = hourMs;
    place.isAway = true;
    place.clock.now();
    await place.awake.advance(3_000);
    place.clock.now();
    expect(place.asked).toBe(5);
    place.isAway = false;
    await place.awake.advance(1_000);
    expect(place.clock.now()).toBe(place.serverTime);
    await place.awake.advance(59_000);
    expect(place.asked).toBe(6);
  });

  it("is asked again when the machine slept before it read the answer", async () => {
    const place = await started();
    place.napMs = hourMs;
    await place.awake.advance(60_000);
    expect(place.clock.now()).toBe(place.serverTime - hourMs);
    await place.awake.advance(0);
    expect(place.clock.now()).toBe(place.serverTime);
  });

  it("is the one that is given where there is no server to ask", async () => {
    const given = new FakeClock();
    const clock = new ServerClock(given, null);
    await clock.start();
    await given.advance(hourMs);
    expect(clock.now()).toBe(given.now());
  });
});

it("a machine whose time of day is set expires nothing, and starts nothing early", async () => {
  const url = await freshStoreUrl();
  const shop = defineService("shop", { mail: defineJob({ payload: z.object({}) }) });
  const service = await connect(shop, { engine: await openEngine(url) });
  onTestFinished(() => service.stop());
  const { engine } = service;
  onTestFinished(() => engine.close());
  const before = engine.now();
  await service.jobs.mail.create({}, { deadline: before + hourMs / 2 }).orThrow();
  const real = Date.now;
  onTestFinished(() => {
    Date.now = real;
  });
  Date.now = () => real() + hourMs;
  expect(engine.now() - before).toBeLessThan(hourMs / 2);
  expect(await engine.due({ kind: "deadline", service: "shop" }, 10)).toEqual([]);
});
