// Stands between a client and a PostgreSQL server: to lead to another server, as a name or a proxy does after a failover, and to
// change what the server says, so that a test can meet one that is not at hand.
import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { onTestFinished } from "vitest";

/** The way to a server. */
export interface PostgresWay {
  readonly url: string;
  /** Leads those who connect from now on to another server. The connections that there are stay. */
  turnTo(url: string): void;
}

/** A way to a server that can be turned. Messages that are changed have to keep their length. */
export async function postgresWay(
  url: string,
  change?: (said: string) => string,
): Promise<PostgresWay> {
  let end = new URL(url);
  const listener = createServer((client) => {
    const server = connect(Number(end.port), end.hostname);
    for (const socket of [client, server]) {
      socket.on("error", () => undefined);
      socket.on("close", () => {
        client.destroy();
        server.destroy();
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
  };
}
