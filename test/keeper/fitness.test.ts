// Where the view of a store follows its log, whoever has one that is up to date leads; others let it in first.
import { expect, it } from "vitest";
import { z } from "zod";
import { defineJob, defineService } from "#millrace/contract/define.js";
import type { Engine } from "#millrace/engine/engine.js";
import { createKeeper } from "#millrace/keeper/keeper.js";
import { Workshop } from "../worker/workshop.js";

const contract = defineService("shop", { mail: defineJob({ payload: z.object({}) }) });

/** A process's view of the store: how far it is behind, or that its database is away. */
interface View {
  lag: number;
  isAway: boolean;
}

/** A store whose views follow its log, with another process that works. */
async function scene() {
  const workshop = new Workshop(contract);
  const other = await workshop.start({ mail: async () => {} }, { instance: "other" });
  const keeper = (instance: string, view: View) => {
    const throughView = async <Answer>(answer: () => Promise<Answer>) => {
      if (view.isAway) throw new Error("The view is away.");
      return answer();
    };
    const parts: Pick<Engine, "due" | "viewStatus"> = {
      due: (ask, limit) => throughView(() => workshop.engine.due(ask, limit)),
      viewStatus: () => throughView(async () => ({ lag: view.lag })),
    };
    const engine = new Proxy(workshop.engine, {
      get: (target, name) => Reflect.get(name in parts ? parts : target, name) as unknown,
    });
    return createKeeper({ runtime: { ...workshop.runtime(instance), engine }, contract });
  };
  return { clock: workshop.clock, other, keeper };
}

const view = (lag: number): View => ({ lag, isAway: false });

it("lets one lead whose view is up to date, whoever came first", async () => {
  const { clock, other, keeper } = await scene();
  const [late, current] = [keeper("late", view(1_000_000)), keeper("current", view(500))];
  await late.start();
  await clock.advance(5_000);
  expect(late.isLeader).toBe(false);
  await current.start();
  await clock.advance(60_000);
  expect([late.isLeader, current.isLeader]).toEqual([false, true]);
  await Promise.all([late.stop(), current.stop(), other.stop()]);
});

it("leads when its view has caught up, and where nobody does for a while", async () => {
  const { clock, other, keeper } = await scene();
  const catchingUp = view(1_000_000);
  const first = keeper("first", catchingUp);
  await first.start();
  await clock.advance(5_000);
  expect(first.isLeader).toBe(false);
  catchingUp.lag = 0;
  await clock.advance(500);
  expect(first.isLeader).toBe(true);
  await first.stop();
  const late = keeper("late", view(1_000_000));
  await late.start();
  await clock.advance(9_000);
  expect(late.isLeader).toBe(false);
  await clock.advance(1_500);
  expect(late.isLeader).toBe(true);
  await Promise.all([late.stop(), other.stop()]);
});

it("leads at once where nobody else is there, and goes on to", async () => {
  const { clock, other, keeper } = await scene();
  await other.stop();
  const alone = view(1_000_000);
  const lone = keeper("lone", alone);
  await lone.start();
  expect(lone.isLeader).toBe(true);
  alone.isAway = true;
  for (let second = 0; second < 60; second++) {
    await clock.advance(1_000);
    expect(lone.isLeader).toBe(true);
  }
  await lone.stop();
});

it("gives way where its view fails, and takes no lead from who does better", async () => {
  const { clock, other, keeper } = await scene();
  const broken = view(0);
  const [first, second] = [keeper("first", broken), keeper("second", view(0))];
  await first.start();
  await second.start();
  await clock.advance(10_000);
  expect([first.isLeader, second.isLeader]).toEqual([true, false]);
  broken.isAway = true;
  await clock.advance(15_000);
  expect([first.isLeader, second.isLeader]).toEqual([false, true]);
  await clock.advance(60_000);
  expect([first.isLeader, second.isLeader]).toEqual([false, true]);
  await Promise.all([first.stop(), second.stop(), other.stop()]);
});

it("leads on where its view fails for a moment", async () => {
  const { clock, other, keeper } = await scene();
  const shaken = view(0);
  const [first, second] = [keeper("first", shaken), keeper("second", view(0))];
  await first.start();
  await second.start();
  for (let time = 0; time < 5; time++) {
    shaken.isAway = true;
    await clock.advance(1_500);
    shaken.isAway = false;
    await clock.advance(3_000);
  }
  expect([first.isLeader, second.isLeader]).toEqual([true, false]);
  await Promise.all([first.stop(), second.stop(), other.stop()]);
});
