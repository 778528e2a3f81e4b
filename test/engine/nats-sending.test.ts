/**
 * What is sent in one turn goes over the wire at once, each message as the protocol wants it.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { expect, test } from "vitest";
import { Sender } from "#millrace/engine/nats/sending.js";

/** A connection that keeps what it is given: commands as they go over the wire, and messages that the library is to send. */
function connected({ takesCommands = true, payloadMax = 1_000_000 } = {}) {
  const commands: string[] = [];
  /** How many commands there were when the library was to write them at once. */
  const written: number[] = [];
  const published: unknown[] = [];
  const connection = {
    info: { max_payload: payloadMax },
    isClosed: () => false,
    publish: (subject: string, body: string, { reply, headers }: Record<string, unknown>) => {
      if (subject.includes(" ")) throw new Error("no such subject");
      const encoded = (headers as { encode(): Uint8Array } | undefined)?.encode();
      published.push({ subject, body, reply, headers: encoded && Buffer.from(encoded).toString() });
    },
    ...(takesCommands && {
      protocol: {
        sendCommand: (command: Uint8Array) => commands.push(Buffer.from(command).toString()),
        flushPending: () => written.push(commands.length),
      },
    }),
  };
  return {
    sender: new Sender(connection as unknown as NatsConnection),
    commands,
    published,
    written,
  };
}

const headers = { "request-id": "r-1", traceparent: "00-1" };
const compared = {
  subject: "a.b",
  body: "grüße",
  headers,
  expect: { filter: "a.*", seq: 1_234_567 },
};
const comparedHeaders = [
  "NATS/1.0",
  "request-id: r-1",
  "traceparent: 00-1",
  "Nats-Expected-Last-Subject-Sequence: 1234567",
  "Nats-Expected-Last-Subject-Sequence-Subject: a.*",
].join("\r\n");

test("messages of one turn are one command, with their lengths in bytes", () => {
  const { sender, commands } = connected();
  sender.send({ subject: "x", body: "" });
  sender.send({ subject: "x.y", body: "abc" }, "inbox.3-", 10);
  sender.send(compared, "inbox.4-", 0);
  sender.send({ subject: "z", body: "{}", expect: { filter: "z", seq: 0 } }, "", -1, "More: 1\r\n");
  expect(commands).toEqual([]);
  sender.flush();
  const zero =
    "NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 0\r\nNats-Expected-Last-Subject-Sequence-Subject: z\r\nMore: 1\r\n\r\n";
  const length = comparedHeaders.length + 4;
  expect(commands).toEqual([
    `PUB x 0\r\n\r\nPUB x.y inbox.3-10 3\r\nabc\r\n` +
      `HPUB a.b inbox.4-0 ${length} ${length + 7}\r\n${comparedHeaders}\r\n\r\ngrüße\r\n` +
      `HPUB z ${zero.length} ${zero.length + 2}\r\n${zero}{}\r\n`,
  ]);
});

test("what is worth a write of its own is written before the turn ends, and the rest at its end", async () => {
  const { sender, commands, written } = connected();
  sender.send({ subject: "x", body: "1" });
  sender.sendEarly();
  expect(written).toEqual([]);
  sender.send({ subject: "x", body: "2".repeat(5_000) });
  sender.sendEarly();
  expect(written).toEqual([1]);
  sender.send({ subject: "x", body: "3" });
  sender.sendEarly();
  await new Promise((resolve) => setImmediate(resolve));
  expect(commands).toEqual([
    `PUB x 1\r\n1\r\nPUB x 5000\r\n${"2".repeat(5_000)}\r\n`,
    "PUB x 1\r\n3\r\n",
  ]);
  expect(written).toEqual([1]);
});

test("who wants to begin at once says how little is worth a write", () => {
  const { sender, commands, written } = connected();
  sender.send({ subject: "x", body: "1" });
  sender.sendEarly(1);
  expect([commands, written]).toEqual([["PUB x 1\r\n1\r\n"], [1]]);
  sender.sendEarly(1);
  sender.send({ subject: "x", body: "2".repeat(5_000) });
  sender.sendEarly(64_000);
  expect(written).toEqual([1]);
});

test("what was handed over is not written to again, however much follows", () => {
  const { sender, commands } = connected();
  const bodies = Array.from({ length: 50 }, (_, index) => `${index}`.repeat(20_000));
  for (const [index, body] of bodies.entries()) {
    sender.send({ subject: "x", body });
    if (index % 7 === 0) sender.flush();
  }
  sender.flush();
  const expected = bodies.map((body) => `PUB x ${body.length}\r\n${body}\r\n`).join("");
  expect(commands.join("") === expected).toBe(true);
});

test("the library sends what is no command, in its place, and says why it cannot be sent", () => {
  const { sender, commands, published } = connected({ payloadMax: 200 });
  sender.send({ subject: "x", body: "1" });
  expect(sender.send({ subject: "x y", body: "" })).toMatchObject({ message: "no such subject" });
  expect(commands).toEqual(["PUB x 1\r\n1\r\n"]);
  expect(sender.send({ subject: "x", body: "2".repeat(201) })).toBeNull();
  expect(published).toEqual([{ subject: "x", body: "2".repeat(201) }]);
});

test("the library sends everything where it takes no commands", () => {
  const { sender, published } = connected({ takesCommands: false });
  sender.send(compared, "inbox.1-", 2);
  const { subject, body } = compared;
  const text = `${comparedHeaders}\r\n\r\n`;
  expect(published).toEqual([{ subject, body, reply: "inbox.1-2", headers: text }]);
});
