// NATS for tests: the server that a run shares, with a prefix for each test, and servers and
// clusters of a test's own, which it may kill.
import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect, type NatsConnection } from "@nats-io/transport-node";
import { inject, onTestFinished } from "vitest";
import {
  type NatsCluster,
  type NatsOptions,
  type NatsServer,
  startNats,
  startNatsCluster,
} from "../../scripts/nats-server.js";
import { offeredUrl } from "./shared-server.js";

/** A prefix that nobody has used yet, on the shared server. */
export interface NewPrefix {
  /** The URL of the server. */
  readonly url: string;
  readonly prefix: string;
  /** The URL of a store under the prefix. */
  readonly storeUrl: string;
  /** Removes all streams of the prefix. */
  readonly remove: () => Promise<void>;
}

/** A prefix and the way to remove what was made under it. */
export async function newPrefix(): Promise<NewPrefix> {
  const url = await offeredUrl(inject("natsPort"));
  const prefix = `test-${randomUUID().replaceAll("-", "")}`;
  return {
    url,
    prefix,
    storeUrl: `${url}?prefix=${prefix}`,
    remove: () => removeStreams(url, prefix),
  };
}

/** A prefix for a test; what was made under it is removed after the test. */
export async function freshPrefix(): Promise<NewPrefix> {
  const fresh = await newPrefix();
  onTestFinished(fresh.remove);
  return fresh;
}

/** The URL of a store for a test, under a prefix of its own and with its lists in a file of their own. */
export async function freshStoreUrl(): Promise<string> {
  const { storeUrl } = await freshPrefix();
  const folder = await mkdtemp(join(tmpdir(), "millrace-views-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const url = new URL(storeUrl);
  url.searchParams.set("projection", `file:${join(folder, "views.db")}`);
  return url.href;
}

/** A plain connection, closed after the test. It gives up at once when its server has gone. */
export async function natsConnection(
  url: string,
  user?: string,
  inboxPrefix?: string,
): Promise<NatsConnection> {
  const servers = url.replace(/^nats:\/\//, "").split(",");
  const connection = await connect({
    servers,
    reconnect: false,
    ...(user === undefined ? {} : { user, pass: user }),
    ...(inboxPrefix === undefined ? {} : { inboxPrefix }),
  });
  onTestFinished(() => connection.close());
  return connection;
}

/** A server that the test may kill and restart; it is stopped after the test. */
export async function ownNats(options?: NatsOptions): Promise<NatsServer> {
  const server = await startNats(options);
  onTestFinished(() => server.stop());
  return server;
}

/** Three servers in a cluster, each of which the test may kill; they are stopped after the test. */
export async function ownNatsCluster(options?: NatsOptions): Promise<NatsCluster> {
  const cluster = await startNatsCluster(3, options);
  onTestFinished(() => cluster.stop());
  return cluster;
}

/** Names of streams are in capitals, and a bucket is a stream whose name begins with KV. */
async function removeStreams(url: string, prefix: string): Promise<void> {
  const connection = await connect({ servers: url });
  try {
    const manager = await jetstreamManager(connection);
    const names = new RegExp(`^(KV_)?${prefix.toUpperCase()}_`);
    for await (const name of manager.streams.names())
      if (names.test(name)) await manager.streams.delete(name);
  } finally {
    await connection.close();
  }
}
