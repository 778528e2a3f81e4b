// The manifest of a contract is plain JSON, the same for the same contract, another for another.
import { defineJob, defineService, manifest, versions } from "millrace";
import { describe, expect, it } from "vitest";
import { z } from "zod";

function shop(maxTries: number) {
  return defineService("shop", {
    sendReceipt: defineJob({
      payload: z.object({ orderId: z.string() }),
      result: z.object({ messageId: z.string() }),
      retry: { maxTries, backoff: () => 5 },
      retention: { dead: Number.POSITIVE_INFINITY },
    }),
    "import:feed": versions(
      defineJob({ payload: z.string() }),
      defineJob({ payload: z.object({ url: z.string() }), version: 2 }),
    ),
  });
}

describe("manifest", () => {
  it("names every version of every type, in order, with JSON Schema where there is one", () => {
    const { service, jobs } = manifest(shop(3));
    expect(service).toBe("shop");
    expect(jobs.map(({ type, version, queue }) => [type, version, queue])).toEqual([
      ["import:feed", 1, "import-feed"],
      ["import:feed", 2, "import-feed"],
      ["sendReceipt", 1, "sendReceipt"],
    ]);
    expect(jobs[2]).toMatchObject({
      payload: { type: "object", required: ["orderId"] },
      result: { type: "object", required: ["messageId"] },
      hasResult: true,
      settings: { maxTries: 3, backoff: "custom", retention: { dead: "forever" } },
    });
    expect(jobs[0]).toMatchObject({ result: null, hasResult: false });
  });

  it("survives JSON unchanged", () => {
    const written = manifest(shop(3));
    expect(JSON.parse(JSON.stringify(written))).toEqual(written);
  });

  it("has a signature that follows its content", () => {
    expect(manifest(shop(3)).signature).toBe(manifest(shop(3)).signature);
    expect(manifest(shop(4)).signature).not.toBe(manifest(shop(3)).signature);
  });
});
