// Streams that commands follow end when they should, also where the platform has forgotten the signal of the request.
import { expect, it } from "vitest";
import type { Api } from "#millrace/cli/api.js";
import { follow } from "#millrace/cli/server-sent.js";

function apiOf(fetch: Api["fetch"]): Api {
  return { where: "http://localhost:1", fetch, close: async () => {} };
}

const never = new Promise<never>(() => {});

it.each([
  { name: "has not begun", fetch: () => never },
  { name: "says nothing", fetch: async () => new Response(new ReadableStream({})) },
])("a stream that $name ends with the signal", async ({ fetch }) => {
  const stop = new AbortController();
  const stream = follow(apiOf(fetch), "/v1/events", { signal: stop.signal });
  const next = stream.next();
  setImmediate(() => stop.abort());
  await expect(next).rejects.toMatchObject({ exit: "interrupted" });
});

it("a stream ends with a signal that aborted before it began", async () => {
  const fetch = async () => new Response(new ReadableStream({}));
  const stream = follow(apiOf(fetch), "/v1/events", { signal: AbortSignal.abort() });
  await expect(stream.next()).rejects.toMatchObject({ exit: "interrupted" });
});
