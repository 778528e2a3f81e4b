// Stands between a client and a PostgreSQL server: to lead to another server, as a name or a proxy does after a failover, and to
// change what the server says, so that a test can meet one that is not at hand.
import { EventEmitter, once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { onTestFinished } from "vitest";
import { execute, ownPostgres, standbyOf } from "./postgres.js";

/** The way to a server. */
export interface PostgresWay {
  readonly url: string;
  /** Leads those who connect from now on to another server. The connections that there are stay. */
  turnTo(url: string): void;
  /** Resolves when there is no connection. */
  isLeft(): Promise<void>;
  /** The connections that there are carry nothing any more, and stay, as if the other machine were cut off. */
  fallSilent(): void;
}

/** A way to a server that can be turned. Messages that are changed have to keep their length. */
export async function postgresWay(
  url: string,
  change?: (said: string) => string,
): Promise<PostgresWay> {
  let end = new URL(url);
  const carrying = new Set<Socket>();
  const leaving = new EventEmitter();
  const listener = createServer((client) => {
    const server = connect(Number(end.port), end.hostname);
    for (const socket of [client, server]) {
      carrying.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => {
        client.destroy();
        server.destroy();
        carrying.delete(socket);
        leaving.emit("left");
      });
    }
    client.pipe(server);
    if (change === undefined) server.pipe(client);
    else server.on("data", (chunk) => client.write(change(chunk.toString("latin1")), "latin1"));
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  onTestFinished(() => {
    listener.close();
  });
  const way = new URL(url);
  way.port = String((listener.address() as AddressInfo).port);
  return {
    url: way.href,
    turnTo: (other) => {
      end = new URL(other);
    },
    isLeft: async () => {
      while (carrying.size > 0) await once(leaving, "left");
    },
    fallSilent: () => {
      for (const socket of carrying) {
        socket.unpipe();
        // What arrives is thrown away, so that an end of the connection is noticed.
        socket.resume();
      }
    },
  };
}

/** A primary whose commits wait for its standby, and the way to it. */
export async function openPair() {
  const primary = await ownPostgres();
  const standby = await standbyOf(primary);
  while ((await execute(primary.url, "SELECT 1 FROM pg_stat_replication")).length === 0);
  await execute(
    primary.url,
    "ALTER SYSTEM SET synchronous_standby_names = '*'",
    "SELECT pg_reload_conf()",
  );
  const waits = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'";
  while ((await execute(primary.url, waits)).length === 0);
  // Commits wait from when the checkpointer has read the configuration again, which it does before a checkpoint.
  await execute(primary.url, "CHECKPOINT");
  return { primary, standby, way: await postgresWay(primary.url) };
}
