// The audit trail of a service in one's own process: what starting leaves, and what a store that fails does not break.
import { connect, defineJob, defineService, InvalidOption } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { type AuditAction, auditPage, leaveAuditEvent } from "#millrace/client/audit.js";
import type { Engine } from "#millrace/engine/engine.js";
import { openEngine } from "#millrace/engine/open.js";
import { openService, stores } from "../support/stores.js";
import { status } from "../webhooks/receiver.js";
import { Shop } from "../webhooks/shop.js";

const report = defineJob({ payload: z.object({}) });
const nightly = { type: "report", payload: {}, cron: "0 2 * * *" } as const;
const first = defineService("shop", { report }, { schedules: { nightly, weekly: nightly } });
const second = defineService(
  "shop",
  { report },
  { schedules: { nightly: { ...nightly, cron: "0 3 * * *" } } },
);

describe.each(stores)("the audit trail of a service on $name", (store) => {
  it("tells what starting changed, and nothing when it changed nothing", async () => {
    const engine = await openEngine(await store.freshUrl());
    onTestFinished(() => engine.close());
    const told = async (contract: typeof first) => {
      const service = await connect(contract, { engine, instance: "web-1" });
      await service.start();
      const { entries } = await service.reads.audit({ limit: 100 }).orThrow();
      await service.stop();
      expect(new Set(entries.map(({ actor }) => actor))).toEqual(new Set(["client:web-1"]));
      return entries.map(({ action, target }) => `${action} ${target}`).sort();
    };
    const started = ["contract.accept shop", "schedule.create nightly", "schedule.create weekly"];
    expect(await told(first)).toEqual(started);
    expect(await told(first)).toEqual(started);
    const changed = ["contract.accept shop", "schedule.update nightly", "schedule.delete weekly"];
    expect(await told(second)).toEqual([...started, ...changed].sort());
  });

  it("is the service's own unless another is asked for, and options are checked", async () => {
    const service = await openService(store, first);
    await service.queues.pause("report").orThrow();
    const found = async (name?: string) => {
      const ask = name === undefined ? {} : { service: name };
      return (await service.reads.audit(ask).orThrow()).entries.length;
    };
    expect([await found(), await found("*"), await found("other")]).toEqual([1, 1, 0]);
    const wrong = { action: "queue.other", cursor: "7", limit: 101, since: Number.NaN };
    for (const [field, value] of Object.entries(wrong)) {
      const refused = await service.reads.audit({ [field]: value });
      expect(refused.isErr() && refused.error).toMatchObject({ field });
      expect(refused.isErr() && InvalidOption.is(refused.error)).toBe(true);
    }
  });
});

describe("an audit event", () => {
  it("that the store does not take is told to the log, and its change stands", async () => {
    const shop = new Shop();
    const { receiver, id } = await shop.subscribe();
    receiver.answer = status(200);
    shop.workshop.trouble.swap = "refuse";
    expect(await shop.webhooks.test(id).orThrow()).toMatchObject({ delivered: true });
    const [line] = shop.workshop.logged("An audit event could not be stored.");
    expect(line).toMatchObject({ level: "error", fields: { action: "webhook.test", target: id } });
  });

  it("is found among all services with one question for who has any", async () => {
    const { workshop } = new Shop();
    const services = ["a", "b", "c", "d"];
    for (const service of services)
      await leaveAuditEvent(workshop.runtime("api"), {
        ...{ action: "queue.pause", target: "mail", service },
      });
    const asked: string[] = [];
    const engine = new Proxy(workshop.engine, {
      get(target, member) {
        const found = Reflect.get(target, member, target) as unknown;
        if (member !== "query") return typeof found === "function" ? found.bind(target) : found;
        const query: Engine["query"] = (name, ask) => {
          asked.push(`${name} ${(ask as { readonly prefix: string }).prefix}`);
          return target.query(name, ask);
        };
        return query;
      },
    });
    const { entries } = await auditPage(engine, {});
    expect(entries.map(({ service }) => service).sort()).toEqual(services);
    const own = services.map((service) => `records audit/${service}/`);
    expect(asked).toEqual(["recordOwners audit/", ...own]);
  });

  it("is looked for among 5,000 at a time, and the cursor goes on", async () => {
    const { workshop } = new Shop();
    const leave = (action: AuditAction, target: string) =>
      leaveAuditEvent(workshop.runtime("api"), { action, target });
    await leave("queue.pause", "first");
    for (let index = 0; index < 5_000; index++) await leave("queue.resume", "mail");
    const ask = { action: "queue.pause", limit: 1 } as const;
    const { entries, nextCursor } = await auditPage(workshop.engine, ask);
    expect(entries).toEqual([]);
    expect(nextCursor).toBeDefined();
    const rest = await auditPage(workshop.engine, { ...ask, cursor: nextCursor ?? "" });
    expect(rest.entries).toMatchObject([{ target: "first" }]);
    expect(rest.nextCursor).toBeUndefined();
  });
});
