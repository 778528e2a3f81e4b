// The connection of creates: they share it while answers come soon and nobody waits for one, and it is let go of once.
import { EventEmitter } from "node:events";
import type { Pool, PoolClient } from "pg";
import { expect, it } from "vitest";
import { Connections } from "#millrace/engine/postgres/connections.js";
import { CreateConnection } from "#millrace/engine/postgres/create-connection.js";

const max = 2;
const now = () => performance.now();
const longAgo = () => performance.now() - 1_000;

/** Creates over a pool that makes connections named by their number. */
function openCreates() {
  const released: [number, Error | undefined][] = [];
  let made = 0;
  const connect = async () => {
    const number = ++made;
    return { number, release: (error?: Error) => released.push([number, error]) };
  };
  const counts = { totalCount: max, idleCount: 0, waitingCount: 0 };
  const pool = Object.assign(new EventEmitter(), { connect, end: async () => {} }, counts);
  const connections = new Connections(pool as unknown as Pool, max);
  const creating = new CreateConnection(connections);
  return { creating, connections, pool, released };
}

it("is kept after its first create, and goes back at the end", async () => {
  const { creating, connections, released } = openCreates();
  const client = await creating.take();
  creating.done(client, now());
  expect(creating.take()).toBe(client);
  creating.done(client, now());
  expect(released).toEqual([]);
  await connections.close();
  expect(released).toEqual([[1, undefined]]);
});

it("is shared while answers come soon, and else a second one is used beside it", async () => {
  const { creating, released } = openCreates();
  const client = await creating.take();
  expect(creating.take()).toBe(client);
  creating.done(client, longAgo());
  const second = await creating.take();
  expect(second).not.toBe(client);
  creating.done(client, now());
  creating.done(second, now());
  expect(released).toEqual([[2, undefined]]);
  expect([creating.take(), creating.take()]).toEqual([client, client]);
});

it("is shared no more when somebody waits for a connection, who has it next", async () => {
  const { creating, pool, released } = openCreates();
  const client = await creating.take();
  pool.waitingCount = 1;
  const next = creating.take();
  creating.done(client, now());
  expect(released).toEqual([[1, undefined]]);
  expect(await next).not.toBe(client);
});

it("is let go of once when it breaks", async () => {
  const { creating, released } = openCreates();
  const error = new Error("gone");
  const shared = (await creating.take()) as PoolClient;
  creating.take();
  creating.take();
  creating.done(shared, now(), error);
  creating.done(shared, now(), error);
  creating.done(shared, now());
  expect(released).toEqual([[1, error]]);
  expect(await creating.take()).not.toBe(shared);
});
