// NATS for tests: prefixes on the shared server, servers that die, return and go, and a
// cluster that outlives each of its servers.
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { afterEach, describe, expect, it, vi } from "vitest";
import { natsBinary } from "../../scripts/nats-binaries.js";
import { freshPrefix, natsConnection, newPrefix, ownNats, ownNatsCluster } from "./nats.js";

describe("NATS for tests", () => {
  it("gives each test a prefix of its own, and removes what was made under it", async () => {
    const first = await newPrefix();
    const second = await freshPrefix();
    expect(second.url).toBe(first.url);
    expect(second.prefix).not.toBe(first.prefix);
    const manager = await jetstreamManager(await natsConnection(first.url));
    for (const { prefix } of [first, second]) {
      await manager.streams.add({ name: `${prefix.toUpperCase()}_JOBS`, subjects: [prefix] });
      await manager.streams.add({ name: `KV_${prefix.toUpperCase()}_R`, subjects: [`r${prefix}`] });
    }
    await first.remove();
    const left = await manager.streams.names().next();
    expect(left).toEqual(
      expect.arrayContaining([
        `${second.prefix.toUpperCase()}_JOBS`,
        `KV_${second.prefix.toUpperCase()}_R`,
      ]),
    );
    expect(left.join()).not.toContain(first.prefix.toUpperCase());
  });

  it("keeps what was stored when a server of one's own is killed", async () => {
    const server = await ownNats({ syncAlways: true });
    const { pid } = server;
    expect(await server.monitor("varz")).toMatchObject({
      jetstream: { config: { sync_always: true } },
    });
    const before = await natsConnection(server.url);
    await (await jetstreamManager(before)).streams.add({ name: "KEPT", subjects: ["kept"] });
    await jetstream(before).publish("kept", "one");
    await server.kill("SIGKILL");
    expect(server.pid).toBeUndefined();
    await expect(natsConnection(server.url)).rejects.toThrow();
    await server.restart();
    expect(server.pid).not.toBe(pid);
    const after = await jetstreamManager(await natsConnection(server.url));
    expect((await after.streams.getMessage("KEPT", { seq: 1 }))?.string()).toBe("one");
    await server.stop();
    await expect(natsConnection(server.url)).rejects.toThrow();
  });

  it("takes users and limits from the test", async () => {
    const server = await ownNats({
      storeBytesMax: 1_000_000,
      config: 'authorization { users: [{ user: "reader", password: "reader" }] }',
    });
    await expect(natsConnection(server.url)).rejects.toThrow(/authorization/i);
    const manager = await jetstreamManager(await natsConnection(server.url, "reader"));
    await expect(
      manager.streams.add({ name: "LARGE", subjects: ["large"], max_bytes: 2_000_000 }),
    ).rejects.toThrow(/insufficient storage/);
  });

  it("makes a cluster of which each server may die", { timeout: 90_000 }, async () => {
    const cluster = await ownNatsCluster();
    const [first, second, third] = cluster.servers;
    const connection = await natsConnection(second?.url ?? "");
    const made = await (await jetstreamManager(connection)).streams.add({
      name: "COPIES",
      subjects: ["copies"],
      num_replicas: 3,
    });
    expect(cluster.servers).toContain(cluster.named(made.cluster?.leader ?? ""));
    const log = jetstream(connection);
    await first?.kill("SIGKILL");
    expect((await log.publish("copies", "without the first", { retries: 100 })).seq).toBe(1);
    await first?.start();
    await cluster.ready();
    await third?.kill("SIGKILL");
    expect((await log.publish("copies", "without the third", { retries: 100 })).seq).toBe(2);
  });
});

describe("the nats-server binary", () => {
  afterEach(() => {
    vi.unstubAllEnvs();
  });

  it("is the one that NATS_SERVER_BIN names, or none", async () => {
    const binary = await natsBinary();
    vi.stubEnv("NATS_SERVER_BIN", binary);
    expect(await natsBinary()).toBe(binary);
    vi.stubEnv("NATS_SERVER_BIN", "/nowhere/nats-server");
    await expect(natsBinary()).rejects.toThrow("/nowhere/nats-server");
    vi.stubEnv("NATS_SERVER_BIN", process.execPath);
    await expect(natsBinary()).rejects.toThrow("is no nats-server");
  });
});
