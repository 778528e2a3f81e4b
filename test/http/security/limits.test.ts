// What a server does not put up with: pages of other origins, bodies that are too large, too deep or poisonous, callers
// that send too slowly or too much; and what it never says.
import { once } from "node:events";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import type { Logger } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { Api, freshPlace, openServer, sqlite } from "../api.js";
import { eventsOf, linesOf } from "../reading.js";

/** Sends bytes as they are, and gives what comes back until the connection closes. */
async function raw(port: number, bytes: string): Promise<string> {
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  socket.on("error", () => {});
  socket.write(bytes);
  return text(socket);
}

function head(line: string, headers: { readonly [name: string]: string }): string {
  const lines = Object.entries({ Connection: "close", ...headers }).map(([k, v]) => `${k}: ${v}`);
  return `${line} HTTP/1.1\r\n${lines.join("\r\n")}\r\n\r\n`;
}

const job = { service: "shop", type: "mail", payload: {} };

describe("without tokens", () => {
  /** The status and reason that a request gets with these headers. */
  async function answer(port: number, line: string, headers: { readonly [name: string]: string }) {
    const own = { Host: `127.0.0.1:${port}`, "Content-Length": "0", ...headers };
    const response = await raw(port, head(line, own));
    const [, status] = /^HTTP\/1\.1 (\d+)/.exec(response) ?? [];
    const [, reason = ""] = /"reason":"(\w+)"/.exec(response) ?? [];
    return `${status} ${reason}`.trim();
  }

  it("only its own hosts are served, so that no name of another can be made to point at it", async () => {
    const { port } = await openServer({ url: "memory:", allowedHosts: ["Jobs.example"] });
    const get = (Host: string, path = "/v1/jobs") => answer(port, `GET ${path}`, { Host });
    for (const name of ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
      expect(await get(`${name}:${port}`)).toBe("200");
    expect(await get("jobs.example")).toBe("200");
    for (const host of ["evil.example", `evil.example:${port}`, "localhost", "localhost:1"])
      expect(await get(host)).toBe("403 host_not_allowed");
    for (const path of ["/healthz", "/v1/openapi.json", "/v1/events"])
      expect(await get("evil.example", path)).toBe("403 host_not_allowed");
  });

  it("pages of other origins can change nothing and follow nothing", async () => {
    const { port } = await openServer({ url: "memory:" });
    const Host = `localhost:${port}`;
    const post = (headers: object) =>
      answer(port, "POST /v1/jobs/none/cancel", { Host, ...headers });
    const refused = "403 origin_not_allowed";
    expect(await post({})).toBe("404 job_not_found");
    expect(await post({ Origin: `http://${Host}` })).toBe("404 job_not_found");
    expect(await post({ "Sec-Fetch-Site": "same-origin" })).toBe("404 job_not_found");
    expect(await post({ "Sec-Fetch-Site": "none" })).toBe("404 job_not_found");
    for (const Origin of ["https://evil.example", "null", `http://localhost:${port + 1}`, "x"])
      expect(await post({ Origin })).toBe(refused);
    for (const site of ["cross-site", "same-site"])
      expect(await post({ "Sec-Fetch-Site": site })).toBe(refused);
    const stream = { Host, Accept: "text/event-stream", "Sec-Fetch-Site": "cross-site" };
    expect(await answer(port, "GET /v1/events", stream)).toBe(refused);
    const lines = { Host, Origin: "https://evil.example" };
    expect(await answer(port, "GET /v1/jobs?stream=ndjson", lines)).toBe(refused);
    expect(await answer(port, "POST /v1/work/claims", { ...lines })).toBe(refused);
    // A preflight gets no leave, so that browsers send no JSON from elsewhere.
    const preflight = await raw(port, head("OPTIONS /v1/jobs", { ...lines }));
    expect(preflight).toMatch(/^HTTP\/1\.1 405/);
    expect(preflight).not.toMatch(/access-control/i);
  });
});

describe("a body", () => {
  it("may be 512 KiB, or 8 MiB where many are sent at once, or as large as the server allows", async () => {
    const { api } = await openServer({ url: "memory:" });
    const large = "x".repeat(200 * 1024);
    const tooLarge = { ...job, payload: [large, large], tags: [large, large] };
    const refused = await api.post("/v1/jobs", tooLarge);
    expect([refused.status, refused.body.error]).toMatchObject([
      ...[413, { code: "payload_too_large", details: { reason: "body_too_large" } }],
    ]);
    const jobs = Array.from({ length: 5 }, () => ({ ...job, payload: large }));
    expect((await api.post("/v1/jobs/batch", { jobs })).status).toBe(200);
    const many = Array.from({ length: 45 }, () => ({ ...job, payload: large }));
    expect((await api.post("/v1/jobs/batch", { jobs: many })).status).toBe(413);
    const small = await openServer({ url: "memory:", maxBodyBytes: 100 });
    expect((await small.api.post("/v1/jobs", { ...job, payload: "x".repeat(80) })).status).toBe(
      413,
    );
  });

  it("is refused before it is all there, also in chunks", async () => {
    const { port } = await openServer({ url: "memory:" });
    const chunked = { Host: `127.0.0.1:${port}`, "Transfer-Encoding": "chunked" };
    const chunk = `10000\r\n${"x".repeat(65_536)}\r\n`;
    // The end of the body never comes.
    const answer = await raw(port, head("POST /v1/jobs", chunked) + chunk.repeat(12));
    expect(answer).toMatch(/^HTTP\/1\.1 413 /);
  });

  it("must be JSON, and says so", async () => {
    const { api } = await openServer({ url: "memory:" });
    const form = { "Content-Type": "application/x-www-form-urlencoded" };
    const asForm = await api.call("POST", "/v1/jobs", { body: "a=b", headers: form });
    expect([asForm.status, asForm.body.error.details.reason]).toEqual([
      415,
      "unsupported_media_type",
    ]);
    const plain = { "Content-Type": "text/plain" };
    expect(
      (await api.call("POST", "/v1/jobs", { body: JSON.stringify(job), headers: plain })).status,
    ).toBe(415);
    const broken = await api.call("POST", "/v1/jobs", { body: '{"service":' });
    expect([broken.status, broken.body.error.details.reason]).toEqual([400, "invalid_json"]);
    for (const body of ["[]", "null", "1", '"x"'])
      expect((await api.call("POST", "/v1/jobs", { body })).status).toBe(400);
  });

  it("may be nested 32 levels deep in a payload, and is refused beyond", async () => {
    const { api } = await openServer({ url: "memory:" });
    const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);
    const create = async (payload: string, headers = {}) => {
      const body = `{"service":"shop","type":"mail","payload":${payload}}`;
      return (await api.call("POST", "/v1/jobs", { body, headers })).status;
    };
    expect(await create(nested(32))).toBe(201);
    expect(await create(nested(33))).toBe(422);
    const keyed = { "Idempotency-Key": "deep" };
    for (const depth of [33, 5_000, 200_000])
      expect([depth, await create(nested(depth), keyed)]).toEqual([
        depth,
        depth === 33 ? 422 : 400,
      ]);
    const manifest = `{"manifest":1,"service":"shop","signature":"x","jobs":[],"more":${nested(200_000)}}`;
    const body = `{"manifest":${manifest}}`;
    expect((await api.call("POST", "/v1/contracts/shop/diff", { body })).status).toBe(400);
  });

  it("holds no names that reach prototypes", async () => {
    const { api } = await openServer({ url: "memory:" });
    for (const name of ["__proto__", "constructor", "prototype"]) {
      const body = `{"service":"shop","type":"mail","payload":{"a":[{"${name}":{"isAdmin":true}}]}}`;
      const { status, body: answer } = await api.call("POST", "/v1/jobs", { body });
      expect([name, status, answer.error.details.reason]).toEqual([name, 422, "payload_invalid"]);
      expect(answer.error.details.field).toBe(`payload/a/0/${name}`);
    }
    const top = '{"service":"shop","type":"mail","payload":{},"__proto__":{"id":"x"}}';
    expect((await api.call("POST", "/v1/jobs", { body: top })).status).toBe(400);
    const query = await api.get("/v1/jobs?__proto__=1&constructor=2");
    expect(query.status).toBe(400);
    expect(({} as { isAdmin?: boolean }).isAdmin).toBeUndefined();
  });
});

describe("a caller", () => {
  it("that sends its headers or its body too slowly is cut off", async () => {
    const { port } = await openServer({ url: "memory:", readTimeoutMs: 200 });
    const slowHeaders = await raw(port, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ");
    expect(slowHeaders).toMatch(/^HTTP\/1\.1 408 /);
    const headers = { Host: `127.0.0.1:${port}`, "Content-Length": "100" };
    const slowBody = await raw(port, `${head("POST /v1/jobs", headers)}{"service"`);
    expect(slowBody).not.toMatch(/^HTTP\/1\.1 2/);
  });

  it("that sends headers without end is cut off", async () => {
    const { port } = await openServer({ url: "memory:" });
    const answer = await raw(port, `GET /healthz HTTP/1.1\r\nX: ${"x".repeat(20_000)}`);
    expect(answer).toMatch(/^HTTP\/1\.1 431 /);
  });

  it("that keeps its connection without asking anything more is let go", async () => {
    const { port } = await openServer({ url: "memory:", readTimeoutMs: 200 });
    const Host = `127.0.0.1:${port}`;
    const response = await raw(port, head("GET /healthz", { Host, Connection: "keep-alive" }));
    expect(response).toMatch(/^HTTP\/1\.1 200/);
  });

  it("that takes nothing of its answer is cut off, and its stream ends", async () => {
    const options = { url: "memory:", writeTimeoutMs: 200, maxStreams: 1 };
    const { port, api } = await openServer(options);
    const payload = "x".repeat(200_000);
    const jobs = Array.from({ length: 40 }, () => ({ ...job, payload }));
    for (let round = 0; round < 3; round++) await api.post("/v1/jobs/batch", { jobs });
    const socket = connect(port, "127.0.0.1");
    onTestFinished(() => void socket.destroy());
    socket.on("error", () => {});
    const accept = { Host: `127.0.0.1:${port}`, Accept: "text/event-stream" };
    socket.write(head("GET /v1/events?cursor=start", accept));
    await once(socket, "readable");
    await untilPlaceIsFree(api);
  });

  it("that asks too often is told when to come back", async () => {
    const { api } = await openServer({ url: "memory:", rateLimit: 5 });
    const answers = await Promise.all(Array.from({ length: 20 }, () => api.get("/v1/jobs")));
    const refused = answers.filter(({ status }) => status === 429);
    expect(refused.length).toBeGreaterThanOrEqual(10);
    for (const { headers, body } of refused) {
      expect(body.error).toMatchObject({
        code: "rate_limited",
        details: { reason: "too_many_requests" },
      });
      expect(headers.get("retry-after")).toBe("1");
    }
    // Whether it lives can always be asked.
    expect((await api.get("/healthz")).status).toBe(200);
  });

  it("finds no more streams than the server allows, and a place when one has left", async () => {
    const { api } = await openServer({ url: "memory:", maxStreams: 2 });
    const first = await eventsOf(api, "/v1/events");
    const second = await linesOf(api, "/v1/jobs?stream=ndjson");
    const headers = { Accept: "text/event-stream" };
    const third = await api.get("/v1/events", { headers });
    expect([third.status, third.body.error.details.reason]).toEqual([429, "too_many_streams"]);
    first.leave();
    second.leave();
    await untilPlaceIsFree(api);
    // Asking for the head alone takes no place.
    for (let tries = 0; tries < 5; tries++) await api.send("HEAD", "/v1/events", { headers });
    const [one, two] = [await eventsOf(api, "/v1/events"), await eventsOf(api, "/v1/events")];
    one.leave();
    two.leave();
  });
});

/** Resolves when a stream can be opened. */
async function untilPlaceIsFree(api: Api): Promise<void> {
  const headers = { Accept: "text/event-stream" };
  while ((await api.send("HEAD", "/v1/events", { headers })).status !== 200);
}

describe("an answer", () => {
  it("always carries the headers that keep browsers from misusing it", async () => {
    const { api, port } = await openServer({ url: "memory:" });
    const accept = { headers: { Accept: "text/event-stream" } };
    const asked: [string, string, object?][] = [
      ["GET", "/healthz"],
      ["GET", "/v1/jobs"],
      ["GET", "/v1/openapi.json"],
      ["GET", "/v1/nowhere"],
      ["PUT", "/v1/jobs"],
      ["POST", "/v1/jobs"],
      ["GET", "/v1/events", accept],
      ["GET", "/metrics"],
    ];
    for (const [method, path, ask] of asked) {
      const response = await api.send(method, path, ask);
      const headers = Object.fromEntries(response.headers);
      expect([path, headers]).toMatchObject([
        path,
        {
          "cache-control": "no-store",
          "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
          "cross-origin-resource-policy": "same-origin",
          "referrer-policy": "no-referrer",
          "x-content-type-options": "nosniff",
          "x-frame-options": "DENY",
          "x-request-id": expect.any(String),
        },
      ]);
      expect(headers).not.toHaveProperty("access-control-allow-origin");
      expect(headers).not.toHaveProperty("x-powered-by");
      await response.body?.cancel();
    }
    expect(await raw(port, "nonsense\r\n\r\n")).toMatch(/^HTTP\/1\.1 400 /);
  });

  it("takes over a request id that is harmless, and none that could break a line", async () => {
    const { api } = await openServer({ url: "memory:" });
    const idOf = async (id: string) =>
      (await api.send("GET", "/healthz", { headers: { "X-Request-Id": id } })).headers.get(
        "x-request-id",
      );
    expect(await idOf("a-1")).toBe("a-1");
    for (const id of ["a b", "x".repeat(129)]) expect(await idOf(id)).toMatch(/^req-/);
  });
});

describe("the log", () => {
  it("has the request, and neither payloads nor tokens", async () => {
    const lines: string[] = [];
    const log = (fields: object, message: string) =>
      void lines.push(
        `${message} ${JSON.stringify(fields, (_, v) => (v instanceof Error ? `${v.stack}` : v))}`,
      );
    const logger: Logger = { debug: log, info: log, warn: log, error: log };
    const { api, engine } = await openServer({
      url: await freshPlace(sqlite),
      logger,
      keeper: false,
    });
    const secret = "s3cr3t-p4yl04d";
    const token = `mr_${"a".repeat(16)}_${"b".repeat(43)}`;
    const headers = { "X-Request-Id": "checkout-9", Authorization: `Bearer ${token}` };
    await api.post("/v1/jobs", { ...job, payload: { secret } });
    await api.post("/v1/jobs", { ...job, payload: { secret }, tags: [""] });
    await api.get("/v1/jobs", { headers });
    await engine.close();
    const down = await api.post("/v1/jobs", { ...job, payload: { secret } });
    expect([down.status, down.body.error.code]).toEqual([503, "unavailable"]);
    const all = lines.join("\n");
    expect(all).toContain("checkout-9");
    expect(all).toContain('"route":"/v1/jobs"');
    for (const word of [secret, token, "b".repeat(43)]) expect(all).not.toContain(word);
  });

  it("has the stack of a fault, which its caller never sees", async () => {
    const lines: object[] = [];
    const logger: Logger = {
      info: () => {},
      warn: () => {},
      error: (fields) => void lines.push(fields),
    };
    const { engine, url } = await openServer({ url: "memory:", logger, keeper: false });
    engine.query = async () => {
      throw new TypeError("an inner name");
    };
    const { status, body } = await new Api(url).get("/v1/jobs", {
      headers: { "X-Request-Id": "r-1" },
    });
    expect([status, body.error]).toEqual([
      500,
      {
        ...{ code: "internal", requestId: "r-1", details: { reason: "internal" } },
        message: "Something went wrong in the server; its log has more under r-1.",
      },
    ]);
    expect(lines[0]).toMatchObject({ requestId: "r-1", error: { message: "an inner name" } });
  });
});
