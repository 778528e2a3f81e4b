// The streams and the bucket of a deployment: made, mended, refused, and found by those who may not make them.
import { jetstream, jetstreamManager, type StreamConfig } from "@nats-io/jetstream";
import * as nats from "@nats-io/transport-node";
import { describe, expect, it, onTestFinished } from "vitest";
import { addressOf } from "#millrace/engine/nats/address.js";
import { openConnection } from "#millrace/engine/nats/connection.js";
import { provision, type Topology } from "#millrace/engine/nats/provision.js";
import { freshPrefix, natsConnection, ownNats, ownNatsCluster } from "../support/nats.js";
import { changedNats, ledBy, natsOfVersion, ofVersion } from "../support/nats-proxy.js";

/** Provisions over a connection of its own. */
async function provisioned(url: string): Promise<Topology> {
  const address = addressOf(url);
  const connection = await openConnection(nats, address, { name: "test" });
  try {
    return await provision(connection, address);
  } finally {
    await connection.close();
  }
}

async function managerOf(url: string) {
  return jetstreamManager(await natsConnection(url));
}

/** What the server says of each stream of a deployment. */
async function configsOf(url: string, topology: Topology): Promise<readonly StreamConfig[]> {
  const { streams } = await managerOf(url);
  const { jobsStream, recordsStream, advisoriesStream } = topology;
  const names = [jobsStream, recordsStream, advisoriesStream];
  return Promise.all(names.map(async (name) => (await streams.info(name)).config));
}

describe("provisioning", () => {
  it("makes the log, the records and the advisories", async () => {
    const { url, prefix, storeUrl } = await freshPrefix();
    const upper = prefix.toUpperCase();
    const topology = await provisioned(storeUrl);
    expect(topology).toMatchObject({
      prefix,
      jobsStream: `${upper}_JOBS`,
      recordsBucket: `${upper}_RECORDS`,
      recordsStream: `KV_${upper}_RECORDS`,
      recordsSubject: `$KV.${upper}_RECORDS`,
      advisoriesStream: `${upper}_ADVISORIES`,
      api: "$JS.API",
      replicas: 1,
      serverVersion: (await natsConnection(url)).info?.version,
    });
    const [jobs, records, advisories] = await configsOf(url, topology);
    expect(jobs).toMatchObject({
      subjects: [`${prefix}.jobs.>`, `${prefix}.notes.>`],
      storage: "file",
      retention: "limits",
      discard: "new",
      max_age: 0,
      max_msgs: -1,
      max_bytes: -1,
      max_msgs_per_subject: -1,
      allow_direct: true,
    });
    expect(records).toMatchObject({
      subjects: [`$KV.${upper}_RECORDS.>`],
      storage: "file",
      max_msgs_per_subject: 1,
      allow_direct: true,
      allow_rollup_hdrs: false,
      allow_msg_ttl: true,
    });
    expect(advisories).toMatchObject({
      subjects: [`$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.${upper}_JOBS.>`],
      max_age: 7 * 24 * 60 * 60 * 1e9,
      discard: "old",
    });
  });

  it("changes nothing the second time", async () => {
    const { url, storeUrl } = await freshPrefix();
    const first = await provisioned(storeUrl);
    const listener = await natsConnection(url);
    const changed: string[] = [];
    for (const name of [first.jobsStream, first.recordsStream, first.advisoriesStream])
      listener.subscribe(`$JS.EVENT.ADVISORY.STREAM.*.${name}`, {
        callback: (_, { subject }) => void changed.push(subject),
      });
    await listener.flush();
    const before = await (await managerOf(url)).streams.info(first.recordsStream);
    expect(await provisioned(storeUrl)).toEqual(first);
    await listener.flush();
    expect(changed).toEqual([]);
    const after = await (await managerOf(url)).streams.info(first.recordsStream);
    expect(after.state.last_seq).toBe(before.state.last_seq);
  });

  it("gives all of ten that start at once the same", async () => {
    const { url, storeUrl } = await freshPrefix();
    const all = await Promise.all(Array.from({ length: 10 }, () => provisioned(storeUrl)));
    expect(new Set(all.map((each) => JSON.stringify(each))).size).toBe(1);
    const [topology] = all;
    expect(topology && (await configsOf(url, topology))).toHaveLength(3);
  });

  it("lets deployments share a server, and tells a stream that was made anew", async () => {
    const [first, second] = [await freshPrefix(), await freshPrefix()];
    const one = await provisioned(first.storeUrl);
    const two = await provisioned(second.storeUrl);
    const connection = await natsConnection(first.url);
    await jetstream(connection).publish(`${first.prefix}.jobs.shop.mail.1.created`, "{}");
    const { streams } = await managerOf(first.url);
    expect((await streams.info(one.jobsStream)).state.messages).toBe(1);
    expect((await streams.info(two.jobsStream)).state.messages).toBe(0);
    await streams.delete(one.jobsStream);
    const again = await provisioned(first.storeUrl);
    expect(again.identity).not.toBe(one.identity);
    expect(new Set([one.identity, two.identity, again.identity]).size).toBe(3);
  });

  it("puts right in place what an operator has changed, and keeps limits that lose nothing", async () => {
    const { url, prefix, storeUrl } = await freshPrefix();
    const { streams } = await managerOf(url);
    const name = `${prefix.toUpperCase()}_JOBS`;
    await streams.add({
      name,
      subjects: [`${prefix}.notes.>`, `${prefix}.jobs.>`],
      max_age: 3600e9,
      max_msgs_per_subject: 5,
      max_msg_size: 100,
      max_bytes: 1_000_000,
      duplicate_window: 1e9,
      discard: "old",
      allow_rollup_hdrs: true,
      metadata: { team: "blue" },
    });
    await jetstream(await natsConnection(url)).publish(`${prefix}.jobs.a.b.c.created`, "kept");
    await provisioned(storeUrl);
    const { config, state } = await streams.info(name);
    expect(state.messages).toBe(1);
    expect(config).toMatchObject({
      max_age: 0,
      max_msgs_per_subject: -1,
      max_msg_size: -1,
      max_bytes: 1_000_000,
      duplicate_window: 120e9,
      discard: "new",
      allow_direct: true,
      allow_rollup_hdrs: false,
      metadata: { team: "blue", "millrace.layout": "1" },
    });
  });

  it("forbids messages that roll up where an earlier version allowed them", async () => {
    const { url, storeUrl } = await freshPrefix();
    const topology = await provisioned(storeUrl);
    const { streams } = await managerOf(url);
    await streams.update(topology.recordsStream, { allow_rollup_hdrs: true });
    await provisioned(storeUrl);
    for (const config of await configsOf(url, topology))
      expect(config).toMatchObject({ allow_rollup_hdrs: false });
  });

  it.each<[string, Partial<StreamConfig>, string]>([
    ["other subjects", { subjects: ["others.>"] }, "its subjects are others.> instead of"],
    ["memory", { storage: "memory" }, "its storage is memory instead of file"],
    ["a work queue", { retention: "workqueue" }, "its retention is workqueue instead of limits"],
    ["few consumers", { max_consumers: 3 }, "it takes no more than 3 consumers"],
    ["undeletable messages", { deny_delete: true }, "it forbids to delete messages"],
    ["unpurgeable messages", { deny_purge: true }, "it forbids to purge messages"],
    ["a source", { sources: [{ name: "ELSEWHERE" }] }, "it is filled from other streams"],
    [
      "a transform",
      { subject_transform: { src: ">", dest: "x.>" } },
      "it changes the subjects of messages",
    ],
  ])("refuses a stream with %s and leaves it as it is", async (_, config, said) => {
    const { url, prefix, storeUrl } = await freshPrefix();
    const { streams } = await managerOf(url);
    const name = `${prefix.toUpperCase()}_JOBS`;
    const subjects = [`${prefix}.jobs.>`, `${prefix}.notes.>`];
    const { config: before } = await streams.add({ name, subjects, ...config });
    const refused = provisioned(storeUrl);
    await expect(refused).rejects.toMatchObject({ _tag: "StoreUnavailable" });
    await expect(refused).rejects.toThrow(`The stream ${name} cannot be used: ${said}`);
    await expect(refused).rejects.toThrow("Choose another prefix");
    expect((await streams.info(name)).config).toEqual(before);
  });

  it("refuses a sealed stream, one whose subjects another has, and one of a later version", async () => {
    const sealed = await freshPrefix();
    const { streams } = await managerOf(sealed.url);
    const topology = await provisioned(sealed.storeUrl);
    await streams.update(topology.jobsStream, { sealed: true } as Partial<StreamConfig>);
    await expect(provisioned(sealed.storeUrl)).rejects.toThrow("it is sealed");

    const taken = await freshPrefix();
    const other = `${taken.prefix.toUpperCase()}_OTHER`;
    await streams.add({ name: other, subjects: [`${taken.prefix}.jobs.shop.>`] });
    await expect(provisioned(taken.storeUrl)).rejects.toThrow("another stream has its subjects");

    const later = await freshPrefix();
    await provisioned(later.storeUrl);
    const metadata = { "millrace.layout": "2" };
    await streams.update(`${later.prefix.toUpperCase()}_JOBS`, { metadata });
    await expect(provisioned(later.storeUrl)).rejects.toMatchObject({
      _tag: "StoreTooNew",
      found: 2,
      known: 1,
    });
  });

  it("finds a domain, and says that there is none", async () => {
    const { url } = await ownNats({ domain: "hub" });
    const topology = await provisioned(`${url}?domain=hub`);
    expect(topology).toMatchObject({
      api: "$JS.hub.API",
      recordsSubject: "$JS.hub.API.$KV.MILLRACE_RECORDS",
    });
    expect(await provisioned(url)).toMatchObject({ identity: topology.identity });
    await expect(provisioned(`${url}?domain=moon`)).rejects.toMatchObject({
      _tag: "StoreUnavailable",
    });
  });
});

describe("the server's version", () => {
  it("has to be 2.11 or newer", async () => {
    const { url, prefix } = await freshPrefix();
    const older = await natsOfVersion(url, "2.10.29");
    const refused = provisioned(`${older}?prefix=${prefix}`);
    await expect(refused).rejects.toMatchObject({ _tag: "StoreUnavailable" });
    await expect(refused).rejects.toThrow("The NATS server is 2.10.29, and Millrace needs 2.11.0");
  });

  it("decides on atomic batches, together with what the server has kept", async () => {
    const { url, prefix } = await freshPrefix();
    const known = await natsOfVersion(url, "2.12.1");
    expect(await provisioned(`${known}?prefix=${prefix}`)).toMatchObject({ atomicBatches: false });
    const good = await changedNats(url, (said) => ledBy(ofVersion(said, "2.14.4"), "2.14.4"));
    const [, minor] = (await natsConnection(url)).info?.version.split(".") ?? [];
    expect(await provisioned(`${good}?prefix=${prefix}`)).toMatchObject({
      atomicBatches: Number(minor) >= 12,
    });
    const forgetful = await changedNats(url, (said) =>
      said.replaceAll('"allow_atomic":true', '"allow_atomic":null'),
    );
    expect(await provisioned(`${forgetful}?prefix=${prefix}`)).toMatchObject({
      atomicBatches: false,
    });
  });

  it("asks an older one for nothing that it does not know", async () => {
    const { url, prefix } = await freshPrefix();
    const older = await natsOfVersion(url, "2.11.0");
    const topology = await provisioned(`${older}?prefix=${prefix}`);
    expect(topology.atomicBatches).toBe(false);
    const [jobs] = await configsOf(url, topology);
    expect(jobs?.allow_atomic ?? false).toBe(false);
  });

  it("is not believed alone: what the server has dropped is refused", async () => {
    const { url, prefix } = await freshPrefix();
    const forgetful = await changedNats(url, (said) =>
      said.replaceAll('"allow_msg_ttl":true', '"allow_msg_ttl":null'),
    );
    await expect(provisioned(`${forgetful}?prefix=${prefix}`)).rejects.toThrow(
      "has left out allow_msg_ttl",
    );
  });
});

describe("the number of copies", () => {
  it("is one on a single server, which refuses more", async () => {
    const { prefix, storeUrl } = await freshPrefix();
    const refused = provisioned(`${storeUrl}&replicas=3`);
    await expect(refused).rejects.toThrow("replicas in the URL asks for 3 copies");
    expect(await provisioned(`${storeUrl}&replicas=1`)).toMatchObject({ prefix, replicas: 1 });
  });

  it("is three where three servers are seen, grows with them, and shrinks only when told", {
    timeout: 90_000,
  }, async () => {
    const { url } = await ownNatsCluster();
    const counts = async (topology: Topology) =>
      (await configsOf(url, topology)).map(({ num_replicas }) => num_replicas);
    const grown = await provisioned(`${url}?prefix=small&replicas=1`);
    expect(await counts(grown)).toEqual([1, 1, 1]);
    expect(await provisioned(`${url}?prefix=small`)).toMatchObject({ replicas: 3 });
    expect(await counts(grown)).toEqual([3, 3, 3]);
    await provisioned(`${url}?prefix=small&replicas=1`);
    expect(await counts(grown)).toEqual([1, 1, 1]);
    const all = await Promise.all(
      Array.from({ length: 10 }, () => provisioned(`${url}?prefix=large`)),
    );
    expect(new Set(all.map((each) => JSON.stringify(each))).size).toBe(1);
    expect(all[0]).toMatchObject({ replicas: 3 });
    expect(all[0] && (await counts(all[0]))).toEqual([3, 3, 3]);
    await expect(provisioned(`${url}?prefix=huge&replicas=5`)).rejects.toThrow("asks for 5 copies");
  });
});

describe("a user who may not manage streams", () => {
  it("takes what others have made, and is told when nobody has", async () => {
    const server = await ownNats({
      config: `authorization { users: [
        { user: "admin", password: "admin" },
        { user: "shop", password: "shop", permissions: {
          publish: ["$JS.API.DIRECT.GET.KV_MILLRACE_RECORDS.$KV.MILLRACE_RECORDS._deployment"],
          subscribe: ["_INBOX.>"]
        } }
      ] }`,
    });
    const as = (user: string) => server.url.replace("//", `//${user}:${user}@`);
    await expect(provisioned(as("shop"))).rejects.toThrow("this user may not make them");
    const made = await provisioned(as("admin"));
    expect(await provisioned(as("shop"))).toEqual(made);
  });
});

describe("connecting", () => {
  it("says who was refused and what cannot be reached, without secrets", async () => {
    const server = await ownNats({
      config: 'authorization { token: "right" }',
    });
    const connected = async (url: string) => {
      const connection = await openConnection(nats, addressOf(url), { name: "test" });
      onTestFinished(() => connection.close());
      return connection.info?.version;
    };
    const as = (token: string) => server.url.replace("//", `//${token}@`);
    expect(await connected(as("right"))).toBeDefined();
    await expect(connected(as("wrong"))).rejects.toMatchObject({ _tag: "StoreUnavailable" });
    await expect(connected(as("wrong"))).rejects.not.toThrow("wrong");
    await expect(connected(`${server.url}?creds=/nowhere.creds`)).rejects.toThrow("/nowhere.creds");
    await expect(connected(server.url.replace("nats:", "tls:"))).rejects.toThrow(/tls/);
    await server.stop();
    await expect(connected(as("right"))).rejects.toMatchObject({ _tag: "StoreUnavailable" });
  });
});
