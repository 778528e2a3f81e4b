// What permissions of NATS cannot prevent: a user lets the server itself carry words to where it may not
// publish, or lies about whose they are. Nobody believes it.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect as connectNats, type MsgHdrs } from "@nats-io/transport-node";
import { connect, defineJob, defineService } from "millrace";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { manifest } from "#millrace/contract/manifest.js";
import { openNats } from "#millrace/engine/nats/open.js";
import {
  inboxPrefix,
  permissionsOf,
  permissionsText,
  type Role,
} from "#millrace/engine/nats/permissions.js";
import { recordId } from "#millrace/engine/record.js";
import { ownNats } from "../support/nats.js";

const shop = defineService("shop", { mail: defineJob({ payload: z.object({}) }) });
const bank = defineService("bank", { transfer: defineJob({ payload: z.object({}) }) });

/** Headers as somebody sends them who does not care what headers look like. */
function bareHeaders(text: string): MsgHdrs {
  return { encode: () => new TextEncoder().encode(text) } as unknown as MsgHdrs;
}

/** Headers that end in the middle of a line, which what the server adds then goes on with. */
const openHeaders = bareHeaders("NATS/1.0\r\nX: y..");

it("a service forges nothing of another's", async () => {
  const folder = await mkdtemp(join(tmpdir(), "millrace-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const roles: Record<string, Role> = {
    admin: { kind: "admin" },
    shop: { kind: "service", manifest: manifest(shop) },
    bank: { kind: "service", manifest: manifest(bank) },
  };
  const users = Object.entries(roles).map(([user, role]) => {
    const permissions = permissionsText(permissionsOf({ prefix: "millrace" }, role));
    return `{ user: ${user}, password: ${user}, ${permissions} }`;
  });
  const server = await ownNats({ config: `authorization { users: [ ${users.join(", ")} ] }` });
  const open = async (user: string, scope = "") => {
    const projection = encodeURIComponent(`file:${join(folder, `${user}.db`)}`);
    const url = `${server.url.replace("//", `//${user}:${user}@`)}?projection=${projection}${scope}`;
    const engine = await openNats(url);
    onTestFinished(() => engine.close());
    return engine;
  };
  const admin = await open("admin");
  const bankEngine = await open("bank", "&service=bank");
  const service = await connect(bank, { engine: bankEngine });
  onTestFinished(() => service.stop());
  const victim = await service.jobs.transfer.create({}).orThrow();
  const [created] = await victim.events().orThrow();

  const attacker = await connectNats({
    servers: server.url,
    user: "shop",
    pass: "shop",
    inboxPrefix: inboxPrefix("millrace", "shop"),
  });
  onTestFinished(() => attacker.close());
  const forged = { ...created, id: "forged", name: "cancelled", state: "cancelled", version: 2 };
  const queue = recordId.queue("bank", "transfer");
  const paused = { id: queue, version: 1, body: { paused: true } };
  const carry = async (place: string, body: object, to: string, headers?: MsgHdrs) => {
    await attacker.request(place, JSON.stringify(body), {
      timeout: 5_000,
      ...(headers && { headers }),
    });
    attacker.publish(`$JS.API.DIRECT.GET.MILLRACE_JOBS.${place}`, "", { reply: to });
    await attacker.flush();
  };
  await carry(
    `millrace.jobs.shop.mail.${victim.id}.cancelled`,
    forged,
    `millrace.jobs.bank.transfer.${victim.id}.cancelled`,
  );
  await carry(
    "millrace.jobs.shop.mail.2.created",
    paused,
    "$KV.MILLRACE_RECORDS.bank.queue.transfer",
  );
  await carry(
    `millrace.jobs.shop.mail.${victim.id}.dead`,
    { ...forged, id: "forged too", name: "dead", state: "dead" },
    `millrace.jobs.bank.transfer.${victim.id}.dead`,
    openHeaders,
  );
  await carry(
    "millrace.jobs.shop.mail.4.created",
    paused,
    "$KV.MILLRACE_RECORDS.bank.queue.transfer",
    openHeaders,
  );
  attacker.publish("millrace.jobs.shop.mail.3.created", "no event", {
    reply: `millrace.jobs.bank.transfer.${victim.id}.cancelled`,
  });
  // A deletion that names the job of another: what is left of deleted jobs is removed later.
  const deleted = {
    ...{ ...forged, id: "forged deletion", name: "deleted", at: (created?.at ?? 0) - 3_600_000 },
    ...{ service: "shop", type: "mail" },
  };
  await attacker.request(`millrace.jobs.shop.mail.${victim.id}.deleted`, JSON.stringify(deleted));
  await attacker.flush();

  // Whatever was forged came before this one.
  const later = await service.jobs.transfer.create({}).orThrow();
  await admin.prune(admin.now());
  for (const engine of [bankEngine, admin]) {
    const [loaded] = await engine.load([victim.id]);
    expect(loaded?.job).toMatchObject({ service: "bank", state: "pending", version: 1 });
    expect(await engine.query("job", { id: later.id })).toMatchObject({ state: "pending" });
    expect(await engine.query("job", { id: victim.id })).toMatchObject({ state: "pending" });
    expect(await engine.records([queue])).toEqual([null]);
  }
  await service.queues.pause("transfer").orThrow();
  await service.queues.resume("transfer").orThrow();
  service.jobs.transfer.handle(async () => {});
  await service.start();
  await victim.wait().orThrow();
  expect((await victim.events().orThrow()).map(({ name }) => name)).toEqual([
    "created",
    "started",
    "completed",
  ]);
});

it("a service that writes nonsense into its own log hinders nobody", async () => {
  const server = await ownNats({});
  const folder = await mkdtemp(join(tmpdir(), "millrace-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const projection = encodeURIComponent(`file:${join(folder, "views.db")}`);
  const engine = await openNats(`${server.url}?projection=${projection}`);
  onTestFinished(() => engine.close());
  const service = await connect(bank, { engine });
  onTestFinished(() => service.stop());
  const job = await service.jobs.transfer.create({}).orThrow();
  expect((await service.reads.jobs().orThrow()).entries).toHaveLength(1);

  const vandal = await connectNats({ servers: server.url });
  onTestFinished(() => vandal.close());
  const place = "millrace.jobs.shop.mail.1";
  const started = { service: "shop", type: "mail", jobId: "1", name: "started", token: 1 };
  const caps = bareHeaders("NATS/1.0\r\nMillrace-Caps: {\r\n\r\n");
  await vandal.request(`${place}.started`, JSON.stringify(started), {
    timeout: 5_000,
    headers: caps,
  });
  const noKey = bareHeaders("NATS/1.0\r\nBad Key: y\r\n\r\n");
  await vandal.request(`${place}.created`, "", { timeout: 5_000, headers: noKey });
  await vandal.request(`${place}.dead`, "no event", { timeout: 5_000, headers: noKey });

  const later = await service.jobs.transfer.create({}).orThrow();
  const listed = (await service.reads.jobs().orThrow()).entries.map(({ id }) => id);
  expect(listed.sort()).toEqual([job.id, later.id].sort());
  const [nonsense] = await engine.load(["1"]);
  expect(nonsense).toBeNull();
});
