// Reading answers that go on: lines of JSON and server-sent events, one at a time.
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import type { ReadableStream } from "node:stream/web";
import { expect } from "vitest";
import type { Api, Ask } from "./api.js";
import { undocumented } from "./documented.js";

/** A stream that is read one piece at a time. Disposing of it leaves the stream. */
export interface Reading<Piece> {
  /** The next piece; an error once the stream has ended. */
  next(): Promise<Piece>;
  leave(): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A server-sent event. */
export interface ServerSentEvent {
  readonly id: string;
  readonly event: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into events.
  readonly data: any;
}

/** The lines of a stream. */
export async function linesOf(api: Api, path: string, ask: Ask = {}): Promise<Reading<string>> {
  const gone = new AbortController();
  const response = await api.send("GET", path, { ...ask, signal: gone.signal });
  const { status, headers, body } = response;
  const { pathname } = new URL(path, api.url);
  const contentType = headers.get("content-type");
  expect(
    undocumented({ method: "GET", pathname, status, contentType, text: undefined }),
  ).toBeNull();
  expect(status).toBe(200);
  const input = Readable.fromWeb(body as ReadableStream);
  // Whoever leaves a stream is told so by an error.
  input.on("error", () => {});
  const lines = createInterface({ input })[Symbol.asyncIterator]();
  const leave = () => gone.abort();
  return {
    next: async () => {
      const { value, done } = await lines.next();
      if (done) throw new Error("The stream has ended.");
      return value;
    },
    leave,
    [Symbol.asyncDispose]: async () => leave(),
  };
}

/** The server-sent events of a stream. */
export async function eventsOf(
  api: Api,
  path: string,
  lastEventId?: string,
  ask: Ask = {},
): Promise<Reading<ServerSentEvent>> {
  const headers = {
    Accept: "text/event-stream",
    ...(lastEventId === undefined ? null : { "Last-Event-ID": lastEventId }),
    ...ask.headers,
  };
  const lines = await linesOf(api, path, { ...ask, headers });
  const next = async (): Promise<ServerSentEvent> => {
    const fields = new Map<string, string>();
    for (;;) {
      const line = await lines.next();
      if (line === "" && fields.size > 0) break;
      const [, name, value] = /^(\w+): (.*)$/.exec(line) ?? [];
      if (name !== undefined && value !== undefined) fields.set(name, value);
    }
    const { id = "", event = "", data = "" } = Object.fromEntries(fields);
    return { id, event, data: JSON.parse(data) };
  };
  return { ...lines, next };
}
