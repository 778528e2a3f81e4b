/**
 * Server-sent events, read from an answer as they come, and taken up again where a connection broke off.
 */
import { setTimeout as delay } from "node:timers/promises";
import { type Api, call, type Query } from "./api.js";
import { Failure, interrupted } from "./failure.js";

/** One event of a stream. */
export interface ServerSent {
  readonly id: string;
  readonly data: string;
}

/** How often a stream that breaks without having given anything is taken up again, and after which pause. */
export const breaksMax = 20;
export const pauseMs = 500;

/** The most characters that one event may have. */
const eventLengthMax = 16 * 1024 * 1024;

/** Whether it may be better when it is asked again. */
export function isPassing(error: unknown): boolean {
  return !(error instanceof Failure) || error.exit === "unavailable";
}

/** Follows a stream for ever, or until the signal aborts, which throws. */
export async function* follow(
  api: Api,
  path: string,
  { query, signal, after }: { query?: Query; signal: AbortSignal; after?: string },
): AsyncGenerator<ServerSent> {
  let lastId = after;
  let breaks = 0;
  for (;;) {
    try {
      const headers = {
        accept: "text/event-stream",
        ...(lastId !== undefined && { "last-event-id": lastId }),
      };
      const response = await call(api, "GET", path, { ...(query && { query }), headers, signal });
      for await (const event of eventsIn(response, signal)) {
        breaks = 0;
        if (event.id !== "") lastId = event.id;
        yield event;
      }
    } catch (error) {
      if (signal.aborted) throw interrupted();
      if (!isPassing(error) || breaks >= breaksMax) throw error;
    }
    if (signal.aborted) throw interrupted();
    breaks += 1;
    if (breaks > breaksMax) throw new Failure("unavailable", `${api.where} ends the stream.`);
    await delay(pauseMs, undefined, { signal }).catch(() => {});
  }
}

/** The events of an answer. Comments, which keep a connection alive, are left out. */
async function* eventsIn(response: Response, signal: AbortSignal): AsyncGenerator<ServerSent> {
  let id = "";
  let data: string[] = [];
  for await (const line of linesIn(response, signal)) {
    if (line === "") {
      if (data.length > 0) yield { id, data: data.join("\n") };
      data = [];
      continue;
    }
    const [, field, value = ""] = /^([^:]+)(?:: ?(.*))?$/.exec(line) ?? [];
    if (field === "id") id = value;
    else if (field === "data") data.push(value);
  }
}

/**
 * The lines of an answer, as they come, until the signal aborts. The platform forgets the signal of a request that nobody refers to any
 * more, although its answer is still read.
 */
async function* linesIn({ body }: Response, signal: AbortSignal): AsyncGenerator<string> {
  if (body === null) return;
  const reader = body.getReader();
  const stop = () => void reader.cancel().catch(() => {});
  signal.addEventListener("abort", stop, { once: true });
  if (signal.aborted) stop();
  try {
    yield* linesOf(reader);
  } finally {
    signal.removeEventListener("abort", stop);
    stop();
  }
}

async function* linesOf(reader: ReadableStreamDefaultReader<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    rest += decoder.decode(value, { stream: true });
    const lines = rest.split(/\r?\n/);
    rest = lines.pop() ?? "";
    if (rest.length > eventLengthMax)
      throw new Failure("failure", "The server sends a line that does not end.");
    yield* lines;
  }
  if (rest !== "") yield rest;
}
