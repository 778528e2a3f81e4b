// The JetStream engine against every case of the conformance suite.
import { type ConformanceTarget, runConformance } from "millrace/conformance";
import { describe, it } from "vitest";
import { openEngine } from "#millrace/engine/open.js";
import { newPrefix } from "./support/nats.js";

const nats: ConformanceTarget = {
  name: "JetStream",
  open: async (clock) => {
    const { storeUrl, remove } = await newPrefix();
    const open = () => openEngine(storeUrl, { clock });
    return { engine: await open(), open, remove };
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
