// The keeper of a process whose view on JetStream is brought up to date by another one: it takes the view as it is while
// that one lets many events gather, and has few of them applied at once.
import Database from "better-sqlite3";
import { connect, defineJob, defineService, openEngine } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { addressOf } from "#millrace/engine/nats/address.js";
import { freshStoreUrl, natsConnection } from "../support/nats.js";

const shop = defineService("shop", { pack: defineJob({ payload: z.object({ n: z.number() }) }) });
const lapsed = { kind: "lapsed", service: "shop" } as const;

/** A store with a view that another process leads, and never brings up to date. */
async function storeLedElsewhere() {
  const url = await freshStoreUrl();
  const first = await openEngine(url);
  await first.query("counts", {});
  await first.close();
  const view = new Database(new URL(url).searchParams.get("projection")?.replace("file:", ""));
  view.prepare("UPDATE projection SET leader = 'another', leader_until = ?").run(2 ** 50);
  onTestFinished(() => void view.close());
  const service = await connect(shop, { url });
  onTestFinished(() => service.stop());
  const create = (count: number) =>
    service.jobs.pack.createMany(Array.from({ length: count }, (_, n) => ({ payload: { n } })));
  return { url, engine: service.engine, create, view };
}

describe("a view that another process brings up to date", () => {
  it("is taken as it is while many events gather", async () => {
    const { engine, create } = await storeLedElsewhere();
    for (let batch = 0; batch < 2; batch++) await create(1_000).orThrow();
    expect(await engine.due(lapsed, 10)).toEqual([]);
  });

  it("is asked for where few events are missing", async () => {
    const { url, engine, create, view } = await storeLedElsewhere();
    const { prefix } = addressOf(url);
    const connection = await natsConnection(url.slice(0, url.indexOf("?")));
    const hints = connection.subscribe(`${prefix}.hints.view.>`, { max: 1 });
    await connection.flush();
    await create(1).orThrow();
    const looking = engine.due(lapsed, 10);
    const heard = [];
    for await (const { subject } of hints) heard.push(subject);
    expect(heard).toEqual([`${prefix}.hints.view._`]);
    view.prepare("UPDATE projection SET position = ?").run(2 ** 50);
    expect(await looking).toEqual([]);
  });
});
