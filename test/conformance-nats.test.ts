// The JetStream engine against every case of the conformance suite.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type ConformanceTarget, runConformance } from "millrace/conformance";
import { describe, it } from "vitest";
import { openEngine } from "#millrace/engine/open.js";
import { newPrefix } from "./support/nats.js";

const nats: ConformanceTarget = {
  name: "JetStream",
  open: async (clock) => {
    const { storeUrl, remove } = await newPrefix();
    const folder = await mkdtemp(join(tmpdir(), "millrace-projection-"));
    const url = `${storeUrl}&projection=file:${join(folder, "view.db")}`;
    const open = () => openEngine(url, { clock });
    return {
      engine: await open(),
      open,
      remove: async () => {
        await remove();
        await rm(folder, { recursive: true, force: true });
      },
    };
  },
};

describe(nats.name, () => {
  runConformance(nats, (name, run) => {
    it.concurrent(name, async (context) => {
      const result = await run();
      if (result.outcome === "skipped") context.skip(result.reason);
    });
  });
});
