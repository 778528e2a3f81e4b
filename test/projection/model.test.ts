// Projections that are told the log of an engine give the engine's own answers, whatever was done to it.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { Environment, MovableClock } from "millrace/conformance";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openMemory } from "#millrace/engine/memory/engine.js";
import { openEngine } from "#millrace/engine/open.js";
import { openProjection } from "#millrace/engine/projection/open.js";
import type { Projection } from "#millrace/engine/projection/projection.js";
import { type Play, Player, plays } from "../model/player.js";
import { newSchema } from "../support/postgres.js";
import { look, Recorder, type Told, tell } from "./recorder.js";
import { keysOfLog, readKeys, readViews } from "./views.js";

const types = ["mail", "sync"];
const identity = { identity: "test", origin: "first" };
const clock = new MovableClock();
let folder: string;
let removeSchema: () => Promise<void>;
let local: Projection[];
let postgres: Projection;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "millrace-projection-"));
  const schema = await newSchema();
  removeSchema = schema.remove;
  const urls = ["one", "two"].map((name) => `file:${join(folder, `${name}.db`)}`);
  urls.push("memory:");
  local = await Promise.all(urls.map((url) => openProjection(url, { ...identity, clock })));
  postgres = await openProjection(schema.url, { ...identity, clock });
});

afterAll(async () => {
  await Promise.all([...local, postgres].map((projection) => projection.close()));
  await removeSchema();
  await rm(folder, { recursive: true, force: true });
});

/** Plays a sequence on an engine; somebody looks for due jobs whenever time has passed. */
async function playOn(kind: "memory" | "sqlite", sequence: readonly Play[]) {
  const path = join(folder, "jobs.db");
  const inner =
    kind === "memory" ? openMemory({ clock }) : await openEngine(`file:${path}`, { clock });
  const recorder = new Recorder(inner);
  const alone = () => Promise.reject(new Error("A model opens its store once."));
  const env = new Environment(recorder.engine, clock, alone);
  const player = new Player(env);
  for (const play of sequence) {
    if (play.kind === "advance") clock.advance(play.ms);
    else await player.play(play);
    if (play.kind === "advance") await look(env, types);
    await recorder.read();
  }
  await look(env, types);
  await recorder.read();
  const ids = [...new Set(recorder.events.map(({ event }) => event.jobId))];
  const close = async () => {
    await inner.close();
    for (const end of ["", "-wal", "-shm"]) await rm(`${path}${end}`, { force: true });
  };
  return { recorder, ids, engine: inner, close };
}

async function expectEqual(kind: "memory" | "sqlite", sequence: readonly Play[]): Promise<void> {
  const { recorder, ids, engine, close } = await playOn(kind, sequence);
  try {
    const expected = await readViews(engine, ids);
    const keys = keysOfLog(await readKeys(engine), recorder.events);
    const batches: [Projection, number][] = [
      [local[0] as Projection, 1],
      [local[1] as Projection, 7],
      [local[2] as Projection, 1_000],
      [postgres, 7],
    ];
    for (const [projection, batchSize] of batches) {
      await projection.clear();
      await tell(projection, recorder.told, batchSize, batchSize > 1);
      expect(await readViews(projection, ids)).toEqual(expected);
      expect(await readKeys(projection)).toEqual(keys);
      const status = await projection.status(await projection.position());
      expect(status).toMatchObject({ lag: 0, ignored: 0 });
    }
  } finally {
    await close();
  }
}

const sequences = fc.array(plays, { minLength: 10, maxLength: 80, size: "max" });
const settings = {
  numRuns: 15,
  endOnFailure: true,
} as const;

describe("a projection of a log", () => {
  it.for(["sqlite", "memory"] as const)(
    "answers as the %s engine itself, in batches of any size",
    { timeout: 150_000 },
    async (kind) => {
      const property = (sequence: readonly Play[]) => expectEqual(kind, sequence);
      await fc.assert(fc.asyncProperty(sequences, property), settings);
    },
  );

  it("is the same after a rebuild from what is left of the log", { timeout: 150_000 }, async () => {
    await fc.assert(fc.asyncProperty(sequences, expectRebuilt), settings);
  });
});

/** A rebuild finds jobs that were removed only by their last event, or not at all. */
async function expectRebuilt(sequence: readonly Play[]): Promise<void> {
  // Renewals are mirrored as they are now, and not as they once were.
  const calm = sequence.filter(({ kind }) => kind !== "renew");
  const { recorder, ids, close } = await playOn("sqlite", calm);
  await close();
  const [live, marked, bare] = local as [Projection, Projection, Projection];
  for (const projection of local) await projection.clear();
  await tell(live, recorder.told, 50);
  await tell(marked, withoutRemoved(recorder.told, true), 50);
  await tell(bare, withoutRemoved(recorder.told, false), 50);
  const expected = await rebuiltViews(live, ids);
  expect(await rebuiltViews(marked, ids)).toEqual(expected);
  // How a removed blocker ended is told by its last event alone.
  const { blockers, due, dependents, ...rest } = expected;
  expect(await rebuiltViews(bare, ids)).toMatchObject(rest);
  await live.clear();
  await tell(live, recorder.told, 1_000);
  expect(await rebuiltViews(live, ids)).toEqual(expected);
}

function withoutRemoved(told: readonly Told[], keepsMarks: boolean): readonly Told[] {
  // An id may be used again after its job was removed, so that only what comes before the removal goes.
  const last = new Map<string, number>();
  for (const [index, each] of told.entries())
    if (each.kind === "event" && each.entry.event.name === "deleted")
      last.set(each.entry.event.jobId, index);
  return told.filter((each, index) => {
    if (each.kind !== "event") return true;
    const removedAt = last.get(each.entry.event.jobId) ?? -1;
    return index > removedAt || (keepsMarks && index === removedAt);
  });
}

/** Which of the jobs that wait for a key has its slot reserved depends on those that were there before them. */
async function rebuiltViews(projection: Projection, ids: readonly string[]) {
  const { ahead, ...views } = await readViews(projection, ids);
  const keys = [];
  for (const row of (await readKeys(projection)).values()) {
    const { active, queued, queuedCount, ...rest } = row;
    const held = active.filter(({ state }) => state === "active");
    const inLine = active.filter(({ state }) => state === "reserved").map(({ jobId }) => jobId);
    keys.push({ ...rest, held, waiting: [...queued, ...inLine].sort() });
  }
  return { ...views, keys };
}
