// What tells one thing from another is told apart by every store, or refused before any store sees it.
import { defineJob, defineService } from "millrace";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { everyStore } from "../support/every-store.js";
import { openService } from "../support/stores.js";

const shop = defineService("shop", { call: defineJob({ payload: z.number() }) });

const unkeepable = ["a\u0000", "a\u0001", "a\u007f", "a\ud800", "a\udfff", "\udc00\ud800"];

/** Neighbours of those that are refused, and texts that look alike. */
const keepable = ["a", "a\ufffd", "a\u{1f600}", "a ", "A", "é", "e\u0301", "a%", "a/b", "a.b"];

describe.for(everyStore)("on $name", (store) => {
  it("different idempotency keys are different jobs", async () => {
    const { jobs } = await openService(store, shop, { keeper: false });
    const ids = new Set<string>();
    for (const [index, idempotencyKey] of keepable.entries()) {
      const { id } = await jobs.call.create(index, { idempotencyKey }).orThrow();
      ids.add(id);
      const again = await jobs.call.create(index, { idempotencyKey }).orThrow();
      expect(again.id).toBe(id);
    }
    expect(ids.size).toBe(keepable.length);
  });

  it("what a store might change is refused by name", async () => {
    const { jobs, reads } = await openService(store, shop, { keeper: false });
    for (const text of unkeepable) {
      for (const idempotencyKey of [text, { key: text }]) {
        const refused = await jobs.call.create(1, { idempotencyKey });
        const field = "idempotencyKey";
        expect(refused.isErr() && refused.error).toMatchObject({ _tag: "InvalidOption", field });
      }
      const refused = await jobs.call.create(1, { tags: [text] });
      expect(refused.isErr() && refused.error).toMatchObject({
        _tag: "InvalidOption",
        field: "tags",
      });
    }
    expect(await reads.counts().orThrow()).toEqual([]);
    const unnamed = await reads.job({} as string);
    expect(unnamed.isErr() && unnamed.error).toMatchObject({ _tag: "InvalidOption", field: "id" });
  });
});
