// A server that all tests of a run share, started when the first of them asks for it: most test
// files need none. A small listener of its own answers each caller with the server's URL.
import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { text } from "node:stream/consumers";

interface SharedServer {
  readonly url: string;
  stop(): Promise<void>;
}

/** Offers a server to the processes that know the port, until `stop`. */
export async function offerServer(
  start: () => Promise<SharedServer>,
): Promise<{ readonly port: number; stop(): Promise<void> }> {
  let server: Promise<SharedServer> | undefined;
  const listener = createServer((socket) => {
    // A caller that has gone needs no answer.
    socket.on("error", () => undefined);
    server ??= start();
    server.then(
      ({ url }) => socket.end(url),
      (error) => socket.end(String(error)),
    );
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  return {
    port: (listener.address() as AddressInfo).port,
    stop: async () => {
      listener.close();
      await server?.then((started) => started.stop());
    },
  };
}

/** The URL of the server that is offered at a port. */
export async function offeredUrl(port: number): Promise<string> {
  const answer = await text(connect(port, "127.0.0.1"));
  if (!/^\w+:\/\//.test(answer)) throw new Error(answer);
  return answer;
}
