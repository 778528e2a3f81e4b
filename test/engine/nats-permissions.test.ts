// Users with no more than what they need: each does its own work, and nothing of anybody else's.

import * as nats from "@nats-io/transport-node";
import { defineJob, defineService } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { manifest } from "#millrace/contract/manifest.js";
import { addressOf } from "#millrace/engine/nats/address.js";
import { openConnection } from "#millrace/engine/nats/connection.js";
import { JetStreamPort } from "#millrace/engine/nats/jetstream.js";
import {
  inboxPrefix,
  type PermissionScope,
  permissionsOf,
  permissionsText,
  type Role,
} from "#millrace/engine/nats/permissions.js";
import { provision } from "#millrace/engine/nats/provision.js";
import { Subjects } from "#millrace/engine/nats/subjects.js";
import { ownNats } from "../support/nats.js";

const job = () => defineJob({ payload: z.object({}) });
const shop = manifest(defineService("shop", { "mail.send": job() }));
const bank = manifest(defineService("bank", { transfer: job() }));

const roles = {
  admin: { kind: "admin" },
  shop: { kind: "service", manifest: shop, others: [bank, shop] },
  bank: { kind: "service", manifest: bank },
  observer: { kind: "observer" },
  operator: { kind: "operator" },
} as const satisfies Record<string, Role>;

type User = keyof typeof roles;

const shopLane = { service: "shop", queue: "mail-send", type: "mail.send", typeVersion: 1 };
const bankConsumer = "bank~transfer~transfer~v1-normal";

/** A server on which everybody has just the permissions of the role of the same name. */
async function guardedServer(scope: PermissionScope = { prefix: "millrace" }) {
  const users = Object.entries(roles).map(
    ([user, role]) =>
      `{ user: ${user}, password: ${user}, ${permissionsText(permissionsOf(scope, role))} }`,
  );
  const { prefix, domain } = scope;
  const server = await ownNats({
    config: `authorization { users: [ ${users.join(",\n")} ] }`,
    ...(domain !== undefined && { domain }),
  });
  const query = `?prefix=${prefix}${domain === undefined ? "" : `&domain=${domain}`}`;
  const connectAs = async (user: User) => {
    const address = addressOf(`${server.url.replace("//", `//${user}:${user}@`)}${query}`);
    const role: Role = roles[user];
    const inbox = inboxPrefix(prefix, role.kind === "service" ? role.manifest.service : role);
    const connection = await openConnection(nats, address, { name: user, inbox });
    onTestFinished(() => connection.close());
    return { connection, address, inbox };
  };
  return {
    connectAs,
    openAs: async (user: User) => {
      const { connection, address, inbox } = await connectAs(user);
      const topology = await provision(connection, address);
      const port = new JetStreamPort({
        nats,
        connection,
        topology,
        url: address.where,
        inboxPrefix: inbox,
        readsEverything: user === "admin",
        clockFilter: new Subjects(prefix, user).clockFilter(),
      });
      return { connection, topology, port };
    },
  };
}

/** What the server says to a request: `refused` only if the user may not publish there. */
async function asked(connection: nats.NatsConnection, subject: string, body = "") {
  try {
    return { answer: (await connection.request(subject, body, { timeout: 5_000 })).string() };
  } catch (error) {
    const cause = error instanceof Error ? error.cause : undefined;
    if (cause instanceof nats.PermissionViolationError) return "refused";
    throw error;
  }
}

/** Whether the user may listen there. */
async function heard(connection: nats.NatsConnection, subject: string) {
  let problem: Error | null = null;
  const subscription = connection.subscribe(subject, {
    callback: (error) => {
      problem = error;
    },
  });
  await connection.flush();
  subscription.unsubscribe();
  return problem === null ? "allowed" : "refused";
}

describe.each<PermissionScope>([{ prefix: "millrace" }, { prefix: "other", domain: "hub" }])(
  "a service in %o",
  (scope) => {
    it("does its own work", async () => {
      const { openAs } = await guardedServer(scope);
      await openAs("admin");
      const { port, topology } = await openAs("shop");
      const { prefix } = scope;
      const ticket = `${prefix}.jobs.shop.mail=2Esend.1.created.mail-send.v1-normal`;
      const filter = `${prefix}.jobs.shop.*.1.>`;
      const subjects = new Subjects(prefix, "shop");
      const heardHints: string[] = [];
      const stop = port.onHint(subjects.hintFilter("ready"), (from) => heardHints.push(from));

      const message = { subject: ticket, body: "{}", headers: {}, expect: { filter, seq: 0 } };
      expect(await port.publish("jobs", message)).toEqual({ outcome: "stored", seq: 1 });
      expect(await port.publish("jobs", message)).toEqual({ outcome: "conflict" });
      const note = {
        subject: `${prefix}.notes.shop.mail=2Esend.1.progress`,
        body: "",
        headers: {},
      };
      expect(await port.publish("jobs", note)).toEqual({ outcome: "stored", seq: 2 });
      expect((await port.last("jobs", filter))?.seq).toBe(1);
      expect(await port.last("jobs", subjects.feedFilter())).toMatchObject({ seq: 2 });
      expect(await port.read("jobs", subjects.logFilter("1"))).toHaveLength(2);
      const newest = (id: string) =>
        port.newestSeq(subjects.idFilter(id), subjects.question("shop", id));
      expect([await newest("1"), await newest("2")]).toEqual([1, 0]);
      expect(await port.last("jobs", subjects.feedFilter())).toMatchObject({ seq: 2 });

      const name = subjects.consumer(shopLane, "normal");
      const consumer = {
        name,
        filter: subjects.ticketFilter(shopLane, "normal"),
        ackWaitMs: 30_000,
      };
      await port.ensureConsumer(consumer);
      await port.ensureConsumer({ ...consumer, ackWaitMs: 20_000 });
      const deliveries = (await port.fetch(name, 5)) ?? [];
      expect(deliveries.map(({ subject }) => subject)).toEqual([ticket]);
      port.working(deliveries);
      await port.acknowledge(deliveries);

      const record = {
        subject: `${topology.recordsSubject}.shop.worker.a`,
        body: "1",
        headers: {},
      };
      expect(await port.publish("records", record)).toMatchObject({ outcome: "stored" });
      const kv = `$KV.${topology.recordsBucket}.shop`;
      expect((await port.last("records", `${kv}.worker.a`))?.body).toBe("1");
      expect(await port.read("records", `${kv}.worker.>`)).toHaveLength(1);
      const newestRecord = (key: string) => port.newestSeq(key, key);
      const stored = await port.last("records", `${kv}.worker.a`);
      expect(await newestRecord(`${kv}.worker.a`)).toBe(stored?.seq);
      expect(await newestRecord(`${kv}.worker.b`)).toBe(0);

      port.hint(subjects.hint("ready", "shop"), "me");
      const ended = new AbortController();
      for await (const chunk of port.follow("jobs", subjects.feedFilter(), 1, ended.signal)) {
        expect(chunk.map(({ seq }) => seq)).toEqual([2]);
        ended.abort();
      }
      expect(heardHints).toEqual(["me"]);
      stop();
    });
  },
);

/** What a service may not publish, each with what it would do. */
const forbiddenDeeds: readonly (readonly [deed: string, subject: string])[] = [
  ["write another's log", "millrace.jobs.bank.transfer.1.created.transfer.v1-normal"],
  ["write another's notes", "millrace.notes.bank.transfer.1.progress"],
  ["write under no service", "millrace.jobs.x"],
  ["dismiss a job, which is an admin's mark", "millrace.jobs.shop.mail=2Esend.1.dismissed"],
  ["write another's records", "$KV.MILLRACE_RECORDS.bank.key.a"],
  ["write what was provided", "$KV.MILLRACE_RECORDS._deployment"],
  ["wake another", "millrace.hints.ready.bank"],
  ["call the admin runtime", "millrace.rpc.Jobs.List"],
  [
    "read another's newest event",
    "$JS.API.DIRECT.GET.MILLRACE_JOBS.millrace.jobs.bank.transfer.1.>",
  ],
  ["read everybody's newest event", "$JS.API.DIRECT.GET.MILLRACE_JOBS.millrace.>"],
  ["read anything by its position", "$JS.API.DIRECT.GET.MILLRACE_JOBS"],
  ["get anything by its position", "$JS.API.STREAM.MSG.GET.MILLRACE_JOBS"],
  [
    "read another's records",
    "$JS.API.DIRECT.GET.KV_MILLRACE_RECORDS.$KV.MILLRACE_RECORDS.bank.key.a",
  ],
  [
    "read another's log by a consumer",
    "$JS.API.CONSUMER.CREATE.MILLRACE_JOBS.mine.millrace.jobs.bank.>",
  ],
  ["read everybody's log by a consumer", "$JS.API.CONSUMER.CREATE.MILLRACE_JOBS.mine.millrace.>"],
  ["make a consumer without a filter", "$JS.API.CONSUMER.CREATE.MILLRACE_JOBS"],
  ["make a consumer in the old way", "$JS.API.CONSUMER.DURABLE.CREATE.MILLRACE_JOBS.mine"],
  [
    "read another's records by a consumer",
    "$JS.API.CONSUMER.CREATE.KV_MILLRACE_RECORDS.mine.$KV.MILLRACE_RECORDS.bank.>",
  ],
  [
    "change another's consumer",
    `$JS.API.CONSUMER.CREATE.MILLRACE_JOBS.${bankConsumer}.millrace.jobs.shop.>`,
  ],
  ["take another's work", `$JS.API.CONSUMER.MSG.NEXT.MILLRACE_JOBS.${bankConsumer}`],
  ["acknowledge another's work", `$JS.ACK.MILLRACE_JOBS.${bankConsumer}.1.1.1.1.0`],
  ["remove another's consumer", `$JS.API.CONSUMER.DELETE.MILLRACE_JOBS.${bankConsumer}`],
  ["look at streams", "$JS.API.STREAM.INFO.MILLRACE_JOBS"],
  ["list streams", "$JS.API.STREAM.NAMES"],
  ["make streams", "$JS.API.STREAM.CREATE.MINE"],
  ["change streams", "$JS.API.STREAM.UPDATE.MILLRACE_JOBS"],
  ["purge streams", "$JS.API.STREAM.PURGE.MILLRACE_JOBS"],
  ["remove messages", "$JS.API.STREAM.MSG.DELETE.MILLRACE_JOBS"],
  ["remove streams", "$JS.API.STREAM.DELETE.MILLRACE_JOBS"],
];

/** What a service may not listen to. */
const forbiddenEars = [
  "_INBOX.>",
  "_INBOX.millrace.bank.>",
  "millrace.jobs.>",
  "millrace.jobs.bank.>",
  "millrace.hints.*.bank",
  "millrace.rpc.>",
  "$KV.MILLRACE_RECORDS.>",
  "$JS.EVENT.>",
  ">",
];

describe("a service", () => {
  it("may do nothing of another's, and nothing to the streams", async () => {
    const { openAs } = await guardedServer();
    await openAs("admin");
    const { connection } = await openAs("shop");
    const allowed: string[] = [];
    for (const [deed, subject] of forbiddenDeeds)
      if ((await asked(connection, subject)) !== "refused") allowed.push(deed);
    for (const subject of forbiddenEars)
      if ((await heard(connection, subject)) !== "refused") allowed.push(subject);
    expect(allowed).toEqual([]);
  });

  it("cannot erase what others have stored by a message that rolls up", async () => {
    const { openAs } = await guardedServer();
    const { port, topology } = await openAs("admin");
    const record = { subject: "$KV.MILLRACE_RECORDS.bank.key.a", body: "1", headers: {} };
    const event = { subject: "millrace.jobs.bank.transfer.1.created", body: "{}", headers: {} };
    await port.publish("records", record);
    await port.publish("jobs", event);
    const { connection } = await openAs("shop");
    for (const extent of ["all", "sub"])
      for (const subject of [
        `$KV.${topology.recordsBucket}.shop.key.a`,
        "millrace.jobs.shop.mail=2Esend.1.created",
        "millrace.notes.shop.mail=2Esend.1.progress",
      ]) {
        const headers = nats.headers();
        headers.set("Nats-Rollup", extent);
        const answer = await connection.request(subject, "{}", { headers, timeout: 5_000 });
        expect(answer.json()).toMatchObject({ error: { description: "rollup not permitted" } });
      }
    expect(await port.read("records", record.subject)).toHaveLength(1);
    expect(await port.read("jobs", event.subject)).toHaveLength(1);
  });

  it("cannot widen the filter of a consumer in its body", async () => {
    const { openAs } = await guardedServer();
    await openAs("admin");
    const { connection } = await openAs("shop");
    for (const filter of [
      { filter_subject: "millrace.jobs.bank.>" },
      { filter_subjects: ["millrace.jobs.shop.>", "millrace.jobs.bank.>"] },
    ]) {
      const config = { name: "mine", ack_policy: "none", ...filter };
      const body = JSON.stringify({ stream_name: "MILLRACE_JOBS", config });
      const subject = "$JS.API.CONSUMER.CREATE.MILLRACE_JOBS.mine.millrace.jobs.shop.>";
      expect(await asked(connection, subject, body)).toMatchObject({
        answer: expect.stringContaining('"error"'),
      });
    }
  });
});

describe("the admin runtime", () => {
  it("makes the streams and works on all services, and touches no other stream", async () => {
    const { openAs } = await guardedServer();
    const { port, connection } = await openAs("admin");
    const event = { subject: "millrace.jobs.bank.transfer.1.dismissed", body: "{}", headers: {} };
    expect(await port.publish("jobs", event)).toMatchObject({ outcome: "stored" });
    expect(await port.read("jobs", "millrace.jobs.>")).toHaveLength(1);
    await port.remove("jobs", [1]);
    expect(await port.read("jobs", "millrace.jobs.>")).toHaveLength(0);
    for (const subject of [
      "$JS.API.STREAM.DELETE.MILLRACE_JOBS",
      "$JS.API.STREAM.CREATE.OTHER",
      "$JS.API.STREAM.INFO.OTHER",
      "other.subject",
    ])
      expect(await asked(connection, subject)).toBe("refused");
  });

  it("is asked by observers and operators, of whom only operators change something", async () => {
    const { connectAs } = await guardedServer();
    const { connection: admin } = await connectAs("admin");
    admin.subscribe("millrace.rpc.Jobs.*", {
      callback: (_, message) => void message.respond(message.subject),
    });
    await admin.flush();
    const { connection: operator } = await connectAs("operator");
    const { connection: observer } = await connectAs("observer");
    const list = "millrace.rpc.Jobs.List";
    const cancel = "millrace.rpc.Jobs.Cancel";
    expect(await asked(operator, list)).toEqual({ answer: list });
    expect(await asked(operator, cancel)).toEqual({ answer: cancel });
    expect(await asked(observer, list)).toEqual({ answer: list });
    expect(await asked(observer, cancel)).toBe("refused");
    for (const user of [observer, operator]) {
      expect(await asked(user, "millrace.jobs.shop.mail.1.cancelled")).toBe("refused");
      expect(await asked(user, "$JS.API.CONSUMER.CREATE.MILLRACE_JOBS.a.millrace.>")).toBe(
        "refused",
      );
      expect(await heard(user, "millrace.jobs.>")).toBe("allowed");
      expect(await heard(user, "_INBOX.millrace.shop.>")).toBe("refused");
      expect(await heard(user, list)).toBe("refused");
    }
  });

  it("is sent records that nobody else can hear", async () => {
    const { openAs, connectAs } = await guardedServer();
    const { port, topology } = await openAs("admin");
    const record = { subject: "$KV.MILLRACE_RECORDS.shop.webhook.a", body: "whsec_1", headers: {} };
    await port.publish("records", record);
    const heardWords: string[] = [];
    for (const user of ["shop", "observer", "operator"] as const) {
      const { connection, inbox } = await connectAs(user);
      for (const subject of ["_INBOX.>", "_INBOX.millrace.>", `${inboxPrefix("millrace")}.>`]) {
        connection.subscribe(subject, {
          callback: (error, message) => void (error ?? heardWords.push(message.string())),
        });
        expect(await heard(connection, subject)).toBe("refused");
      }
      expect(await heard(connection, `${inbox}.>`)).toBe("allowed");
      for (const other of ["shop", "bank", { kind: "observer" }, { kind: "operator" }] as const) {
        const place = inboxPrefix("millrace", other);
        if (place !== inbox) expect(await heard(connection, `${place}.>`)).toBe("refused");
      }
    }
    const ended = new AbortController();
    const all = `${topology.recordsSubject}.>`;
    for await (const chunk of port.follow("records", all, 0, ended.signal))
      if (chunk.some(({ body }) => body === "whsec_1")) ended.abort();
    expect(heardWords).toEqual([]);
  });
});
