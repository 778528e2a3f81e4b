// The same random sequence of commands on every engine gives the same outcomes, the same folds, byte for byte,
// and the same views.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { Environment, MovableClock } from "millrace/conformance";
import { describe, expect, it } from "vitest";
import { openMemory } from "#millrace/engine/memory/engine.js";
import { openEngine } from "#millrace/engine/open.js";
import { type Play, Player, plays } from "./model/player.js";

/** Plays a sequence on two engines side by side, and compares every answer and everything that is left. */
async function playOnBoth(sequence: readonly Play[]): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "millrace-model-"));
  const clock = new MovableClock();
  const memory = openMemory({ clock });
  const sqlite = await openEngine(`file:${join(folder, "jobs.db")}`, { clock });
  const alone = () => Promise.reject(new Error("A model opens its store once."));
  const players = [memory, sqlite].map(
    (engine) => new Player(new Environment(engine, clock, alone)),
  );
  const [first, second] = players as [Player, Player];
  try {
    for (const [index, play] of sequence.entries()) {
      if (play.kind === "advance") {
        clock.advance(play.ms);
        continue;
      }
      const expected = await first.play(play);
      expect(await second.play(play), `play ${index}, ${play.kind}`).toEqual(expected);
    }
    expect(await second.everything()).toEqual(await first.everything());
  } finally {
    await Promise.all([memory.close(), sqlite.close()]);
    await rm(folder, { recursive: true, force: true });
  }
}

describe("memory and SQLite", () => {
  it("agree on every sequence of commands", { timeout: 120_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(plays, { minLength: 10, maxLength: 80, size: "max" }), playOnBoth),
      // A failure is made smaller for as long as the test may take.
      { numRuns: 40, interruptAfterTimeLimit: 100_000, markInterruptAsFailure: false },
    );
  });
});
