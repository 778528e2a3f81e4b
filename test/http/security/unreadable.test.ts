// What comes over a socket and is no request is refused in the envelope of all errors, and harms nobody else.
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { describe, expect, it, onTestFinished } from "vitest";
import { openServer } from "../api.js";

function open(port: number): Socket {
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  socket.on("error", () => {});
  return socket;
}

/** Sends bytes, and gives the parts of the answer that comes until the connection closes. */
async function answerTo(port: number, bytes: string) {
  const socket = open(port);
  socket.write(bytes);
  const [head = "", body = ""] = (await text(socket)).split("\r\n\r\n");
  const [line, ...lines] = head.split("\r\n");
  const headers = Object.fromEntries(
    lines.map((each) => each.toLowerCase().split(": ") as [string, string]),
  );
  return { line, headers, error: body === "" ? null : JSON.parse(body).error };
}

describe("what is no request", () => {
  it.each([
    ["no HTTP", "\x16\x03\x01 hello\r\n\r\n", "400 Bad Request", "not_http"],
    [
      ...["a broken body", "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"],
      ...["400 Bad Request", "not_http", "Content-Type: application/json\r\n\r\nzz\r\n"],
    ],
    ["no host", "GET /healthz HTTP/1.1\r\n\r\n", "400 Bad Request", "host_missing"],
    [
      ...["headers that are too large", `GET / HTTP/1.1\r\nX: ${"x".repeat(200_000)}`],
      ...["431 Request Header Fields Too Large", "headers_too_large"],
    ],
    [
      "a tunnel",
      "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",
      "405 Method Not Allowed",
      "method_not_allowed",
    ],
  ])("%s", async (_, bytes, status, reason, more = "") => {
    const { port, api } = await openServer({ url: "memory:", auth: "token" });
    const { line, headers, error } = await answerTo(port, (bytes ?? "") + more);
    expect([line, error]).toMatchObject([
      `HTTP/1.1 ${status}`,
      { code: "invalid_argument", details: { reason }, requestId: expect.any(String) },
    ]);
    expect(headers).toMatchObject({
      connection: "close",
      "content-type": "application/json",
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
      "x-request-id": error.requestId.toLowerCase(),
    });
    expect((await api.get("/healthz")).status).toBe(200);
  });

  it("headers or a body that take too long", async () => {
    const { port } = await openServer({ url: "memory:", readTimeoutMs: 200 });
    const body = `POST /v1/jobs HTTP/1.1\r\nHost: localhost:${port}\r\nContent-Length: 100\r\n\r\n{`;
    for (const bytes of ["GET /healthz HTTP/1.1\r\nX-Slow: ", body]) {
      const { line, error } = await answerTo(port, bytes);
      expect([line, error.details]).toEqual([
        "HTTP/1.1 408 Request Timeout",
        { reason: "request_timeout" },
      ]);
    }
  });

  it("is not told to a caller that was answered already", async () => {
    const { port } = await openServer({ url: "memory:", readTimeoutMs: 200 });
    const socket = open(port);
    socket.write("POST /v1/jobs HTTP/1.1\r\nHost: evil\r\nContent-Length: 100\r\n\r\n{");
    const answers = (await text(socket)).match(/^HTTP\/1\.1 \d+/gm);
    expect(answers).toEqual(["HTTP/1.1 403"]);
  });

  it.each([
    ["the request before it", ""],
    ["a request before it that expects a miracle", "Expect: miracles\r\n"],
  ])("is no answer to %s", async (_, expectation) => {
    const { port, api } = await openServer({ url: "memory:" });
    const claim = JSON.stringify({
      service: "s",
      worker: "w",
      types: [{ type: "t" }],
      waitMs: 30_000,
    });
    const socket = open(port);
    const length = `Content-Length: ${claim.length}\r\nContent-Type: application/json`;
    socket.write(
      `POST /v1/work/claims HTTP/1.1\r\nHost: localhost:${port}\r\n${expectation}${length}\r\n\r\n${claim}`,
    );
    while ((await api.get("/v1/workers")).body.entries.length === 0);
    socket.write("nonsense\r\n\r\n");
    expect(await text(socket)).toBe("");
  });

  it("may come from a caller that hears nothing any more", async () => {
    const { port, api } = await openServer({ url: "memory:" });
    const half = open(port);
    half.end("nonsense\r\n\r\n");
    expect(await text(half)).toMatch(/^HTTP\/1\.1 400 /);
    for (let callers = 0; callers < 20; callers++) {
      const gone = open(port);
      await once(gone, "connect");
      gone.write("nonsense\r\n\r\n");
      gone.resetAndDestroy();
    }
    expect((await api.get("/healthz")).status).toBe(200);
  });

  it("expectations that it does not know are ignored", async () => {
    const { port } = await openServer({ url: "memory:" });
    const headers = `Host: localhost:${port}\r\nExpect: miracles\r\nConnection: close`;
    const { line } = await answerTo(port, `GET /healthz HTTP/1.1\r\n${headers}\r\n\r\n`);
    expect(line).toBe("HTTP/1.1 200 OK");
  });
});
