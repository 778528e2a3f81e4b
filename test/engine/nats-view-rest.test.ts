// When the view on JetStream rests: while its process is busy, and never while somebody waits for it.
import { FakeClock } from "millrace/testing";
import { describe, expect, it } from "vitest";
import {
  gatheredMax,
  restSeenMaxMs,
  restUnseenMaxMs,
  ViewRest,
} from "#millrace/engine/nats/view-rest.js";

/** A view whose process stores as many events as it is told. */
function view() {
  const clock = new FakeClock();
  const state = { stored: 0, perMs: 0, at: clock.monotonic() };
  const stored = () => {
    state.stored += (clock.monotonic() - state.at) * state.perMs;
    state.at = clock.monotonic();
    return state.stored;
  };
  const rest = new ViewRest({ clock, stored });
  const stop = new AbortController();
  /** Rests after a transaction; tells when that is over. */
  const resting = (behind: number, last = 0) => {
    const pause = { isOver: false };
    void rest.rest(last, behind, stop.signal).then(() => {
      pause.isOver = true;
    });
    return pause;
  };
  const beBusy = async () => {
    state.perMs = 10;
    await clock.advance(60);
  };
  return { clock, state, rest, resting, beBusy, stop };
}

describe("a view whose process has little to do", () => {
  it("lets events gather for a moment when it has all of them", async () => {
    const { clock, resting, rest } = view();
    const pause = resting(0);
    await clock.advance(99);
    expect(pause.isOver).toBe(false);
    await clock.advance(1);
    expect(pause.isOver).toBe(true);
    expect(rest.isOn).toBe(false);
  });

  it("goes on at once while it is behind", async () => {
    const { clock, resting } = view();
    const pause = resting(5);
    await clock.advance(0);
    expect(pause.isOver).toBe(true);
  });

  it("goes on when the keeper looks", async () => {
    const { clock, resting, rest } = view();
    const pause = resting(0);
    await clock.advance(10);
    rest.nudge();
    await clock.advance(0);
    expect(pause.isOver).toBe(true);
  });
});

describe("a view whose process begins", () => {
  const beginning = ({ rest, stop }: ReturnType<typeof view>) => {
    const pause = { isOver: false };
    void rest.begin(stop.signal).then(() => {
      pause.isOver = true;
    });
    return pause;
  };

  it("is read after a moment, whoever keeps", async () => {
    const begun = view();
    const pause = beginning(begun);
    begun.rest.nudge();
    await begun.clock.advance(99);
    expect(pause.isOver).toBe(false);
    await begun.clock.advance(1);
    expect([pause.isOver, begun.rest.isOn]).toEqual([true, false]);
  });

  it("rests where there is work from the first moment, as long as at any other time", async () => {
    const begun = view();
    await begun.clock.advance(2_000);
    begun.state.perMs = 10;
    const pause = beginning(begun);
    await begun.clock.advance(200);
    expect([pause.isOver, begun.rest.isOn]).toEqual([false, true]);
    await begun.clock.advance(restUnseenMaxMs);
    expect([pause.isOver, begun.rest.isOn]).toEqual([true, false]);
  });

  it("is read at once where somebody waits", async () => {
    const begun = view();
    begun.state.perMs = 10;
    const pause = beginning(begun);
    begun.rest.wake();
    await begun.clock.advance(0);
    expect(pause.isOver).toBe(true);
  });
});

describe("a view whose process is busy", () => {
  it("rests, however far it is behind, for some seconds at most", async () => {
    const { clock, resting, rest, beBusy } = view();
    await beBusy();
    const { begins } = rest;
    const pause = resting(100);
    await clock.advance(200);
    expect([pause.isOver, rest.isOn, begins.aborted]).toEqual([false, true, true]);
    await clock.advance(restUnseenMaxMs);
    expect([pause.isOver, rest.isOn, rest.begins.aborted]).toEqual([true, false, false]);
  });

  it("rests for a shorter time where somebody has looked lately, and longer again when that was long ago", async () => {
    for (const look of ["awake", "wake"] as const) {
      const { clock, resting, rest, beBusy } = view();
      if (look === "wake") rest.wake();
      else await rest.awake(async () => {});
      await beBusy();
      // It has everything, so that nobody waits for it any more.
      const seen = resting(0);
      await clock.advance(restSeenMaxMs - 100);
      expect([look, seen.isOver]).toEqual([look, false]);
      await clock.advance(200);
      expect([look, seen.isOver]).toEqual([look, true]);
      await clock.advance(60_000);
      const unseen = resting(0);
      await clock.advance(restUnseenMaxMs - 100);
      expect([look, unseen.isOver]).toEqual([look, false]);
      await clock.advance(200);
      expect([look, unseen.isOver]).toEqual([look, true]);
    }
  });

  it("rests until many events have gathered, so that whoever asks then waits for no more", async () => {
    const { clock, state, resting, beBusy } = view();
    await beBusy();
    const pause = resting(0);
    state.perMs = gatheredMax / 1_000;
    await clock.advance(900);
    expect(pause.isOver).toBe(false);
    await clock.advance(200);
    expect(pause.isOver).toBe(true);
  });

  it("applies everything after that, before it rests again", async () => {
    const { clock, resting, beBusy } = view();
    await beBusy();
    await clock.advance(restUnseenMaxMs);
    const behind = resting(100);
    await clock.advance(0);
    expect(behind.isOver).toBe(true);
    const fresh = resting(0);
    await clock.advance(1_000);
    expect(fresh.isOver).toBe(false);
  });

  it("wakes for whoever asks, and stays awake until it was answered", async () => {
    const { clock, resting, rest, beBusy } = view();
    await beBusy();
    const pause = resting(100);
    await clock.advance(200);
    let answer = () => {};
    const asking = rest.awake(
      () =>
        new Promise<void>((resolve) => {
          answer = resolve;
        }),
    );
    await clock.advance(0);
    const next = resting(50);
    await clock.advance(0);
    expect([pause.isOver, next.isOver]).toEqual([true, true]);
    answer();
    await asking;
    const last = resting(50);
    await clock.advance(200);
    expect(last.isOver).toBe(false);
  });

  it("wakes for another process, and stays awake until it has everything", async () => {
    const { clock, resting, rest, beBusy } = view();
    await beBusy();
    const pause = resting(100);
    await clock.advance(200);
    rest.wake();
    await clock.advance(0);
    const next = resting(50);
    await clock.advance(0);
    expect([pause.isOver, next.isOver]).toEqual([true, true]);
    const fresh = resting(0);
    await clock.advance(200);
    expect([fresh.isOver, rest.isOn]).toEqual([false, true]);
  });

  it("rests on while the keeper looks", async () => {
    const { clock, resting, rest, beBusy } = view();
    await beBusy();
    const pause = resting(100);
    await clock.advance(200);
    rest.nudge();
    await clock.advance(200);
    expect(pause.isOver).toBe(false);
  });

  it("goes on when the work is done, and when it is stopped", async () => {
    const { clock, resting, state, beBusy, stop } = view();
    await beBusy();
    const pause = resting(100);
    await clock.advance(200);
    state.perMs = 0;
    await clock.advance(200);
    expect(pause.isOver).toBe(true);
    await beBusy();
    const stopped = resting(100);
    await clock.advance(100);
    stop.abort();
    await clock.advance(0);
    expect(stopped.isOver).toBe(true);
  });
});

describe("a view whose log others write", () => {
  /** Applies what was stored in a tenth of a second, twice, so that it is seen how fast the log grows. */
  const follow = async ({ clock, resting }: ReturnType<typeof view>, perBatch: number) => {
    resting(0, perBatch);
    await clock.advance(100);
    return resting(0, 2 * perBatch);
  };

  it("rests while the log grows fast, for some seconds at most", async () => {
    const followed = view();
    const pause = await follow(followed, 500);
    await followed.clock.advance(restUnseenMaxMs - 100);
    expect([pause.isOver, followed.rest.isOn]).toEqual([false, true]);
    await followed.clock.advance(200);
    expect([pause.isOver, followed.rest.isOn]).toEqual([true, false]);
  });

  it("goes on after a moment while the log grows slowly", async () => {
    const followed = view();
    const pause = await follow(followed, 50);
    await followed.clock.advance(100);
    expect([pause.isOver, followed.rest.isOn]).toEqual([true, false]);
  });

  it("does not take for work of others how far it is behind", async () => {
    const { clock, resting } = view();
    resting(100_000, 4_000);
    await clock.advance(100);
    const pause = resting(96_000, 8_000);
    await clock.advance(0);
    expect(pause.isOver).toBe(true);
  });
});
