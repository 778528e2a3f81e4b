// The same random sequence of commands on every engine gives the same outcomes, the same folds, byte for byte,
// and the same views.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { Environment, MovableClock } from "millrace/conformance";
import { describe, expect, it } from "vitest";
import type { Engine } from "#millrace/engine/engine.js";
import { openMemory } from "#millrace/engine/memory/engine.js";
import { openEngine } from "#millrace/engine/open.js";
import { type Play, Player, plays } from "./model/player.js";
import { look } from "./projection/recorder.js";
import { newPrefix } from "./support/nats.js";
import { newSchema } from "./support/postgres.js";

const types = ["mail", "sync"];

/** A store of a model: the engine on it, and the way to remove it. */
interface ModelStore {
  readonly engine: Engine;
  readonly remove: () => Promise<void>;
}

type Open = (clock: MovableClock, folder: string) => Promise<ModelStore>;

const open = {
  memory: async (clock) => ({ engine: openMemory({ clock }), remove: async () => {} }),
  sqlite: async (clock, folder) => {
    const engine = await openEngine(`file:${join(folder, "jobs.db")}`, { clock });
    return { engine, remove: async () => {} };
  },
  postgres: async (clock) => {
    const { url, remove } = await newSchema();
    return { engine: await openEngine(url, { clock }), remove };
  },
  nats: async (clock, folder) => {
    const { storeUrl, remove } = await newPrefix();
    const url = `${storeUrl}&projection=file:${join(folder, "view.db")}`;
    return { engine: await openEngine(url, { clock }), remove };
  },
} satisfies Record<string, Open>;

/** Plays a sequence on engines side by side, and compares every answer and everything that is left. */
async function playOnAll(opens: readonly Open[], sequence: readonly Play[]): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "millrace-model-"));
  const clock = new MovableClock();
  const stores: ModelStore[] = [];
  const alone = () => Promise.reject(new Error("A model opens its store once."));
  try {
    for (const one of opens) stores.push(await one(clock, folder));
    // Engines that order differently agree on who is started where a claim takes all that may be.
    const takesAll = stores.some(({ engine }) => !engine.capabilities.strictPriority);
    const games = stores.map(({ engine }) => {
      const env = new Environment(engine, clock, alone);
      return { env, player: new Player(env, { takesAll }) };
    });
    const [first, ...others] = games.map(({ player }) => player);
    for (const [index, play] of sequence.entries()) {
      if (play.kind === "advance") {
        clock.advance(play.ms);
        // Who sees what is due when it becomes due does not show where somebody always looks at once.
        if (takesAll) for (const { env } of games) await look(env, types);
        continue;
      }
      const expected = await first?.play(play);
      for (const [place, other] of others.entries())
        expect(await other.play(play), `play ${index}, ${play.kind}, ${place}`).toEqual(expected);
    }
    const expected = await first?.everything();
    for (const other of others) expect(await other.everything()).toEqual(expected);
  } finally {
    await Promise.all(stores.map(({ engine }) => engine.close()));
    await Promise.all(stores.map(({ remove }) => remove()));
    await rm(folder, { recursive: true, force: true });
  }
}

const sequences = fc.array(plays, { minLength: 10, maxLength: 80, size: "max" });

/** How many sequences all engines play. */
const runs = Number(process.env.MILLRACE_MODEL_RUNS ?? 8);

/** A failure is made smaller for as long as the test may take. */
const settings = { interruptAfterTimeLimit: 100_000, markInterruptAsFailure: false } as const;

describe("memory and SQLite", () => {
  it("agree on every sequence of commands, in order", { timeout: 120_000 }, async () => {
    const property = (sequence: readonly Play[]) => playOnAll([open.memory, open.sqlite], sequence);
    await fc.assert(fc.asyncProperty(sequences, property), { numRuns: 40, ...settings });
  });
});

describe("all engines", () => {
  it("agree on every sequence of commands", { timeout: 120_000 }, async () => {
    const property = (sequence: readonly Play[]) => playOnAll(Object.values(open), sequence);
    await fc.assert(fc.asyncProperty(sequences, property), { numRuns: runs, ...settings });
  });
});
