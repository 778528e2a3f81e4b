// Jobs that wait for others, chains that are waited for, and creates that can be repeated, on the command line.
import { describe, expect, it } from "vitest";
import { start } from "./millrace.js";
import { tours } from "./tour.js";

interface Created {
  readonly id: string;
}

describe.for(tours)("against $name", ({ open }) => {
  it("a job is given its blockers by name, and goes on after a bad end where it may", async () => {
    const { see, ask, work } = await open();
    await work();
    const sell = ["job", "create", "bakery", "sell", "{}"];
    const later = ["job", "create", "bakery", "bake", '{"loaves":2}', "--delay", "1h"];
    const { id: bread } = await ask<Created>("job", "create", "bakery", "bake", '{"loaves":2}');
    const { id: lost } = await ask<Created>(...later);
    for (const words of [sell, [...sell, "--blocker", bread]])
      await see(words, {
        code: 2,
        shows: /give\s+bread\s+by\s+its\s+name,\s+too[\s\S]*--blocker\s+name=id/,
      });
    await see([...sell, "--blocker", `bread=${bread}`, "--wait", "--timeout", "20s"], {
      has: { state: "completed", result: { sold: 2, bread: "completed" } },
      shows: /"sold": 2/,
    });
    await ask("job", "cancel", lost);
    await see([...sell, "--blocker", `bread=${lost}:continue`, "--wait", "--timeout", "20s"], {
      has: { result: { sold: 0, bread: "cancelled" } },
      shows: /"bread": "cancelled"/,
    });
    await see([...sell, "--blocker", `bread=${lost}`, "--wait", "--timeout", "20s"], {
      code: 6,
      shows: /has\s+ended\s+as\s+unreachable/,
    });
    await see(["job", "create", "bakery", "burn", "{}", "--blocker", `bread=${bread}`], {
      code: 2,
      shows: /without\s+names/,
    });
  }, 60_000);

  it("chains are followed to their end", async () => {
    const { see, ask, work } = await open();
    await work();
    const begin = ["chain", "start", "bakery"];
    await see([...begin, "order", "{}", "--wait", "--timeout", "20s"], {
      has: { state: "completed", count: 2, output: { baked: 5 } },
      shows: /"baked": 5/,
    });
    await see([...begin, "burn", "{}", "--wait", "--timeout", "20s"], {
      code: 6,
      has: { state: "dead" },
      shows: /The\s+chain\s+has\s+ended\s+as\s+dead:\s+The\s+oven\s+is\s+too\s+hot/,
    });
    await see([...begin, "order", "{}", "--delay", "1h", "--wait", "--timeout", "300ms"], {
      code: 7,
      shows: /Chain\s+\S+\s+has\s+not\s+ended\s+within\s+300\s+ms/,
    });
    await see([...begin, "order", "{}", "--timeout", "1s"], { code: 2, shows: "give both" });
    const { id: bread } = await ask<Created>("job", "create", "bakery", "bake", '{"loaves":2}');
    const { id } = await ask<Created>(...begin, "order", "{}", "--delay", "1h");
    const complete = ["chain", "complete", id, "--continue-with", "sell"];
    await see(complete, { code: 2, shows: /--blocker\s+name=id/ });
    await see(["chain", "complete", id, "--blocker", `bread=${bread}`], {
      code: 2,
      shows: /--continue-with/,
    });
    const { id: other } = await ask<Created>(...begin, "order", "{}", "--delay", "1h");
    await see(
      ["job", "complete", other, "--continue-with", "sell", "--blocker", `bread=${bread}`],
      { has: { state: "completed" }, shows: /completed/ },
    );
    await see([...complete, "--blocker", `bread=${bread}`, "--wait", "--timeout", "20s"], {
      has: { state: "completed", count: 2, output: { sold: 2 } },
      shows: /"sold": 2/,
    });
  }, 60_000);

  it("a chain is waited for while it goes from job to job", async () => {
    const { place, see, ask, work } = await open();
    await work();
    const bake = ["job", "create", "bakery", "bake", '{"loaves":2}', "--delay", "1h"];
    const { id: bread } = await ask<Created>(...bake);
    const words = ["chain", "start", "bakery", "order", "{}", "--delay", "1h", "--wait"];
    const waiting = start(place, words);
    const id = await waiting.says(/([0-9A-Z]{26}) accepted/);
    const goOn = ["chain", "complete", id, "--continue-with", "sell"];
    await see([...goOn, "--blocker", `bread=${bread}`], {
      has: { state: "blocked", current: { blockers: [{ jobId: bread, name: "bread" }] } },
      shows: `${id} blocked`,
    });
    await ask("job", "complete", bread, "--result", '{"baked":7}');
    const { code, out } = await waiting.ended;
    expect([code, JSON.parse(out)]).toEqual([0, { sold: 7, bread: "completed" }]);
  }, 60_000);

  it("a create is repeatable within its window, or until its job has ended", async () => {
    const { see, ask } = await open();
    const create = ["job", "create", "bakery", "bake", "{}", "--idempotency-key", "rye"];
    const unfinished = ["--idempotency-scope", "unfinished", "--idempotency-window", "1h"];
    const { id } = await ask<Created>(...create, ...unfinished);
    await see([...create, ...unfinished], { has: { outcome: "existing", id }, shows: id });
    await ask("job", "cancel", id);
    await see(create, { has: { outcome: "existing", id }, shows: id });
    await see([...create, ...unfinished], {
      has: { outcome: "accepted" },
      shows: /^[0-9A-Z]{26}\s*$/,
    });
    const keyless = ["job", "create", "bakery", "bake", "{}", "--idempotency-window", "1h"];
    await see(keyless, { code: 2, shows: /give\s+--idempotency-key,\s+too/ });
  }, 60_000);
});
