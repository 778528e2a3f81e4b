// Stands between a client and a NATS server and changes what the server says, so that a test can
// meet a server that is not at hand, for instance an older one.
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { onTestFinished } from "vitest";

/** The URL of a server whose words are changed. Messages keep their length: a change has to keep it, too. */
export async function changedNats(url: string, change: Change): Promise<string> {
  return (await passingNats(url, { said: change })).url;
}

/** Gives the words that are passed on. */
type Change = (words: string) => string;

/** What becomes of the words that go through. */
interface Changes {
  /** Of the server. */
  readonly said?: Change;
  /** Of the client. */
  readonly asked?: Change;
}

/** The way to a server on which every connection can be cut. */
export interface PassingNats {
  readonly url: string;
  /** How many connections were cut. */
  readonly cuts: number;
  /** Cuts every connection that there is; new ones are let through. */
  cut(): void;
  /** Takes nothing more from the server on the connections that there are, until they are let go. */
  hold(): void;
  letGo(): void;
}

/** A way to a server that the test can cut, and on which words can be changed. */
export async function passingNats(url: string, changes: Changes = {}): Promise<PassingNats> {
  const { hostname, port } = new URL(url);
  const clients = new Map<Socket, Socket>();
  let cuts = 0;
  const listener = createServer((client) => {
    const server = connect(Number(port), hostname);
    clients.set(client, server);
    for (const socket of [client, server]) {
      socket.on("error", () => undefined);
      socket.on("close", () => {
        clients.delete(client);
        client.destroy();
        server.destroy();
      });
    }
    pass(client, server, changes.asked);
    pass(server, client, changes.said);
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
      for (const client of clients.keys()) client.destroy();
      cuts += clients.size;
    },
    hold: () => {
      for (const [client, server] of clients) server.unpipe(client).pause();
    },
    letGo: () => {
      for (const [client, server] of clients) server.pipe(client);
    },
  };
}

function pass(from: Socket, to: Socket, change: Change | undefined): void {
  if (change === undefined) from.pipe(to);
  else from.on("data", (chunk) => to.write(change(chunk.toString("latin1")), "latin1"));
}

/** A server that says it is of another version. */
export function natsOfVersion(url: string, version: string): Promise<string> {
  return changedNats(url, (said) => ofVersion(said, version));
}

/** The words of a server that says it is of another version. */
export function ofVersion(said: string, version: string): string {
  // Such a line is no message, so that its length is its own.
  return said.replace(/^INFO .*$/gm, (line) =>
    line.replace(/"version":"[^"]*"/, `"version":"${version}"`),
  );
}

/** The words of a server that says a server of another version leads its streams. Messages keep their length. */
export function ledBy(said: string, version: string): string {
  return said.replace(/("_nats\.ver":")\d+\.\d+\.\d+/g, (words, name: string) =>
    `${name}${version}-----`.slice(0, words.length),
  );
}
