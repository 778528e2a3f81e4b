// A receiver of webhooks: a real HTTP server on this machine that does what a test says.
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createSecured } from "node:https";
import type { AddressInfo } from "node:net";
import type { CloudEvent } from "millrace";
import { onTestFinished } from "vitest";

export interface Received {
  readonly event: CloudEvent;
  readonly body: string;
  readonly headers: { readonly [name: string]: string };
  readonly path: string;
}

export type Answer = (
  received: Received,
  response: ServerResponse,
  request: IncomingMessage,
) => void;

/** Answers with a status and nothing else. */
export function status(code: number, headers: { readonly [name: string]: string } = {}): Answer {
  return (_received, response) => void response.writeHead(code, headers).end();
}

export class Receiver {
  readonly received: Received[] = [];
  readonly url: string;
  answer: Answer = status(204);
  readonly #waiting = new Set<() => void>();

  private constructor(url: string) {
    this.url = url;
  }

  /** A receiver on a free port, which is closed with the test; over TLS if it is given a certificate and its key. */
  static async open(tls?: { readonly cert: string; readonly key: string }): Promise<Receiver> {
    const take = async (request: IncomingMessage, response: ServerResponse) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      receiver.#take(Buffer.concat(chunks).toString(), request, response);
    };
    const server = tls === undefined ? createServer(take) : createSecured(tls, take);
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    onTestFinished(() => {
      server.closeAllConnections();
      server.close();
    });
    const protocol = tls === undefined ? "http" : "https";
    const { port } = server.address() as AddressInfo;
    const receiver = new Receiver(`${protocol}://127.0.0.1:${port}`);
    return receiver;
  }

  /** Resolves when so many requests have come in all. */
  async count(count: number): Promise<readonly Received[]> {
    while (this.received.length < count) {
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
    }
    return this.received;
  }

  /** The names of the events that came for a job, in their order. */
  eventsOf(jobId: string): readonly unknown[] {
    return this.received
      .filter(({ event }) => event.subject === jobId)
      .map(({ event }) => event.data.event);
  }

  #take(body: string, request: IncomingMessage, response: ServerResponse): void {
    const received = {
      event: JSON.parse(body) as CloudEvent,
      body,
      headers: request.headers as { [name: string]: string },
      path: request.url ?? "",
    };
    this.received.push(received);
    this.answer(received, response, request);
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }
}
