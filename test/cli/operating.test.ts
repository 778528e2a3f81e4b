// The commands about everything but jobs, in a pipe and on a terminal.
import { describe, expect, it } from "vitest";
import { bakeryModule, serverTours } from "./tour.js";

interface Created {
  readonly id: string;
}

describe.for(serverTours)("against $name", ({ open }) => {
  it("schedules are made, listed, paused, run, foretold and deleted", async () => {
    const { see } = await open();
    await see(
      ["schedule", "create", "bakery", "dawn", "bake", '{"loaves":1}', "--cron", "0 4 * * *"],
      {
        has: { name: "dawn", cron: "0 4 * * *", timeZone: "UTC", enabled: true },
        shows: /dawn +bake +0 4 \* \* \* \(UTC\) +on/,
      },
    );
    await see(["schedule", "create", "bakery", "dawn", "bake", "--every", "1h"], { code: 4 });
    await see(["schedule", "create", "bakery", "odd", "bake", "--cron", "61 * * * *"], {
      code: 2,
      shows: "Invalid value for minute",
    });
    await see(["schedule", "list", "bakery"], {
      has: { entries: [{ name: "dawn" }] },
      shows: "dawn",
    });
    await see(["schedule", "next", "bakery", "dawn", "--count", "2"], {
      shows: /T04:00:00\.000Z\s+\S+T04:00:00\.000Z/,
    });
    await see(["schedule", "pause", "bakery", "dawn"], {
      has: { enabled: false, nextAt: null },
      shows: "paused",
    });
    await see(["schedule", "resume", "bakery", "dawn"], { has: { enabled: true }, shows: " on " });
    await see(["schedule", "run", "bakery", "dawn"], { shows: /^[0-9A-Z]{26}$/m });
    await see(["job", "list", "--tag", "schedule:dawn"], { has: { count: 1 }, shows: "bake" });
    await see(["schedule", "get", "bakery", "dawn"], {
      has: { origin: "caller" },
      shows: "caller",
    });
    await see(["schedule", "delete", "bakery", "dawn"], { asks: true, shows: "deleted" });
    await see(["schedule", "get", "bakery", "dawn"], { code: 3 });
  }, 60_000);

  it("webhooks are made, listed, changed, tested, rotated and deleted", async () => {
    const { see, ask } = await open();
    await see(["webhook", "create", "bakery", "http://127.0.0.1:9/hook"], {
      code: 2,
      shows: "not a public address",
    });
    const made = await ask<{ readonly webhook: Created }>(
      ...[
        "webhook",
        "create",
        "bakery",
        "https://bakery.invalid/hook",
        "--event",
        "completed,dead",
      ],
    );
    const { id } = made.webhook;
    const hook = ["bakery", id];
    await see(["webhook", "list", "bakery"], { has: { entries: [{ id }] }, shows: id });
    await see(["webhook", "get", ...hook], { has: { events: ["completed", "dead"] }, shows: id });
    await see(["webhook", "set", ...hook, "--disable"], {
      has: { enabled: false, disabled: { reason: "caller" } },
      shows: "off (caller)",
    });
    await ask("webhook", "set", ...hook, "--type", "bake");
    expect(await ask("webhook", "get", ...hook)).toMatchObject({ types: ["bake"] });
    await ask("webhook", "set", ...hook, "--all-types");
    expect(await ask("webhook", "get", ...hook)).not.toHaveProperty("types");
    await see(["webhook", "set", ...hook, "--all-types", "--type", "bake"], {
      code: 2,
      shows: "exclude each other",
    });
    await see(["webhook", "rotate-secret", ...hook, "--overlap", "1h"], { shows: /whsec_\S{20,}/ });
    // Names that end in .invalid lead nowhere.
    await see(["webhook", "test", ...hook], { code: 1, shows: "not delivered" });
    await see(["webhook", "deliveries", ...hook], { has: { entries: [] } });
    await see(["webhook", "redeliver", ...hook, "none-such"], { code: 3 });
    await see(["webhook", "delete", ...hook], { asks: true, shows: "deleted" });
    await see(["webhook", "get", ...hook], { code: 3 });
  }, 60_000);

  it("queues are created, limited, paused, resumed, purged and deleted", async () => {
    const { see, ask } = await open();
    await see(["queue", "create", "bakery", "night", "--max-active", "2"], {
      has: { queue: "night", maxActive: 2, paused: false },
      shows: /bakery +night +open +0 +0 +2/,
    });
    await see(["queue", "create", "bakery", "night"], { code: 4, shows: "error:" });
    await see(["queue", "create", "bakery", "DEFAULT"], { code: 2, shows: "error:" });
    await see(["queue", "set", "bakery", "night", "--max-active", "7"], {
      has: { maxActive: 7 },
      shows: /7/,
    });
    await see(["queue", "set", "bakery", "night", "--max-active", "none"], {
      shows: /night +open/,
    });
    await see(["queue", "pause", "bakery", "night"], { has: { paused: true }, shows: "paused" });
    await ask("job", "create", "bakery", "bake", '{"loaves":1}', "--queue", "night");
    await see(["queue", "get", "bakery", "night"], { has: { waiting: 1 }, shows: /paused +1 +0/ });
    await see(["queue", "resume", "bakery", "night"], { has: { paused: false }, shows: "open" });
    await see(["queue", "list", "--service", "bakery"], {
      has: { entries: [{ queue: "night" }] },
      shows: /bakery +night/,
    });
    await see(["queue", "delete", "bakery", "night", "--yes"], { code: 4, shows: "error:" });
    await see(["queue", "purge", "bakery", "night", "--preview"], {
      has: { matched: 1 },
      shows: "1 jobs wait.",
    });
    await see(["queue", "purge", "bakery", "night"], {
      asks: true,
      has: { removed: 1 },
      shows: "1 jobs deleted.",
    });
    await see(["queue", "delete", "bakery", "night"], {
      asks: true,
      shows: "bakery/night deleted",
    });
    await see(["queue", "get", "bakery", "night"], { code: 3, shows: "error:" });
  }, 60_000);

  it("contracts are compared and accepted, and keys shown", async () => {
    const { see, ask } = await open();
    await see(["contract", "diff", bakeryModule], {
      has: { standing: "first" },
      shows: "would be the first",
    });
    await see(["contract", "accept", bakeryModule], {
      shows: "The contract of bakery was accepted.",
    });
    await see(["contract", "diff", bakeryModule], {
      has: { standing: "accepted" },
      shows: "It is the accepted contract.",
    });
    await see(["contract", "list"], {
      has: { entries: [{ service: "bakery", jobs: 7 }] },
      shows: /bakery +7/,
    });
    await see(["contract", "get", "bakery"], {
      has: { manifest: { service: "bakery" } },
      shows: '"service": "bakery"',
    });
    await see(["contract", "export", bakeryModule], {
      has: { service: "bakery" },
      shows: '"service": "bakery"',
    });
    await ask("job", "create", "bakery", "heat", '{"oven":"left"}');
    const { entries } = await ask<{ entries: { hash: string }[] }>("key", "list");
    const hash = entries[0]?.hash ?? "";
    await see(["key", "list", "--service", "bakery"], {
      has: { count: 1 },
      shows: /heat +oven\/left +[01]\/1/,
    });
    await see(["key", "get", hash], { has: { key: "oven/left" }, shows: /key +oven\/left/ });
    await see(["key", "release", hash], {
      asks: true,
      has: { released: [] },
      shows: "Nothing held it.",
    });
    await see(["key", "get", "none-such"], { code: 2, shows: "error:" });
  }, 60_000);

  it("chains are started, listed, shown, completed and deleted", async () => {
    const { see, ask } = await open();
    const { id } = await ask<Created>("chain", "start", "bakery", "bake", '{"loaves":1}');
    await see(["chain", "start", "bakery", "bake", '{"loaves":1}'], { shows: /^[0-9A-Z]{26}$/m });
    await see(["chain", "list"], { has: { count: 2 }, shows: /bakery +bake +pending +bake/ });
    await see(["chain", "get", id], { has: { id, count: 1 }, shows: /state +pending/ });
    await see(["chain", "complete", id, "--result", '{"baked":1}'], {
      shows: new RegExp(`${id} completed`),
    });
    await see(["chain", "get", id], {
      has: { state: "completed", output: { baked: 1 } },
      shows: '{"baked":1}',
    });
    await see(["chain", "delete", id], { asks: true, shows: `${id} deleted` });
    await see(["chain", "get", id], { code: 3, shows: "error:" });
  }, 60_000);

  it("tokens are created, listed without their secrets, and revoked", async () => {
    const { see, ask } = await open();
    await see(["token", "create", "ci", "--may", "admin.read", "--expires", "1d"], {
      has: { name: "ci", capabilities: ["admin.read"] },
      shows: /^mr_\S+$/m,
    });
    const { entries } = await ask<{ entries: Record<string, string>[] }>("token", "list");
    expect(Object.keys(entries[0] ?? {})).not.toContain("secret");
    await see(["token", "list"], { has: { entries: [{ name: "ci" }] }, shows: /ci +admin\.read/ });
    const id = entries[0]?.id ?? "";
    await see(["token", "revoke", id], {
      asks: true,
      has: { revoked: id },
      shows: `${id} revoked`,
    });
    await see(["audit", "list"], {
      has: { entries: [{ action: "token.revoke", target: id }, { action: "token.create" }] },
      shows: /admin:\S+ +token\.revoke/,
    });
    await see(["audit", "list", "--action", "token.create", "--limit", "1", "--since", "1h"], {
      has: { entries: [{ target: id, details: { name: "ci" } }] },
      shows: "token.create",
    });
    await see(["audit", "list", "--action", "other"], { code: 2, shows: "error:" });
    await see(["token", "create", "x"], { code: 2, shows: "--may" });
    await see(["token", "create", "x", "--may", "everything"], { code: 2, shows: "error:" });
  }, 60_000);
});
