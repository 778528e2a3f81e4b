// The log: structured lines that lead to job, request and trace, readable on a terminal, and no secret or payload in any.
import { stripVTControlCharacters } from "node:util";
import { connect, defineJob, defineService } from "millrace";
import { describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { createLog, type LogOptions } from "#millrace/server/log.js";

function logged(options: LogOptions & { readonly isTTY?: boolean } = {}) {
  const lines: string[] = [];
  const { isTTY = false, ...rest } = options;
  const destination = { isTTY, write: (line: string) => void lines.push(line) };
  const logger = createLog({ ...rest, destination });
  const only = (): Record<string, unknown> => {
    expect(lines).toHaveLength(1);
    return JSON.parse(lines[0] ?? "") as Record<string, unknown>;
  };
  return { logger, lines, only };
}

test("a line is one object of JSON with time, level, message and fields", () => {
  const { logger, lines, only } = logged({ fields: { instance: "web-1" } });
  logger.warn({ port: 8080 }, "Something is odd: %s");
  expect(lines[0]?.endsWith("\n")).toBe(true);
  expect(only()).toEqual({
    time: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
    level: "warn",
    message: "Something is odd: %s",
    instance: "web-1",
    port: 8080,
  });
});

test.each([
  ["debug", 4],
  ["info", 3],
  ["warn", 2],
  ["error", 1],
  ["silent", 0],
] as const)("of the level %s, %i of four lines are written", (level, count) => {
  const { logger, lines } = logged({ level });
  logger.debug({}, "a");
  logger.info({}, "b");
  logger.warn({}, "c");
  logger.error({}, "d");
  expect(lines).toHaveLength(count);
});

describe("secrets and payloads", () => {
  const secret = "hunter2-hunter2";

  test.each([
    { authorization: `Bearer ${secret}` },
    { headers: { Authorization: secret, Cookie: secret, "Set-Cookie": [secret] } },
    { request: { headers: { "proxy-authorization": secret, "x-api-key": secret } } },
    { a: [{ b: { accessToken: secret } }] },
    { token: secret, webhook_secret: secret, password: secret, privateKey: secret },
    { payload: { card: secret } },
    { payload_base64: secret, result: [secret], body: { secret } },
    { error: new Error(`cannot connect to postgres://app:${secret}@db:5432/jobs`) },
    { error: new Error("outer", { cause: new Error(`authorization: Bearer ${secret}`) }) },
    { error: Object.assign(new Error("refused"), { payload: secret, request: { secret } }) },
    { url: `nats://${secret}@host:4222` },
  ])("%o is written without them", (fields) => {
    const { logger, lines, only } = logged();
    logger.error(fields, "It failed.");
    expect(lines.join()).not.toContain(secret);
    expect(only().message).toBe("It failed.");
  });

  test("a message is written without them", () => {
    const { logger, lines } = logged();
    logger.error({}, `The store postgres://app:${secret}@db/jobs refused Basic ${secret}`);
    expect(lines[0]).toContain("The store postgres://[redacted]@db/jobs refused Basic [redacted]");
  });

  test("what only looks like one stays: numbers, places and names", () => {
    const { logger, only } = logged();
    const fields = { token: 3, url: "postgres://db:5432/jobs", tokenName: "ci", secretName: null };
    logger.info(fields, "The bearer of news comes from https://example.com/@anna.");
    expect(only()).toMatchObject({
      ...fields,
      message: "The bearer of news comes from https://example.com/@anna.",
    });
  });
});

test("an error has its name, message, code, stack and cause", () => {
  const { logger, only } = logged();
  const cause = Object.assign(new RangeError("too far"), { code: "E_FAR" });
  logger.error({ error: new TypeError("no", { cause }) }, "It failed.");
  expect(only().error).toMatchObject({
    name: "TypeError",
    message: "no",
    stack: expect.stringContaining("log.test.ts"),
    cause: { name: "RangeError", code: "E_FAR", message: "too far" },
  });
});

test("what is deep, long, circular or no JSON is cut and not thrown", () => {
  const { logger, only } = logged();
  const circle: { self?: unknown } = {};
  circle.self = circle;
  const many = Array.from({ length: 1_000 }, (_, index) => index);
  logger.info({ circle, many, long: "x".repeat(100_000), big: 1n, bytes: Buffer.alloc(5) }, "Odd.");
  const line = only();
  expect(JSON.stringify(line).length).toBeLessThan(20_000);
  expect(line).toMatchObject({ big: "1", bytes: "[5 bytes]", message: "Odd." });
});

test("on a terminal a line is text, with the stack below it, and cannot steer the terminal", () => {
  const { logger, lines } = logged({ isTTY: true });
  const error = new Error("broken \u001b[2J pipe");
  logger.warn({ jobId: "j-1", reason: "two words", count: 3, error }, "A handler\u0007 threw.");
  const [text = ""] = lines;
  const plain = stripVTControlCharacters(text);
  expect(plain).toMatch(
    /^\d\d:\d\d:\d\d\.\d{3} WARN {2}A handler {2}threw\. jobId=j-1 reason="two words" count=3 error="broken {2}\[2J pipe"\n {4}Error: broken/,
  );
  expect(text).not.toContain("\u001b[2J");
  expect(text).not.toContain("\u0007");
});

test("lines about a job name it, its request and its trace, and never its payload", async () => {
  const { logger, lines } = logged();
  const shop = defineService("shop", {
    order: defineJob({ payload: z.object({ card: z.string() }), retry: { maxTries: 1 } }),
  });
  const service = await connect(shop, { url: "memory:", logger });
  onTestFinished(() => service.stop());
  service.jobs.order.handle(async () => {
    throw new Error("refused");
  });
  await service.start();
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const context = { requestId: "r-7", traceparent };
  await service.jobs.order.run({ card: "4111-1111" }, { id: "o-1", context });
  await service.stop();

  const about = lines.map((line) => JSON.parse(line)).filter(({ jobId }) => jobId !== undefined);
  expect(about.map(({ message }) => message)).toEqual([
    "A handler threw.",
    "A job has ended as dead.",
  ]);
  for (const line of about) {
    expect(line).toMatchObject({
      jobId: "o-1",
      service: "shop",
      type: "order",
      requestId: "r-7",
      traceId: "0af7651916cd43dd8448eb211c80319c",
    });
  }
  expect(lines.join()).not.toContain("4111-1111");
});
