// Every engine against every case of the conformance suite.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type ConformanceTarget, runConformance } from "millrace/conformance";
import { describe, it } from "vitest";
import { openMemory } from "#millrace/engine/memory/engine.js";
import { openEngine } from "#millrace/engine/open.js";
import { newSchema } from "./support/postgres.js";

const memory: ConformanceTarget = {
  name: "memory",
  open: async (clock) => ({ engine: openMemory({ clock }) }),
};

const sqlite: ConformanceTarget = {
  name: "SQLite",
  open: async (clock) => {
    const folder = await mkdtemp(join(tmpdir(), "millrace-conformance-"));
    const open = () => openEngine(`file:${join(folder, "jobs.db")}`, { clock });
    return {
      engine: await open(),
      open,
      remove: () => rm(folder, { recursive: true, force: true }),
    };
  },
};

const postgres: ConformanceTarget = {
  name: "PostgreSQL",
  open: async (clock) => {
    const { url, remove } = await newSchema();
    const open = () => openEngine(url, { clock });
    return { engine: await open(), open, remove };
  },
};

for (const target of [memory, sqlite, postgres]) {
  describe(target.name, () => {
    runConformance(target, (name, run) => {
      // Every case has a store of its own, so they need not wait for each other.
      it.concurrent(name, async (context) => {
        const result = await run();
        if (result.outcome === "skipped") context.skip(result.reason);
      });
    });
  });
}
