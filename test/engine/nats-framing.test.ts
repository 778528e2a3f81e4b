/**
 * Messages that are told where they lie: however the bytes of a server are cut, each is told once and whole, and what is
 * no message of a listener's is the library's.
 */
import { headers as headersOf, type Msg, type NatsConnection } from "@nats-io/transport-node";
import { expect, test } from "vitest";
import { Framing } from "#millrace/engine/nats/framing.js";
import type { Incoming } from "#millrace/engine/nats/incoming.js";
import { firstHeader, HeaderName, hasHeader, statusOf } from "#millrace/engine/nats/raw-headers.js";
import { Receiver } from "#millrace/engine/nats/receiving.js";

const sessionName = new HeaderName("Millrace-Session");

const headers = "NATS/1.0\r\nrequest-id: r-1\r\nMillrace-Session: s-1\r\n\r\n";
const status = "NATS/1.0 503\r\n\r\n";

const plain = (sid: number, subject: string, body: string, reply = "") =>
  `MSG ${subject} ${sid} ${reply}${reply && " "}${Buffer.byteLength(body)}\r\n${body}\r\n`;
const headed = (sid: number, subject: string, body: string, reply = "", head = headers) =>
  `HMSG ${subject} ${sid} ${reply}${reply && " "}${head.length} ${head.length + Buffer.byteLength(body)}\r\n${head}${body}\r\n`;

/** What was told, and what was left to the library. */
function listening(...sids: readonly number[]) {
  const told: unknown[] = [];
  let left = "";
  const heard = (message: Incoming) => {
    const { subject, reply, text } = message;
    const id = firstHeader(message, new HeaderName("request-id"));
    told.push({ subject, reply, text, id, status: statusOf(message) });
  };
  const library = {
    parse: (bytes: Buffer) => {
      left += bytes.toString();
    },
  };
  const framing = new Framing(library, new Map(sids.map((sid) => [sid, heard])));
  return { framing, told, left: () => left };
}

const stream = [
  "PING\r\n",
  plain(1, "inbox.7-0", '{"stream":"JOBS","seq":12}'),
  headed(2, "millrace.jobs.shop.mail.1.created", '{"name":"grüße"}', "$JS.ACK.JOBS.c.1.2.3.4.5"),
  plain(9, "somebody.elses", "MSG inbox.7-0 1 2\r\n\r\n", "there"),
  headed(1, "inbox.7-1", "", "", status),
  "+OK\r\n",
  plain(2, "empty", "", "answers.here"),
  headed(2, "last", "without a reply"),
].join("");

const expected = [
  {
    subject: "inbox.7-0",
    reply: "",
    text: '{"stream":"JOBS","seq":12}',
    id: undefined,
    status: undefined,
  },
  {
    subject: "millrace.jobs.shop.mail.1.created",
    reply: "$JS.ACK.JOBS.c.1.2.3.4.5",
    text: '{"name":"grüße"}',
    id: "r-1",
    status: undefined,
  },
  { subject: "inbox.7-1", reply: "", text: "", id: undefined, status: 503 },
  { subject: "empty", reply: "answers.here", text: "", id: undefined, status: undefined },
  { subject: "last", reply: "", text: "without a reply", id: "r-1", status: undefined },
];

const libraryPart = `PING\r\n${plain(9, "somebody.elses", "MSG inbox.7-0 1 2\r\n\r\n", "there")}+OK\r\n`;

test("are told once and whole, wherever the bytes are cut", () => {
  const bytes = Buffer.from(stream);
  for (let cut = 0; cut <= bytes.length; cut++) {
    const { framing, told, left } = listening(1, 2);
    framing.parse(bytes.subarray(0, cut));
    framing.parse(bytes.subarray(cut));
    expect(told).toEqual(expected);
    expect(left()).toBe(libraryPart);
  }
});

test("are told when they come byte by byte", () => {
  const { framing, told, left } = listening(1, 2);
  for (const byte of Buffer.from(stream)) framing.parse(Buffer.of(byte));
  expect(told).toEqual(expected);
  expect(left()).toBe(libraryPart);
});

test("are kept by whoever wants them longer", () => {
  let kept: Incoming | undefined;
  const heard = (message: Incoming) => {
    kept = message.kept();
  };
  const framing = new Framing({ parse: () => {} }, new Map([[1, heard]]));
  const bytes = Buffer.from(headed(1, "a.b", "body", "c.d"));
  framing.parse(bytes);
  bytes.fill(0);
  expect(kept).toMatchObject({ subject: "a.b", reply: "c.d", headers, text: "body" });
});

test("are left to the library from where a server says what nobody expects", () => {
  for (const odd of [
    "MSG a 1 x\r\n",
    "MSG a 1 b c 1\r\nd\r\n",
    "HMSG a 1 9 3\r\nabc\r\n",
    "MSGS 1 2\r\n",
  ]) {
    const { framing, told, left } = listening(1, 2);
    framing.parse(Buffer.from(plain(1, "a", "first") + odd + plain(1, "a", "second")));
    framing.parse(Buffer.from(plain(1, "a", "third")));
    expect(told).toHaveLength(1);
    expect(left()).toBe(odd + plain(1, "a", "second") + plain(1, "a", "third"));
  }
});

test("have headers where a line begins with the name, and nowhere else", () => {
  const has = (head: string, body: string) => {
    let found = false;
    const heard = (message: Incoming) => {
      found = hasHeader(message, [new HeaderName("Nats-Stream")]);
    };
    const framing = new Framing({ parse: () => {} }, new Map([[1, heard]]));
    framing.parse(Buffer.from(headed(1, "a", body, "", head)));
    return found;
  };
  expect(has("NATS/1.0\r\nNats-Stream: JOBS\r\n\r\n", "")).toBe(true);
  expect(has("NATS/1.0\r\na: Nats-Stream: JOBS\r\n\r\n", "")).toBe(false);
  expect(has("NATS/1.0\r\nNats-Stream-Of: JOBS\r\n\r\n", "")).toBe(false);
  expect(has("NATS/1.0\r\n", "\r\nNats-Stream: JOBS")).toBe(false);
});

/** A connection of the library's, with what it would be told of a subscription. */
function connected(protocol?: { parser: { parse(bytes: Buffer): void } }) {
  let callback: (error: Error | null, message: Msg) => void = () => {};
  const subscription = { getID: () => 1, unsubscribe: () => {} };
  const subscribe = (_: string, options: { readonly callback: typeof callback }) => {
    callback = options.callback;
    return subscription;
  };
  const connection = { subscribe, protocol } as unknown as NatsConnection;
  const receiver = new Receiver(connection);
  return {
    receiver,
    tell: (error: Error | null, message: unknown) => callback(error, message as Msg),
  };
}

test("are the library's own where it does not let itself be preceded", () => {
  const { receiver, tell } = connected();
  const told: unknown[] = [];
  const heard = (message: Incoming) => {
    const { subject, reply, text } = message;
    told.push({ subject, reply, text, session: firstHeader(message, sessionName) });
  };
  receiver.subscribe("a.*", heard, ({ message }) => told.push(message));
  const carried = headersOf();
  carried.set("Millrace-Session", "s-1");
  tell(null, { subject: "a.b", reply: "c", data: Buffer.from("grüße"), headers: carried });
  tell(null, { subject: "a.c", data: Buffer.alloc(0) });
  tell(new Error("not allowed"), {});
  expect(told).toEqual([
    { subject: "a.b", reply: "c", text: "grüße", session: "s-1" },
    { subject: "a.c", reply: "", text: "", session: undefined },
    "not allowed",
  ]);
});

test("begin anew with each parser that the library makes, and are nobody's after the end", () => {
  let left = "";
  const parser = () => ({
    parse: (bytes: Buffer) => {
      left += bytes.toString();
    },
  });
  const protocol = { parser: parser() };
  const { receiver } = connected(protocol);
  const told: string[] = [];
  const listening = receiver.subscribe(
    "a",
    ({ text }) => told.push(text),
    () => {},
  );
  const message = Buffer.from(plain(1, "a", "whole"));
  protocol.parser.parse(message.subarray(0, 8));
  protocol.parser = parser();
  protocol.parser.parse(message);
  listening.unsubscribe();
  protocol.parser.parse(message);
  expect(told).toEqual(["whole"]);
  expect(left).toBe(message.toString());
});
