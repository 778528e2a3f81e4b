// The commands about jobs, in a pipe and on a terminal, against a server and against a store.
import { describe, it } from "vitest";
import { tours } from "./tour.js";

interface Created {
  readonly id: string;
}

describe.for(tours)("against $name", ({ open }) => {
  it("jobs are created, listed, shown, explained, cancelled, retried and deleted", async () => {
    const { see, ask } = await open();
    await see(["job", "create", "bakery", "bake", '{"loaves":2}', "--tag", "rye"], {
      has: { outcome: "accepted" },
      shows: /^[0-9A-Z]{26}$/m,
    });
    const { id } = await ask<Created>("job", "create", "bakery", "bake", '{"loaves":1}');
    await see(["job", "list", "--service", "bakery", "--state", "pending"], {
      has: { count: 2, entries: [{ id, state: "pending" }, { tags: ["rye"] }] },
      shows: new RegExp(`ID +SERVICE +TYPE +STATE.*\\n${id} +bakery +bake +pending`),
    });
    await see(["job", "count"], { has: { total: 2 }, shows: /bakery +bake +bake +pending +2/ });
    await see(["job", "get", id], {
      has: { id, payload: { loaves: 1 } },
      shows: 'payload  {"loaves":1}',
    });
    await see(["job", "why", id], {
      has: { reason: "no_worker" },
      shows: "No live worker of bakery",
    });
    await see(["job", "cancel", id, "--reason", "closed"], {
      has: { entries: [{ id, outcome: "cancelled" }] },
      shows: `${id} cancelled`,
    });
    await see(["job", "events", id], {
      has: { entries: [{ name: "created" }, { name: "cancelled", reason: "closed" }] },
      shows: /created.*\n.*cancelled +closed/,
    });
    await see(["job", "retry", id], {
      has: { entries: [{ outcome: "retried" }] },
      shows: `${id} retried`,
    });
    await see(["job", "complete", id, "--result", '{"baked":9}'], {
      has: { state: "completed", result: { baked: 9 } },
      shows: 'result   {"baked":9}',
    });
    await see(["job", "complete", id, "--result", "{}"], { code: 4, shows: "error:" });
    await see(["job", "delete", id], {
      asks: true,
      has: { entries: [{ id }] },
      shows: `${id} deleted`,
    });
    await see(["job", "get", id], { code: 3, shows: `There is no job ${id}` });
  }, 60_000);

  it("jobs are waited for, watched and followed while a worker runs them", async () => {
    const { see, ask, work } = await open();
    await work();
    await see(["job", "create", "bakery", "bake", '{"loaves":3}', "--wait", "--timeout", "20s"], {
      has: { state: "completed", result: { baked: 3 } },
      shows: /"baked": 3/,
    });
    await see(["job", "create", "bakery", "drop", "{}", "--wait", "--timeout", "20s"], {
      code: 6,
      shows: "The job has ended as failed: It fell on the floor.",
    });
    await see(["job", "create", "bakery", "rise", "{}", "--wait", "--timeout", "300ms"], {
      code: 7,
      shows: "has not ended within 300 ms",
    });
    await see(["job", "create", "bakery", "bake", '{"loaves":"two"}'], {
      code: 2,
      shows: "loaves",
    });
    const { id } = await ask<Created>("job", "create", "bakery", "bake", '{"loaves":4}');
    await see(["job", "watch", id, "--timeout", "20s"], { shows: /started[\s\S]*completed/ });
    await see(["job", "logs", id], {
      has: { entries: [{ level: "info", message: "The dough is ready." }] },
      shows: "The dough is ready.",
    });
    await see(["service", "list"], {
      has: { entries: [{ name: "bakery" }] },
      shows: /bakery +1 +accepted/,
    });
    await see(["service", "get", "bakery"], { has: { hasContract: true }, shows: "bakery" });
    await see(["worker", "list"], { has: { entries: [{ fresh: true }] }, shows: /bakery .* live/ });
    await see(["info"], { has: { name: "millrace" }, shows: /store +file:/ });
    await see(["verify"], { has: { violationCount: 0 }, shows: "The log obeys every rule" });
  }, 60_000);

  it("dead jobs are listed, replayed and dismissed", async () => {
    const { see, ask, work } = await open();
    await work();
    const dead: string[] = [];
    for (let count = 0; count < 3; count++) {
      const { id } = await ask<Created>("job", "create", "bakery", "burn", "{}");
      dead.push(id);
      await see(["job", "watch", id], { code: 6, shows: "The oven is too hot." });
    }
    const [first = ""] = dead;
    await see(["dlq", "list", "--service", "bakery"], { has: { count: 3 }, shows: /burn +dead/ });
    await see(["dlq", "dismiss", first, "--reason", "seen"], {
      has: { entries: [{ id: first, state: "dismissed" }] },
      shows: `${first} dismissed`,
    });
    await see(["dlq", "replay", "--all", "--preview"], {
      has: { matched: 2 },
      shows: "2 dead jobs match.",
    });
    await see(["dlq", "replay", "--type", "burn"], {
      asks: true,
      has: { matched: 2, done: 2, failed: 0 },
      shows: "2 dead jobs replayed.",
    });
    await see(["dlq", "replay"], { code: 2, shows: "Say which" });
    await see(["dlq", "dismiss", "none-such"], { code: 3, shows: "error:" });
  }, 60_000);
});
