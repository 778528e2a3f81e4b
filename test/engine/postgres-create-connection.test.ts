// The connection that creates keep: they share it while answers come soon, and it goes back to the pool when others need it.
import type { Pool, PoolClient } from "pg";
import { expect, it } from "vitest";
import { CreateConnection } from "#millrace/engine/postgres/create-connection.js";

const max = 2;
const now = () => performance.now();
const longAgo = () => performance.now() - 1_000;

function openConnection() {
  const pool = { totalCount: max, idleCount: 0, waitingCount: 0 };
  const released: [string, Error | undefined][] = [];
  const told: string[] = [];
  const clientOf = (name: string) =>
    ({
      release: (error?: Error) => released.push([name, error]),
      ref: () => told.push(`${name} ref`),
      unref: () => told.push(`${name} unref`),
    }) as unknown as PoolClient;
  const creating = new CreateConnection(pool as unknown as Pool, max);
  return { creating, pool, released, told, clientOf };
}

it("is kept after its first create, holds up no process while it is free, and goes back at the end", () => {
  const { creating, released, told, clientOf } = openConnection();
  expect(creating.take()).toBeUndefined();
  const client = creating.adopt(clientOf("first"));
  expect(creating.isFree).toBe(false);
  creating.done(client, now());
  expect(creating.isFree).toBe(true);
  expect(creating.take()).toBe(client);
  expect(told).toEqual(["first unref", "first ref"]);
  creating.close();
  expect(released).toEqual([]);
  creating.done(client, now());
  expect(released).toEqual([["first", undefined]]);
});

it("is shared while answers come soon, and else a second one is used beside it", () => {
  const { creating, released, clientOf } = openConnection();
  const client = creating.adopt(clientOf("first"));
  expect(creating.take()).toBe(client);
  creating.done(client, longAgo());
  expect(creating.take()).toBeUndefined();
  const second = creating.adopt(clientOf("second"));
  creating.done(second, now());
  expect(released).toEqual([["second", undefined]]);
  creating.done(client, now());
  expect(creating.take()).toBe(client);
  expect(creating.take()).toBe(client);
});

it("goes to whoever waits, or asks where the pool has no other", () => {
  const { creating, pool, released, clientOf } = openConnection();
  pool.waitingCount = 1;
  creating.done(creating.adopt(clientOf("waited for")), now());
  pool.waitingCount = 0;
  creating.done(creating.adopt(clientOf("kept")), now());
  pool.idleCount = 1;
  creating.makeRoom();
  pool.idleCount = 0;
  pool.totalCount = max - 1;
  creating.makeRoom();
  expect(released).toEqual([["waited for", undefined]]);
  pool.totalCount = max;
  creating.makeRoom();
  expect(released.at(-1)).toEqual(["kept", undefined]);
});

it("is let go of once when it breaks, free or shared", () => {
  const { creating, released, clientOf } = openConnection();
  const error = new Error("gone");
  const free = creating.adopt(clientOf("free"));
  creating.done(free, now());
  creating.broke(clientOf("another"), error);
  creating.broke(free, error);
  const shared = creating.adopt(clientOf("shared"));
  creating.take();
  creating.broke(shared, error);
  expect(released).toEqual([["free", error]]);
  creating.lose(shared, error);
  creating.lose(shared, error);
  creating.done(shared, now());
  expect(released.slice(1)).toEqual([["shared", error]]);
  expect(creating.take()).toBeUndefined();
});
