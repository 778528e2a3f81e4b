/**
 * Answers that go on: server-sent events and lines of JSON. A stream ends when its caller goes, when its time is up,
 * or when the server stops; a caller that reads too slowly holds up nobody but itself.
 */
import type { Clock } from "../../engine/clock.js";
import { ListenerBehind } from "./feed-hub.js";
import type { Limits } from "./limits.js";
import type { Answer } from "./route.js";

/** How often a stream without events says that it is alive. */
const keepAliveMs = 15_000;

/** What a stream needs. */
export interface StreamParts {
  readonly clock: Clock;
  readonly limits: Limits;
  /** Aborted when the caller has gone. */
  readonly signal: AbortSignal;
  /** When the stream ends by itself. */
  readonly endAfterMs?: number;
}

/** One server-sent event. */
export function eventText(id: string, name: string, data: string): string {
  return `id: ${id}\nevent: ${name}\ndata: ${data}\n\n`;
}

/** Server-sent events, each piece a whole event. */
export function eventStream(
  parts: StreamParts,
  pieces: (signal: AbortSignal) => AsyncIterable<string>,
): Answer {
  const stream = textStream(parts, pieces, { opening: ": millrace\n\n", keepAlive: ": alive\n\n" });
  return {
    status: 200,
    stream,
    contentType: "text/event-stream",
    headers: { "X-Accel-Buffering": "no" },
  };
}

/** Lines of JSON. */
export function lineStream(
  parts: StreamParts,
  lines: (signal: AbortSignal) => AsyncIterable<string>,
): Answer {
  const stream = textStream(parts, lines, { opening: "", keepAlive: "" });
  return { status: 200, stream, contentType: "application/x-ndjson" };
}

/** Pieces of text as a stream that is read at the reader's own pace. */
function textStream(
  { clock, limits, signal, endAfterMs }: StreamParts,
  pieces: (signal: AbortSignal) => AsyncIterable<string>,
  { opening, keepAlive }: { readonly opening: string; readonly keepAlive: string },
): ReadableStream<Uint8Array> {
  const leave = limits.stream();
  const own = new AbortController();
  const ends = AbortSignal.any([signal, own.signal]);
  const callOff = endAfterMs === undefined ? () => {} : clock.after(endAfterMs, () => own.abort());
  const encoder = new TextEncoder();
  const source = pieces(ends)[Symbol.asyncIterator]();
  let next: Promise<IteratorResult<string>> | null = null;
  let isClosed = false;
  const close = () => {
    if (isClosed) return;
    isClosed = true;
    callOff();
    own.abort();
    leave();
  };
  return new ReadableStream<Uint8Array>(
    {
      start(controller) {
        if (opening !== "") controller.enqueue(encoder.encode(opening));
      },
      async pull(controller) {
        try {
          next ??= source.next();
          const item = await within(clock, keepAlive === "" ? null : keepAliveMs, next);
          if (item === "silent") {
            controller.enqueue(encoder.encode(keepAlive));
            return;
          }
          next = null;
          if (!item.done) {
            controller.enqueue(encoder.encode(item.value));
            return;
          }
        } catch (error) {
          // Whoever was too slow comes back with the last id that it got.
          if (!(error instanceof ListenerBehind) && !ends.aborted) {
            close();
            controller.error(error);
            return;
          }
        }
        close();
        controller.close();
      },
      cancel() {
        close();
      },
    },
    { highWaterMark: 1 },
  );
}

/** What a promise gives, or `silent` when it takes too long; the promise goes on. */
function within<Value>(
  clock: Clock,
  silenceMs: number | null,
  promise: Promise<Value>,
): Promise<Value | "silent"> {
  if (silenceMs === null) return promise;
  return new Promise((resolve, reject) => {
    const callOff = clock.after(silenceMs, () => resolve("silent"));
    promise.then(resolve, reject).finally(callOff);
  });
}
