// Stands between a client and a NATS server and changes what the server says, so that a test can
// meet a server that is not at hand, for instance an older one.
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { onTestFinished } from "vitest";

/** The URL of a server whose words are changed. Messages keep their length: a change has to keep it, too. */
export async function changedNats(url: string, change: (said: string) => string): Promise<string> {
  const { hostname, port } = new URL(url);
  const listener = createServer((client) => {
    const server = connect(Number(port), hostname);
    for (const socket of [client, server]) {
      socket.on("error", () => undefined);
      socket.on("close", () => {
        client.destroy();
        server.destroy();
      });
    }
    client.pipe(server);
    server.on("data", (chunk) => client.write(change(chunk.toString("latin1")), "latin1"));
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  onTestFinished(() => {
    listener.close();
  });
  return `nats://127.0.0.1:${(listener.address() as AddressInfo).port}`;
}

/** The way to a server on which every connection can be cut. */
export interface PassingNats {
  readonly url: string;
  /** How many connections were cut. */
  readonly cuts: number;
  /** Cuts every connection that there is; new ones are let through. */
  cut(): void;
}

/** A way to a server that the test can cut. */
export async function passingNats(url: string): Promise<PassingNats> {
  const { hostname, port } = new URL(url);
  const clients = new Set<Socket>();
  let cuts = 0;
  const listener = createServer((client) => {
    const server = connect(Number(port), hostname);
    clients.add(client);
    for (const socket of [client, server]) {
      socket.on("error", () => undefined);
      socket.on("close", () => {
        clients.delete(client);
        client.destroy();
        server.destroy();
      });
    }
    client.pipe(server);
    server.pipe(client);
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  onTestFinished(() => {
    listener.close();
  });
  return {
    url: `nats://127.0.0.1:${(listener.address() as AddressInfo).port}`,
    get cuts() {
      return cuts;
    },
    cut: () => {
      for (const client of clients) client.destroy();
      cuts += clients.size;
    },
  };
}

/** A server that says it is of another version. */
export function natsOfVersion(url: string, version: string): Promise<string> {
  // Such a line is no message, so that its length is its own.
  return changedNats(url, (said) =>
    said.replace(/^INFO .*$/gm, (line) =>
      line.replace(/"version":"[^"]*"/, `"version":"${version}"`),
    ),
  );
}
